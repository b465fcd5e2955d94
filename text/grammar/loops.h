/* text/grammar/loops.h - tokens whose bytes, all but the first, belong to one set: within a pattern like [a-z0-9_]+ a
 * machine stays in one state over such a set, so that these tokens are found once for a set, not once for a state. The
 * sets of many patterns are the same. */
#ifndef GRAMMAR_LOOPS_H
#define GRAMMAR_LOOPS_H

#include "text/grammar/lexicon.h"

#define LOOPS_KEPT 24

struct loop_set {
    uint64_t bytes[4];
    uint32_t *inner;  /* [n_words] tokens all of whose bytes belong to the set, with the first one */
    int32_t *token;   /* by their first byte: those of byte b are token[token_begin[b], token_begin[b + 1]) */
    int32_t *leaving; /* likewise: nodes of lexicon.all whose byte is the first one that does not belong to the set */
    int32_t token_begin[257], leaving_begin[257];
    int n_tokens, n_leaving;
    uint64_t used;
};

struct loops {
    struct loop_set *set[LOOPS_KEPT];
    uint64_t clock;
};

/* The set with these bytes, found now if it is not kept. NULL: no memory. Valid until the next call. */
const struct loop_set *loops_get(struct loops *loops, const struct lexicon *l, const uint64_t bytes[4]);
void loops_close(struct loops *loops);

#endif
