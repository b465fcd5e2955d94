/* kernels/cuda/prefixes.cu - finds sequences that begin with the same KV blocks: one block of the grid, one thread for
 * each of the batch's first tokens. */
#include "kernels/cuda/tensor.cuh"

#include <limits.h>

struct prefix_args {
    struct prefixes *to;
    const int32_t *slot, *pos, *block_table;
    int n, blocks_per_slot;
};

/* The number of token t's blocks to which no step writes any more; 0: it belongs to no sequence. */
__device__ static inline int full_blocks(const prefix_args &a, int t)
{
    return a.slot[t] >= 0 && a.pos[t] >= 0 ? min(a.pos[t] / KV_BLOCK_TOKENS, a.blocks_per_slot) : 0;
}

/* The number of first blocks that tokens t and u have in common. */
__device__ static inline int same_blocks(const prefix_args &a, int t, int u)
{
    const int AT_ONCE = 8;
    int most = min(full_blocks(a, t), full_blocks(a, u)), n = 0;
    if (most == 0)
        return 0;
    const int32_t *x = a.block_table + (ptrdiff_t)a.slot[t] * a.blocks_per_slot;
    const int32_t *y = a.block_table + (ptrdiff_t)a.slot[u] * a.blocks_per_slot;
    for (bool same = true; same && n < most;) {
        int32_t own[AT_ONCE], other[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            own[i] = x[min(n + i, most - 1)];
            other[i] = y[min(n + i, most - 1)];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            same = same && n < most && own[i] >= 0 && own[i] == other[i];
            n += same;
        }
    }
    return n;
}

/* The number of threads before this one for which it is true, and in *all that of the block. room: [33] */
__device__ static inline int count_before(bool yes, int *room, int *all)
{
    unsigned bits = __ballot_sync(0xffffffffu, yes);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (lane == 0)
        room[warp] = __popc(bits);
    __syncthreads();
    int before = 0, sum = 0;
    for (int w = 0; w < PREFIX_TOKENS / 32; w++) {
        before += w < warp ? room[w] : 0;
        sum += room[w];
    }
    __syncthreads();
    *all = sum;
    return before + __popc(bits & ((1u << lane) - 1));
}

static __global__ void __launch_bounds__(PREFIX_TOKENS) find_prefixes_kernel(prefix_args a)
{
    __shared__ int same[PREFIX_TOKENS], room[PREFIX_TOKENS / 32], lead;
    __shared__ unsigned long long best; /* (members - 1) blocks, then blocks */
    int t = (int)threadIdx.x, place = -1, prefix_of = -1, n_prefixes = 0, n_members = 0;
    bool free = t < a.n;
    a.to->member[t] = -1;
    for (int round = 0; round < PREFIX_COUNT; round++) {
        __syncthreads();
        if (t == 0) {
            lead = INT_MAX;
            best = 0;
        }
        __syncthreads();
        if (free)
            atomicMin(&lead, t);
        __syncthreads();
        if (lead == INT_MAX)
            break;
        same[t] = free ? same_blocks(a, lead, t) : 0;
        __syncthreads();
        int own = same[t], count = 0;
        for (int u = 0; u < a.n && own >= PREFIX_BLOCKS; u++)
            count += same[u] >= own;
        if (count >= PREFIX_MEMBERS)
            atomicMax(&best, (unsigned long long)(count - 1) * (unsigned)own << 32 | (unsigned)own);
        __syncthreads();
        int n_blocks = (int)(unsigned)best, n_new;
        bool joins = n_blocks > 0 && own >= n_blocks;
        int before = count_before(joins, room, &n_new);
        if (joins) {
            place = n_members + before;
            prefix_of = n_prefixes;
            a.to->member[place] = t;
        }
        if (t == 0 && n_blocks > 0)
            a.to->prefix[n_prefixes] = {n_members, n_new, n_blocks};
        n_members += n_new;
        n_prefixes += n_blocks > 0;
        free = free && !joins && t != lead;
    }
    a.to->place[t] = place;
    a.to->prefix_of[t] = prefix_of;
    if (t == 0)
        a.to->n_prefixes = n_prefixes;
    for (int i = n_prefixes + t; i < PREFIX_COUNT; i += PREFIX_TOKENS)
        a.to->prefix[i] = {0, 0, 0};
}

extern "C" void cuda_find_prefixes(struct queue *q, struct prefixes *p, const struct batch *batch)
{
    nvtx_range range("find_prefixes");
    prefix_args a = {};
    a.to = p;
    a.slot = batch->slot;
    a.pos = batch->pos;
    a.block_table = batch->block_table;
    a.n = batch->n_alone < PREFIX_TOKENS ? batch->n_alone : PREFIX_TOKENS;
    a.blocks_per_slot = batch->blocks_per_slot;
    launch(q, find_prefixes_kernel, dim3(1), dim3(PREFIX_TOKENS), 0, a);
}
