/* kernels/cuda/persistent_stream.cuh - the weights' way through the persistent kernel: every warp keeps a ring of copies
 * under way, from the weights to its own piece of shared memory. The ring runs through all products of all layers without
 * a pause, also while the block waits for activations. */
#ifndef KERNELS_CUDA_PERSISTENT_STREAM_CUH
#define KERNELS_CUDA_PERSISTENT_STREAM_CUH

#include "kernels/cuda/persistent_chain.cuh"

#include <limits.h>

#define STEP_COLUMNS    64 /* of a warp: 128 bytes of every row */
#define STEP_BYTES      (CHAIN_ROWS * 128)
#define RING_SLOT_BYTES (CHAIN_WARPS * STEP_BYTES)

/* A slot of a warp is [CHAIN_ROWS][8] units of 16 bytes; in odd rows the halves are swapped, so that lanes that read rows
 * g and g + 1 at once meet different banks. Copied are whole lines, 4 rows at a time, a row by 8 lanes.
 *
 * Everything here must end up in registers. */
template <typename T, int SLOTS>
struct weight_ring {
    char *memory; /* this warp's first slot */
    int slot;     /* that is used next */
    /* where the next copy comes from */
    int product, tile; /* product: counted through all layers */
    int n_left;        /* steps of the tile */
    int limit;         /* columns left to this lane */
    unsigned rows;     /* bit i: there is a row for this lane in copy i */
    int hop, second;   /* elements from the first 4 rows to the next, from the first group of rows to the second */
    const T *from;     /* this lane's part of the first row */

    __device__ __forceinline__ void open(const chain_args &a, const chain_shared &sh)
    {
        memory = sh.base + threadIdx.x / 32 * STEP_BYTES;
        slot = 0;
        product = 0;
        begin_product(a, sh);
        for (int i = 0; i < SLOTS; i++)
            copy(a, sh, i);
    }

    __device__ __forceinline__ static int index_of(const chain_args &a, int product)
    {
        return product == a.n_layers * CHAIN_PRODUCTS ? CHAIN_HEAD : product % CHAIN_PRODUCTS;
    }

    /* The next product that this block has a share in. */
    __device__ __forceinline__ void begin_product(const chain_args &a, const chain_shared &sh)
    {
        while (product <= a.n_layers * CHAIN_PRODUCTS && sh.share[index_of(a, product)].n_tiles == 0)
            product++;
        tile = 0;
        begin_tile(a, sh, 0);
    }

    /* Past the head there is nothing left: empty copies go on, so that their number stays what is waited for. */
    __device__ __forceinline__ void begin_tile(const chain_args &a, const chain_shared &sh, int step)
    {
        n_left = INT_MAX;
        rows = 0;
        if (product > a.n_layers * CHAIN_PRODUCTS)
            return;
        int k = index_of(a, product), lane = threadIdx.x % 32, cols = a.product[k].cols;
        const chain_share &share = sh.share[k];
        bool gated = a.product[k].gated;
        int row = share.begin + tile * (gated ? CHAIN_ROWS / 2 : CHAIN_ROWS) + lane / 8;
        int column = chain_column(threadIdx.x / 32, 2 * step) + lane % 8 * 8;
        for (int i = 0; i < 4; i++)
            rows |= (row + (gated ? i % 2 : i) * 4 < share.end ? 1u : 0u) << i;
        limit = cols - column;
        hop = 4 * cols;
        second = (gated ? a.product[k].rows : CHAIN_ROWS / 2) * cols;
        from = (const T *)sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS].w[k % CHAIN_PRODUCTS] +
               (size_t)row * cols + column;
        n_left = share.n_steps - step;
    }

    /* The lanes' part of the state again, out of what all have in common: so that it need not be kept, in registers that
     * others want, while nothing is copied. */
    __device__ __forceinline__ void resume(const chain_args &a, const chain_shared &sh)
    {
        if (product <= a.n_layers * CHAIN_PRODUCTS)
            begin_tile(a, sh, sh.share[index_of(a, product)].n_steps - n_left);
    }

    /* The next step's weights to slot `to`. */
    __device__ __forceinline__ void copy(const chain_args &a, const chain_shared &sh, int to)
    {
        int lane = threadIdx.x % 32;
        char *into = memory + to * RING_SLOT_BYTES + lane / 8 * 128 + (lane % 8 ^ lane / 8 % 2 * 4) * 16;
        unsigned wanted = limit > 0 ? rows : 0;
        async_copy(into, from, wanted & 1);
        async_copy(into + 512, from + hop, wanted & 2);
        async_copy(into + 1024, from + second, wanted & 4);
        async_copy(into + 1536, from + second + hop, wanted & 8);
        async_commit();
        from += CHAIN_WARPS * STEP_COLUMNS;
        limit -= CHAIN_WARPS * STEP_COLUMNS;
        if (--n_left > 0)
            return;
        if (++tile < sh.share[index_of(a, product)].n_tiles) {
            begin_tile(a, sh, 0);
            return;
        }
        product++;
        begin_product(a, sh);
    }
};

/* One tile's products over this warp's columns, for up to 8 tokens: to the warp's part of `partial`. A slot is filled again
 * as soon as its weights are in registers. */
template <typename T, int SLOTS>
__device__ __forceinline__ static void chain_tile(weight_ring<T, SLOTS> &ring, const chain_args &a,
                                                  const chain_shared &sh, int n_steps, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane / 4;
    float sum[2][4] = {};
    bool mine = t < a.n_tokens;
    const T *input = sh.at<T>(a.at.input) + chain_input_at(warp, n_steps, 0, a.n_tokens, mine ? t : 0) + lane % 4 * 8;
    int at[2] = {t * 128 + (t % 2 * 4 + lane % 4) * 16, t * 128 + ((t % 2 ^ 1) * 4 + lane % 4) * 16};
    for (int step = 0; step < n_steps; step++) {
        uint4 x[2], w[2][2];
        const char *weights = ring.memory + ring.slot * RING_SLOT_BYTES;
        async_wait<SLOTS - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            w[0][i] = *(const uint4 *)(weights + at[i]);
            w[1][i] = *(const uint4 *)(weights + 1024 + at[i]);
            x[i] = *(const uint4 *)(input + i * a.n_tokens * 32);
            if (!mine)
                x[i] = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
        ring.copy(a, sh, ring.slot);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                tensor_mma<T>(sum[r], x[i].x, 0, x[i].y, 0, w[r][i].x, w[r][i].y);
                tensor_mma<T>(sum[r], x[i].z, 0, x[i].w, 0, w[r][i].z, w[r][i].w);
            }
        ring.slot = ring.slot + 1 < SLOTS ? ring.slot + 1 : 0;
        input += 2 * a.n_tokens * 32;
    }
    if (!mine)
        return;
    float *to = partial + (warp * a.n_tokens + t) * CHAIN_ROWS + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++)
        *(float2 *)(to + r * 8) = make_float2(sum[r][0], sum[r][1]);
}

#endif
