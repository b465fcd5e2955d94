/* kernels/decode_mixture.h - additional parameters of the persistent step (kernels/persistent.h) for a mixture of
 * experts, where a router in some or all layers chooses a token's experts: mlp(x) is the sum of their outputs, as
 * op_list.h's route, experts_first and experts_second define it, and of the output of a shared expert, which every
 * token goes through. Also, for any model: the taps, vectors of its residual stream to copy out. */
#ifndef KERNELS_DECODE_MIXTURE_H
#define KERNELS_DECODE_MIXTURE_H

#include "kernels/persistent.h"

#define DECODE_TAPS 3

/* Vectors of the residual stream in its stored type: the input of a layer, or the output of the last. */
struct decode_taps {
    int n, layer[DECODE_TAPS]; /* the number of layers stands for the output of the last */
    void *to;                  /* [n_tokens, n hidden] */
};

/* A gated MLP: the shared expert beside the chosen ones, or the only MLP of a layer without a router. */
struct decode_common {
    const struct weight *in, *out; /* [2 cols, hidden], [hidden, cols], of this rank's columns; NULL: there is none */
    const struct weight *gate;     /* [1, hidden]: its output is multiplied by sigmoid(x . gate); NULL: it is not */
};

/* The model passed to persistent_ops->open is always a member of such a record; with dense layers only `model` and
 * `taps` are used. Taps, and several consecutive tokens of a sequence in a step, each of which sees those before it,
 * are for dense layers of 16-bit weights only. In a mixture's layers, the MLP's fields hold the matrices of all held
 * experts: mlp_in [n_held, 2 expert_ffn, hidden], mlp_out [n_held, hidden, expert_ffn], biases likewise; layers without
 * a router have their only MLP there, too. */
struct decode_mixture {
    struct decode_model model;
    const struct routing *routing;
    const struct weight *const *router;      /* [n_layers], [n_experts, hidden] each; NULL: a layer without experts */
    const struct weight *const *router_bias; /* [n_layers], [1, n_experts] each; NULL: there are none */
    const struct decode_common *common;      /* [n_layers] */
    int first_held, n_held, expert_ffn;      /* the experts that this rank holds, and its columns of each */
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
