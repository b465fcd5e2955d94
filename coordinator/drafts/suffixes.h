/* coordinator/drafts/suffixes.h - a growing text of tokens, and the continuation of earlier occurrences of its end: the
 * longest suffix that occurred before is found at any time in a few reads. A suffix automaton: a token takes constant
 * time on average and at most SUFFIXES_TOKEN_BYTES of memory, all of which is allocated at the beginning and touched as
 * the text grows. Pure. */
#ifndef DRAFTS_SUFFIXES_H
#define DRAFTS_SUFFIXES_H

#include "base/err.h"

#include <stdint.h>

#define SUFFIXES_MOST        (1 << 16) /* most tokens that are kept */
#define SUFFIXES_TOKEN_BYTES 120

struct suffixes;

/* For a text of this many tokens. Of a text longer than SUFFIXES_MOST the latter part is kept, at least half of
 * SUFFIXES_MOST. */
int suffixes_open(struct suffixes **x, int64_t n_tokens, struct err *e);
void suffixes_close(struct suffixes **x);

/* Appends a token. A negative token is a border, which no continuation crosses. */
void suffixes_add(struct suffixes *x, int32_t token);

/* The number of tokens that can be added before any is forgotten. */
int suffixes_room(const struct suffixes *x);

/* Forget all of it. */
void suffixes_clear(struct suffixes *x);

/* Finds in x the longest match of the last tokens of another text, of at least `shortest` and at most `longest` tokens
 * without a border, and copies at most n tokens that follow it to *token; returns their number. *n_equal: length of the
 * match; 0: none. */
int suffixes_find(const struct suffixes *x, const struct suffixes *text, int shortest, int longest, int n,
                  int32_t *token, int *n_equal);

/* The same for the text's own last tokens: finds their latest earlier occurrence, a match of at least `shortest` and at
 * most `longest` tokens, and copies at most n tokens that follow it. If its continuation reaches the end of the text,
 * the text is assumed to repeat itself. *n_equal: length of the match; 0: none. */
int suffixes_follow(const struct suffixes *x, int shortest, int longest, int n, int32_t *token, int *n_equal);

#endif
