/* kernels/cuda/step/persistent_experts_args.cuh - the additional arguments of the persistent kernel for mixtures of
 * experts. */
#ifndef STEP_PERSISTENT_EXPERTS_ARGS_CUH
#define STEP_PERSISTENT_EXPERTS_ARGS_CUH

#include "kernels/cuda/step/persistent_chain.cuh"

#define EXPERT_STAGES  6   /* per layer's weights: see expert_kind */
#define EXPERT_MAX     256 /* experts: registers set the limit */
#define EXPERT_COLUMNS 64  /* hidden sizes are multiples of it, and so are columns of 16-bit experts */

/* See expert_handed. */
#define HAND_WARPS  (STREAM_THREADS / 32 - 1) /* those beside the warp that requests weights */
#define HAND_TOKENS 2                         /* more */

/* The part of a layer that only mixtures have, beside chain_layer, whose bias[2] and bias[3] are those of all held
 * experts. */
struct expert_layer {
    const void *router_bias; /* [n_experts]; NULL: none */
    const void *sinks;       /* [n_heads]; NULL: none */
    const char *scales[2];   /* scales of quantised weights, of the first and the second product: [rows of all held
                              experts][groups] */
    const void *gate;        /* [hidden], gate of the shared expert; NULL: none */
    int common;              /* which of expert_args.common the layer has; -1: none */
    bool routed;             /* there are experts */
};

/* The experts' quantised weights, see persistent_experts_codes.cuh. */
struct expert_codes {
    int pitch[2];  /* bytes of a row's scales, of the first and the second product */
    int pieces[2]; /* of 128 bytes in a box of their weights: CHAIN_WARPS, or as many as a row has */
    int tiles;     /* of the second product in a slot: 1 or 2 */
    int teams;     /* of warps that divide its experts and share a slot */
    int warps;     /* of a group: each has a part of the columns */
    int ring;      /* bytes of the ring */
    int places;    /* pairs whose activations fit in shared memory at once */
    int input;     /* offset in shared memory of the first product's activations */
};

/* The MLPs that every token goes through: shared experts, and those of layers without experts. */
enum { COMMON_BESIDE, COMMON_ALONE, COMMON_MLPS };
struct expert_common {
    struct chain_product in; /* rows: the MLP's columns; 0: no layer has it */
    int out_steps;           /* of a tile of its second product */
};

/* Latent attention, see persistent_latent.cuh. */
struct expert_latents {
    struct chain_product product;      /* the product that makes the latents, as product[0] makes the queries */
    const CUtensorMap *maps;           /* device [n_layers][BOX_SIZES], of its weights */
    unsigned long long *words;         /* [NARROW_TOKENS][latent and rotated key, / 2] */
    const struct latent_layer *layers; /* device [n_layers] */
    int at;                            /* offset in shared memory of latent_tables */
    float eps;                         /* of the latents' norm */
};

/* The router of one token, see persistent_experts_route.cuh. */
struct expert_route {
    const void *const *weights; /* device [n_layers], each [n_experts][hidden] */
    unsigned long long *sums;   /* see route_sum_at */
    int n_shares;               /* that each is made of */
    int at;                     /* offset in shared memory */
};

/* Features of a kernel, which has no more than it needs, as they cost registers: softmax routers in every layer; also
 * sigmoid routers, groups, shared experts, layers without experts; latent attention, too. */
enum expert_scope { SCOPE_PLAIN, SCOPE_FULL, SCOPE_LATENT };

/* product[2] and product[3] of the chain are one expert's: `ffn` results of hidden columns, hidden results of ffn
 * columns. Their maps are of the matrices of all held experts. */
struct expert_args : chain_args {
    struct chain_product router;
    const struct expert_layer *more; /* device [n_layers] */
    enum dtype router_bias_type;
    int more_at;                    /* offset of the same in shared memory */
    const CUtensorMap *router_maps; /* device [n_layers][BOX_SIZES] */
    struct routing how;
    struct expert_codes codes;
    struct expert_common common[COMMON_MLPS];
    const CUtensorMap *common_maps;   /* device [n_layers][2][BOX_SIZES], of first and second products */
    unsigned long long *common_words; /* activations: [NARROW_TOKENS][columns / 2] */
    int gates;                        /* offset in shared memory: float [CHAIN_WARPS][n_tokens], parts of x . gate */
    int first_held, n_held;
    int pair_pitch;                  /* elements of a pair's activations in shared memory */
    int choice;                      /* offset of expert_choice in shared memory */
    unsigned long long *pairs;       /* words [NARROW_TOKENS n_chosen][ffn / 2], instead of `activated` */
    unsigned long long *logit_words; /* [NARROW_TOKENS][expert_logits_pitch], floats */
    struct expert_latents latents;
    struct expert_route route;
    int keys; /* offset of choice_keys from expert_choice */
};

__device__ static inline int expert_pairs(const expert_args &a)
{
    return a.n_tokens * a.how.n_chosen;
}

__device__ static inline const expert_layer &expert_layer_of(const expert_args &a, const chain_shared &sh, int layer)
{
    return sh.at<expert_layer>(a.more_at)[layer];
}

/* Gates and ups alternate in the first product's weights: result j has rows 2 j and 2 j + 1. */
__device__ static inline bool expert_in_turns(const expert_args &a)
{
    return a.activation == ACTIVATION_SWIGLU;
}

#endif
