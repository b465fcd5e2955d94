/* text/grammar/lexicon_keeper.h - a model's lexicon, made at the first request for it (0.1 s for 128,000 tokens). */
#ifndef GRAMMAR_LEXICON_KEEPER_H
#define GRAMMAR_LEXICON_KEEPER_H

#include "text/grammar/lexicon.h"

#include <pthread.h>

struct lexicon_keeper {
    const struct tokenizer *tokenizer; /* borrowed */
    int32_t n_tokens;
    pthread_mutex_t lock; /* guards the members below */
    bool made;
    struct lexicon lexicon;
    struct err err; /* the reason if there is none */
};

/* For a vocabulary of n_tokens ids, the model's. */
void lexicon_keeper_open(struct lexicon_keeper *k, const struct tokenizer *t, int32_t n_tokens);
/* Safe on a zeroed one. */
void lexicon_keeper_close(struct lexicon_keeper *k);

/* Any thread. NULL and *e: this tokenizer allows none, or no memory. */
const struct lexicon *lexicon_keeper_get(struct lexicon_keeper *k, struct err *e);

#endif
