/* commands/texts.c - see texts.h. */
#include "commands/texts.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/utf8.h"
#include "commands/generation.h"

#include <string.h>

int texts_open(struct texts *t, const char *dir, const char *name, const char *chat_template,
               const struct model_config *m, struct err *e)
{
    struct request_rules ids = {0};
    char why[ERR_TEXT_BYTES] = "";
    int32_t bos = -1;
    t->rope_changes_at = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED ? m->rope.long_from : 0;
    t->name[utf8_repair(t->name, sizeof t->name - 1, name, strlen(name))] = '\0';
    if (generation_ids(&ids, &bos, dir, m->vocab, e) != 0 || tokenizer_open(&t->tokenizer, dir, e) != 0 ||
        chat_template_open(&t->chat, dir, chat_template, why, sizeof why, e) != 0)
        return -1;
    lexicon_keeper_open(&t->lexicon, t->tokenizer, m->vocab);
    if (t->chat == NULL)
        log_info("no chats: %s", why);
    t->served = (struct served){.model = {.name = t->name, .vocab = m->vocab, .n_eos = ids.sampling.n_eos},
                                .family = m->model_type,
                                .dtype = dtype_name(m->dtype),
                                .variant = model_variant(m),
                                .tokenizer = t->tokenizer,
                                .lexicon = &t->lexicon,
                                .chat = t->chat,
                                .bos = bos};
    memcpy(t->served.model.eos, ids.sampling.eos, sizeof t->served.model.eos);
    return 0;
}

void texts_close(struct texts *t)
{
    chat_template_close(&t->chat);
    lexicon_keeper_close(&t->lexicon);
    tokenizer_close(&t->tokenizer);
    memset(t, 0, sizeof *t);
}
