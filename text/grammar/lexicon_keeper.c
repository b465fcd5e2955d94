/* text/grammar/lexicon_keeper.c - see lexicon_keeper.h. */
#include "text/grammar/lexicon_keeper.h"

#include <string.h>

void lexicon_keeper_open(struct lexicon_keeper *k, const struct tokenizer *t, int32_t n_tokens)
{
    *k = (struct lexicon_keeper){.tokenizer = t, .n_tokens = n_tokens};
    (void)pthread_mutex_init(&k->lock, NULL);
}

void lexicon_keeper_close(struct lexicon_keeper *k)
{
    lexicon_close(&k->lexicon);
    if (k->tokenizer != NULL)
        (void)pthread_mutex_destroy(&k->lock);
    memset(k, 0, sizeof *k);
}

const struct lexicon *lexicon_keeper_get(struct lexicon_keeper *k, struct err *e)
{
    (void)pthread_mutex_lock(&k->lock);
    if (!k->made)
        (void)lexicon_open(&k->lexicon, k->tokenizer, k->n_tokens, &k->err);
    k->made = true;
    (void)pthread_mutex_unlock(&k->lock);
    if (k->err.code == ERR_NONE)
        return &k->lexicon;
    ERR(e, k->err.code, "%s", k->err.text);
    return NULL;
}
