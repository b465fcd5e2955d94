/* coordinator/drafts/guesses.h - guesses the next tokens of a sequence from what followed the same tokens before
 * (suffixes.h), and counts how often such guesses were right. Every new token is compared with the guess for it,
 * whether that was fed as a draft or not, so the chances are known even while no drafts are fed. Pure. */
#ifndef DRAFTS_GUESSES_H
#define DRAFTS_GUESSES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DRAFTS_MAX 15 /* tokens of a sequence that one step may verify besides its last one */

/* How drafts are made. Flat. */
struct guess_rules {
    int32_t most;              /* limit of drafts per sequence and step, at most DRAFTS_MAX; 0: no drafts */
    int32_t shortest, longest; /* shortest and longest match of the last tokens */
    int32_t always;            /* 1: all drafts that are found; 0: as many as pay, by step times and chances */
    int32_t shared;            /* 1: other answers of the job are searched, too */
};

struct corpus;
struct guesses;

/* For a sequence of this many tokens. others: answers to search, borrowed; NULL: none. */
int guesses_open(struct guesses **g, const struct guess_rules *rules, int64_t n_tokens, const struct corpus *others,
                 struct err *e);
void guesses_close(struct guesses **g);

/* The next token. A negative one is a border (suffixes.h). judged: was the guess right? */
void guesses_add(struct guesses *g, int32_t token, bool judged);

/* At most n tokens to *token; returns their number. */
int guesses_make(const struct guesses *g, int n, int32_t *token);

/* The chance that the guess at this position, from 0, is right if those before it were. */
double guesses_chance(const struct guesses *g, int position);

#endif
