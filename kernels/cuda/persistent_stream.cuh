/* kernels/cuda/persistent_stream.cuh - the weights' way through the persistent kernel: every warp keeps a ring of copies
 * under way, from the weights to its own piece of shared memory. The ring runs through all products of all layers without
 * a pause, also while the block waits for activations.
 *
 * The copies are the tensor memory accelerator's. Copies by the threads (cp.async) share an ordered queue with all that the
 * multiprocessor reads from memory: words that were waited for came only after the weights asked for before them. */
#ifndef KERNELS_CUDA_PERSISTENT_STREAM_CUH
#define KERNELS_CUDA_PERSISTENT_STREAM_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/persistent_chain.cuh"

/* Where a lane finds its 16 bytes of part `part` of a row: boxes arrive with the parts of row r exchanged by part ^ r. Lanes
 * that read at once (two groups of 4) must meet different banks, so neighbouring groups read rows that are 4 apart. */
__device__ static inline int box_row(int group)
{
    return group / 2 + group % 2 * 4;
}

__device__ static inline int box_at(int row, int part)
{
    return row * 128 + (part ^ row) * 16;
}

/* A slot of a warp has two boxes, [CHAIN_UNIT][64] weights each. All is equal in all lanes of a warp. */
template <typename T, int SLOTS>
struct weight_ring {
    uint32_t memory, arrived; /* addresses of this warp's first slot, its first barrier */
    int slot, phase;          /* that is used next; how often the ring went round */
    /* where the next copy comes from */
    int product, tile; /* product: counted through all layers */
    int n_left;        /* steps of the tile */
    int column, row;
    int second; /* rows from the first box to the second; 0: there is none */

    __device__ __forceinline__ void open(const chain_args &a, const chain_shared &sh)
    {
        int warp = threadIdx.x / 32;
        if (shared_address(sh.base) % 1024 != 0)
            __trap();
        memory = shared_address(sh.base) + warp * STEP_BYTES;
        arrived = shared_address(sh.base + a.at.arrived) + warp * SLOTS * 8;
        if (threadIdx.x % 32 == 0)
            for (int i = 0; i < SLOTS; i++)
                arrival_open(arrived + i * 8);
        arrivals_opened();
        __syncwarp();
        slot = 0;
        phase = 0;
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
        if (product > a.n_layers * CHAIN_PRODUCTS)
            return;
        if (threadIdx.x == 0 && product < a.n_layers * CHAIN_PRODUCTS)
            box_map_prefetch(&a.maps[product + 1]);
        begin_tile(a, sh);
    }

    __device__ __forceinline__ void begin_tile(const chain_args &a, const chain_shared &sh)
    {
        int k = index_of(a, product);
        const chain_share &share = sh.share[k];
        bool gated = a.product[k].gated;
        row = share.begin + tile * (gated ? CHAIN_UNIT : CHAIN_ROWS);
        column = threadIdx.x / 32 * STEP_COLUMNS;
        second = gated ? a.product[k].rows : row + CHAIN_UNIT < share.end ? CHAIN_UNIT : 0;
        n_left = share.n_steps;
    }

    /* The next step's weights to slot `to`; past the head there is nothing left. */
    __device__ __forceinline__ void copy(const chain_args &a, const chain_shared &sh, int to)
    {
        if (product > a.n_layers * CHAIN_PRODUCTS)
            return;
        if (threadIdx.x % 32 == 0) {
            uint32_t into = memory + to * RING_SLOT_BYTES, barrier = arrived + to * 8;
            arrival_expect(barrier, second != 0 ? STEP_BYTES : STEP_BYTES / 2);
            box_copy(into, &a.maps[product], column, row, barrier);
            if (second != 0)
                box_copy(into + STEP_BYTES / 2, &a.maps[product], column, row + second, barrier);
        }
        column += CHAIN_WARPS * STEP_COLUMNS;
        if (--n_left > 0)
            return;
        if (++tile < sh.share[index_of(a, product)].n_tiles) {
            begin_tile(a, sh);
            return;
        }
        product++;
        begin_product(a, sh);
    }

    /* On to the next slot; the one just used is filled again. All lanes have what they read of it in registers. */
    __device__ __forceinline__ void advance(const chain_args &a, const chain_shared &sh)
    {
        shared_reads_done();
        __syncwarp();
        copy(a, sh, slot);
        if (++slot == SLOTS) {
            slot = 0;
            phase ^= 1;
        }
    }
};

/* One tile's products over this warp's columns, for up to 8 tokens: to the warp's part of `partial`. */
template <typename T, int SLOTS>
__device__ __forceinline__ static void chain_tile(weight_ring<T, SLOTS> &ring, const chain_args &a,
                                                  const chain_shared &sh, int n_steps, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane / 4, row = box_row(t);
    float sum[2][4] = {};
    bool mine = t < a.n_tokens;
    const T *input = sh.at<T>(a.at.input) + chain_input_at(warp, n_steps, 0, a.n_tokens, mine ? t : 0) + lane % 4 * 8;
    const char *boxes = sh.base + warp * STEP_BYTES;
    int at[2] = {box_at(row, lane % 4), box_at(row, lane % 4 + 4)};
    for (int step = 0; step < n_steps; step++) {
        uint4 x[2], w[2][2];
        const char *weights = boxes + ring.slot * RING_SLOT_BYTES;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            x[i] = *(const uint4 *)(input + i * a.n_tokens * 32);
            if (!mine)
                x[i] = make_uint4(0, 0, 0, 0);
        }
        arrival_wait(ring.arrived + ring.slot * 8, ring.phase);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            w[0][i] = *(const uint4 *)(weights + at[i]);
            w[1][i] = *(const uint4 *)(weights + STEP_BYTES / 2 + at[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                tensor_mma<T>(sum[r], x[i].x, 0, x[i].y, 0, w[r][i].x, w[r][i].y);
                tensor_mma<T>(sum[r], x[i].z, 0, x[i].w, 0, w[r][i].z, w[r][i].w);
            }
        ring.advance(a, sh);
        input += 2 * a.n_tokens * 32;
    }
    if (!mine)
        return;
    float *to = partial + (warp * a.n_tokens + t) * CHAIN_ROWS;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            to[r * CHAIN_UNIT + box_row(lane % 4 * 2 + i)] = sum[r][i];
}

#endif
