/* kernels/cuda/step/persistent_choice_tables.cuh - the router's choice in shared memory, its arrays, and the tiles of
 * the first product that follow from it. */
#ifndef STEP_PERSISTENT_CHOICE_TABLES_CUH
#define STEP_PERSISTENT_CHOICE_TABLES_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/step/persistent_experts_args.cuh"

/* The block's tiles of the experts' first product. Results are counted through the chosen experts. */
struct expert_tiles {
    int at, end;   /* results */
    int i, row, n; /* of the i-th chosen expert results [row, row + n), n even */

    /* n_chosen: experts that some token has */
    __device__ void open(const expert_args &a, int n_chosen)
    {
        unsigned ffn = a.product[2].rows, pairs = n_chosen * (ffn / 2);
        at = (int)(pairs * blockIdx.x / gridDim.x) * 2;
        end = (int)(pairs * (blockIdx.x + 1) / gridDim.x) * 2;
        i = (int)((unsigned)at / ffn);
        row = at - i * (int)ffn;
        cut((int)ffn);
    }
    __device__ void cut(int ffn)
    {
        n = min(min(CHAIN_OCTET, end - at), ffn - row);
    }
    __device__ bool done() const
    {
        return at >= end;
    }
    __device__ void next(const expert_args &a)
    {
        at += n;
        row += n;
        if (row == a.product[2].rows) {
            row = 0;
            i++;
        }
        cut(a.product[2].rows);
    }
};

/* The router's choice for the step's tokens. Pair p = token * n_chosen + i is a token and its i-th expert. In shared
 * memory: written between barriers of the computing warps, read by the loading thread, too. Its arrays follow it. */
struct alignas(16) expert_choice {
    unsigned long long made;                /* barrier: one phase per layer, which ends when the choice is made */
    unsigned long long told[2], read[2];    /* barriers: see expert_first_apart */
    struct chain_share router;              /* the block's share of the router */
    struct chain_share common[COMMON_MLPS]; /* and of the shared MLPs' first products */
    struct expert_tiles first;              /* where its tiles of the experts' first product begin */
    uint32_t taken[EXPERT_MAX / 32];        /* one bit per held expert: some token has it */
    int n;                                  /* held experts that some token has */
    unsigned long long firsts;              /* barrier: a phase per layer, which ends when nobody reads the first
                                               products' input any more */
    uint32_t handed[HAND_WARPS];            /* see expert_mark */

    /* Makes the (empty) choice of a layer without experts. Called by one thread. */
    __device__ void make_none(void)
    {
        n = 0;
        first.at = first.end = 0;
        barrier_arrive(shared_address(&made));
    }
};

__device__ static inline expert_choice *expert_choice_of(const expert_args &a, const chain_shared &sh)
{
    return sh.at<expert_choice>(a.choice);
}

/* Pitch of a token's logits, in floats and words: four lanes split whole vectors of them. */
__host__ __device__ static inline int expert_logits_pitch(int n_experts)
{
    return (n_experts + 15) / 16 * 16;
}

/* [n_tokens][expert_logits_pitch] keys by which experts are chosen, larger first; 0 where there is no expert. They and
 * the logits are in memory of their own or, in steps of several tokens of expert_plain, behind the first product's
 * input. */
__device__ static inline uint32_t *choice_keys(const expert_args &a, const expert_choice *c)
{
    return CHAIN_LONE ? (uint32_t *)(c + 1) : (uint32_t *)((char *)c + a.keys);
}

/* [n_tokens][expert_logits_pitch] */
__device__ static inline float *choice_logits(const expert_args &a, const expert_choice *c)
{
    return (float *)(choice_keys(a, c) + a.n_tokens * expert_logits_pitch(a.how.n_experts));
}

/* [pairs][NARROW_TOKENS]: the pair of the i-th used expert and a token; -1: none */
__device__ static inline int16_t *choice_pair(const expert_args &a, const expert_choice *c)
{
    return CHAIN_LONE ? (int16_t *)(choice_logits(a, c) + a.n_tokens * expert_logits_pitch(a.how.n_experts))
                      : (int16_t *)(c + 1);
}

/* [pairs] their numbers in order, from the first held one on */
__device__ static inline int32_t *choice_which(const expert_args &a, const expert_choice *c)
{
    return (int32_t *)(choice_pair(a, c) + expert_pairs(a) * NARROW_TOKENS);
}

/* [pairs] a pair's expert, and the weight of its result */
__device__ static inline int32_t *choice_expert(const expert_args &a, const expert_choice *c)
{
    return choice_which(a, c) + expert_pairs(a);
}
__device__ static inline float *choice_share(const expert_args &a, const expert_choice *c)
{
    return (float *)(choice_expert(a, c) + expert_pairs(a));
}

/* Offset of the shared MLP's activations after the pairs' in shared memory, in elements. */
__device__ static inline int expert_common_at(const expert_args &a, const expert_layer &more)
{
    return more.routed ? expert_pairs(a) * a.pair_pitch : 0;
}

/* [pairs] If not all pairs' activations fit: their numbers in order of teams, experts and tokens, held experts first;
 * and each one's position in that order. */
__device__ static inline int16_t *choice_order(const expert_args &a, const expert_choice *c)
{
    return (int16_t *)(choice_share(a, c) + expert_pairs(a));
}
__device__ static inline int16_t *choice_place(const expert_args &a, const expert_choice *c)
{
    return choice_order(a, c) + expert_pairs(a);
}

/* [pairs] For a held expert: EXPERT_MAX times its team, plus its index among the used experts. */
__device__ static inline int16_t *choice_team(const expert_args &a, const expert_choice *c)
{
    return choice_place(a, c) + expert_pairs(a);
}

/* Bytes of expert_choice with its arrays, but for keys and logits; of these. */
static inline int expert_choice_bytes(const struct routing &how, int n_tokens)
{
    int bytes = (int)sizeof(struct expert_choice) + n_tokens * how.n_chosen * (NARROW_TOKENS * 2 + 3 * 4 + 3 * 2);
    return (bytes + 127) / 128 * 128;
}
static inline int expert_keys_bytes(const struct routing &how, int n_tokens)
{
    return n_tokens * expert_logits_pitch(how.n_experts) * 8;
}

/* The offset in shared memory of a pair's activations: rows of tokens that are read together lie in different banks. */
__host__ __device__ static inline int expert_pair_pitch(int ffn)
{
    return ffn + EXPERT_COLUMNS / 2;
}

#endif
