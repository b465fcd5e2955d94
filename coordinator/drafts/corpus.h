/* coordinator/drafts/corpus.h - the finished answers of a job, searched for continuations of another text's end
 * (suffixes.h). Memory is bounded: at least the last CORPUS_PART tokens are kept, and at most twice as many. The time
 * of a call is bounded, too: answers wait in a queue and are added some tokens at a time. Pure. */
#ifndef DRAFTS_CORPUS_H
#define DRAFTS_CORPUS_H

#include "coordinator/drafts/suffixes.h"

#include <stddef.h>

#define CORPUS_PART (1 << 15)

struct corpus;

int corpus_open(struct corpus **c, struct err *e);
void corpus_close(struct corpus **c);

/* Queues an answer of n tokens; if the queue has less room, only the end of it, or nothing. */
void corpus_add(struct corpus *c, const int32_t *token, size_t n);

/* Add at most n tokens of the queued answers. */
void corpus_learn(struct corpus *c, int n);

/* As suffixes_find, in the part with the longer match. */
int corpus_find(const struct corpus *c, const struct suffixes *text, int shortest, int longest, int n, int32_t *token,
                int *n_equal);

#endif
