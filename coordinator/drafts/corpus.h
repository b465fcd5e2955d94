/* coordinator/drafts/corpus.h - the answers of a job, in which what follows the end of another text is found
 * (suffixes.h). Memory is bounded: of more than CORPUS_PART tokens that were learned at least the last so many are
 * remembered, and of more than twice as many the earlier ones are forgotten at once. So is the time of a call: answers
 * wait until they are learned, some tokens at a time. Pure. */
#ifndef DRAFTS_CORPUS_H
#define DRAFTS_CORPUS_H

#include "coordinator/drafts/suffixes.h"

#include <stddef.h>

#define CORPUS_PART (1 << 15)

struct corpus;

int corpus_open(struct corpus **c, struct err *e);
void corpus_close(struct corpus **c);

/* An answer of n tokens, to be learned; the end of it, where less than that fits beside those that wait, and nothing of
 * it where nothing fits. */
void corpus_add(struct corpus *c, const int32_t *token, size_t n);

/* Learn at most n tokens of the answers that wait. */
void corpus_learn(struct corpus *c, int n);

/* As suffixes_find, in the part of which more tokens are equal. */
int corpus_find(const struct corpus *c, const struct suffixes *text, int shortest, int longest, int n, int32_t *token,
                int *n_equal);

#endif
