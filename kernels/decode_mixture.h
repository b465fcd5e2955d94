/* kernels/decode_mixture.h - what the persistent step (kernels/persistent.h) is told of a model in whose layers, or
 * some of them, a router chooses the experts that a token goes through: mlp(x) is the sum of what they say, as
 * op_list.h's route, experts_first and experts_second have it, and of what a common MLP says, which every token goes
 * through. And of any model: which vectors of its residual stream are wanted besides. */
#ifndef KERNELS_DECODE_MIXTURE_H
#define KERNELS_DECODE_MIXTURE_H

#include "kernels/persistent.h"

#define DECODE_TAPS 3

/* Vectors of the residual stream, as it is kept: what enters a layer, or leaves the last. */
struct decode_taps {
    int n, layer[DECODE_TAPS]; /* of the number of layers: what leaves the last */
    void *to;                  /* [n_tokens, n hidden] */
};

/* A gated MLP: the shared expert beside the chosen ones, or all that a layer without a router has. */
struct decode_common {
    const struct weight *in, *out; /* [2 cols, hidden], [hidden, cols], of this rank's columns; NULL: there is none */
    const struct weight *gate;     /* [1, hidden]: what it says is multiplied by sigmoid(x . gate); NULL: it is not */
};

/* The model that persistent_ops->open is given is always that of such a record; with dense layers model and taps count
 * alone. Taps, and several tokens of a sequence in a step, one after the other, each of which sees those before it: for
 * dense layers of 16-bit weights only. A mixture's layers have the matrices of all held experts in the places of the
 * MLP's: mlp_in [n_held, 2 expert_ffn, hidden], mlp_out [n_held, hidden, expert_ffn], and so the biases; those without
 * a router have their common MLP's there, too. */
struct decode_mixture {
    struct decode_model model;
    const struct routing *routing;
    const struct weight *const *router;      /* [n_layers], [n_experts, hidden] each; NULL: no experts in this one */
    const struct weight *const *router_bias; /* [n_layers], [1, n_experts] each; NULL: there are none */
    const struct decode_common *common;      /* [n_layers] */
    int first_held, n_held, expert_ffn;      /* the experts of this rank, and its columns of each */
    struct decode_taps taps;
};

/* NULL: the layers are dense. */
static inline const struct decode_mixture *decode_mixture_of(const struct decode_model *m)
{
    return m->mixture ? (const struct decode_mixture *)m : NULL;
}

static inline const struct decode_taps *decode_taps_of(const struct decode_model *m)
{
    return &((const struct decode_mixture *)m)->taps;
}

#endif
