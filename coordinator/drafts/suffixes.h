/* coordinator/drafts/suffixes.h - a text of tokens that grows, and what followed where its end was there before: the
 * longest end that occurs earlier is found at any time in a few reads. A suffix automaton: a token costs a constant
 * time on average and at most SUFFIXES_TOKEN_BYTES of memory, all of which is taken at the beginning and touched as
 * the text grows. Pure. */
#ifndef DRAFTS_SUFFIXES_H
#define DRAFTS_SUFFIXES_H

#include "base/err.h"

#include <stdint.h>

#define SUFFIXES_MOST        (1 << 16) /* tokens that are remembered at most */
#define SUFFIXES_TOKEN_BYTES 120

struct suffixes;

/* For a text of this many tokens, or of any number: of a longer one than SUFFIXES_MOST the latter part is remembered,
 * at least half of that. */
int suffixes_open(struct suffixes **x, int64_t n_tokens, struct err *e);
void suffixes_close(struct suffixes **x);

/* The text goes on. A negative token is a border: what is found does not go on over it. */
void suffixes_add(struct suffixes *x, int32_t token);

/* Tokens that are added before anything is forgotten. */
int suffixes_room(const struct suffixes *x);

/* Forget all of it. */
void suffixes_clear(struct suffixes *x);

/* The tokens that followed in x where the last ones of another text are: as many of these as are there, at least
 * `shortest` and at most `longest`, without a border between them. At most n tokens to *token; returns their number.
 * *n_equal: how many were equal; 0: nothing was found. */
int suffixes_find(const struct suffixes *x, const struct suffixes *text, int shortest, int longest, int n,
                  int32_t *token, int *n_equal);

/* The tokens that followed when the text's last tokens were there before: at least `shortest` of them, and no more
 * than `longest` have to be equal. At most n tokens to *token; returns their number. If that place is so near that its
 * continuation ends with the text, the text is taken to repeat itself. *n_equal: how many were equal; 0: nothing was
 * found. */
int suffixes_follow(const struct suffixes *x, int shortest, int longest, int n, int32_t *token, int *n_equal);

#endif
