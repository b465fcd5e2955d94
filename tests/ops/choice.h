/* tests/ops/choice.h - the arrays of a choice of experts, for tests of the router and of the operations after it. */
#ifndef TESTS_OPS_CHOICE_H
#define TESTS_OPS_CHOICE_H

#include "tests/ops/check.h"

struct choice {
    struct routing how;
    struct routes r;
    int n_tokens;
};

static inline struct choice choice_open(int n_tokens, int n_experts, int n_chosen, bool normalised)
{
    size_t n = (size_t)n_tokens, pairs = n * (size_t)n_chosen;
    return (struct choice){.how = {.n_experts = n_experts, .n_chosen = n_chosen, .normalised = normalised, .scale = 1},
                           .n_tokens = n_tokens,
                           .r = {.logits = zeroed(n * (size_t)n_experts, sizeof(float)),
                                 .expert = zeroed(pairs, sizeof(int32_t)),
                                 .share = zeroed(pairs, sizeof(float)),
                                 .begin = zeroed((size_t)n_experts + 1, sizeof(int32_t)),
                                 .pair = zeroed(pairs, sizeof(int32_t)),
                                 .n_held = n_experts}};
}

static inline void choice_close(struct choice *c)
{
    free(c->r.logits);
    free(c->r.expert);
    free(c->r.share);
    free(c->r.begin);
    free(c->r.pair);
}

#endif
