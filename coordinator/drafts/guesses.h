/* coordinator/drafts/guesses.h - the tokens that may follow a sequence's, by what followed them before (suffixes.h),
 * and how often such guesses were right. Every token that comes is compared with the guess that there was, whether it
 * was fed as a draft or not: so the chances are known where no drafts are fed, too. Pure. */
#ifndef DRAFTS_GUESSES_H
#define DRAFTS_GUESSES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DRAFTS_MAX 15 /* tokens of a sequence that one step may verify besides its last one */

/* How drafts are made. Flat. */
struct guess_rules {
    int32_t most;              /* drafts of a sequence and step, at most DRAFTS_MAX; 0: none are made */
    int32_t shortest, longest; /* as many of the last tokens have to have been there before; and are looked for */
    int32_t always;            /* 1: as many as there are; 0: as many as pay, by step times and chances */
    int32_t shared;            /* 1: other answers of the job are looked into, too */
};

struct corpus;
struct guesses;

/* For a sequence of this many tokens. others: answers that are looked into, borrowed; NULL: none. */
int guesses_open(struct guesses **g, const struct guess_rules *rules, int64_t n_tokens, const struct corpus *others,
                 struct err *e);
void guesses_close(struct guesses **g);

/* The next token. A negative one is a border (suffixes.h). judged: was the guess right? */
void guesses_add(struct guesses *g, int32_t token, bool judged);

/* At most n tokens to *token; returns their number. */
int guesses_make(const struct guesses *g, int n, int32_t *token);

/* The chance that the guess at this place, from 0, is right if those before it were. */
double guesses_chance(const struct guesses *g, int place);

#endif
