/* kernels/cuda/step/persistent_latent_tables.cuh - latent attention in the persistent kernel (persistent_latent.cuh):
 * its sizes, its weights of each layer, and their prefetch to L2. */
#ifndef STEP_PERSISTENT_LATENT_TABLES_CUH
#define STEP_PERSISTENT_LATENT_TABLES_CUH

#include "kernels/cuda/step/persistent_choice.cuh"

/* Sizes in elements: a latent; the rotated part of a key and of a query; the rest of a head's query; its value. */
#define LATENT_RANK   512
#define LATENT_TURNED 64
#define LATENT_KEY    128
#define LATENT_VALUE  128
#define LATENT_CACHED (LATENT_RANK + LATENT_TURNED)
#define LATENT_QUERY  (LATENT_KEY + LATENT_TURNED)

struct latent_layer {
    const void *norm;              /* [LATENT_RANK] */
    const void *key_up, *value_up; /* [n_heads][LATENT_RANK][LATENT_KEY], [n_heads][LATENT_VALUE][LATENT_RANK] */
};

/* In shared memory, followed by the layers. */
struct latent_tables {
    struct chain_share share; /* the block's, of the product that makes latents */
};

__device__ static inline latent_tables *latent_tables_of(const expert_args &a, const chain_shared &sh)
{
    return sh.at<latent_tables>(a.latents.at);
}

__device__ static inline latent_layer *latent_layers(const expert_args &a, const chain_shared &sh)
{
    return (latent_layer *)(latent_tables_of(a, sh) + 1);
}

static inline int latent_tables_bytes(int n_layers)
{
    return (int)sizeof(struct latent_tables) + n_layers * (int)sizeof(struct latent_layer);
}
static_assert(sizeof(struct latent_tables) % alignof(struct latent_layer) == 0, "the layers follow the tables");

/* Called by all threads of the block, before a barrier. */
__device__ static inline void latent_open_tables(const expert_args &a, const chain_shared &sh)
{
    for (int i = threadIdx.x; i < a.n_layers; i += CHAIN_THREADS + STREAM_THREADS)
        latent_layers(a, sh)[i] = a.latents.layers[i];
    if (threadIdx.x == 0)
        latent_tables_of(a, sh)->share = chain_make_share(a.latents.product, (int)blockIdx.x, (int)gridDim.x);
}

/* Prefetches the map of the layer's latents. */
__device__ static inline void latent_announce(const expert_args &a, const chain_shared &sh, int layer)
{
    const chain_share &share = latent_tables_of(a, sh)->share;
    if (layer < a.n_layers && share.n_tiles > 0)
        box_map_prefetch(a.latents.maps + layer * BOX_SIZES + chain_tile_rows(share, 0) / 2 - 1);
}

/* Prefetches this block's share of the layer's head matrices, which the blocks with attention items read whole. */
__device__ static inline void latent_prefetch_weights(const expert_args &a, const chain_shared &sh, int layer)
{
    static_assert(LATENT_KEY == LATENT_VALUE, "the matrices are of one size");
    const latent_layer &l = latent_layers(a, sh)[layer];
    unsigned lines = (unsigned)a.n_heads * (LATENT_KEY * LATENT_RANK * 2 / 128);
    unsigned begin = lines * blockIdx.x / gridDim.x * 128, end = lines * (blockIdx.x + 1) / gridDim.x * 128;
    if (end == begin)
        return;
    bulk_prefetch((const char *)l.key_up + begin, end - begin);
    bulk_prefetch((const char *)l.value_up + begin, end - begin);
}

#endif
