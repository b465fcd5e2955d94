/* kernels/cuda/attention/attention_prompts_tiling.cuh - arranges a batch's tokens in tiles for attention_prompts.cuh,
 * those with the most keys first, so that all multiprocessors finish together. One block; each thread processes its
 * part of the tokens twice: to count tiles by their steps of keys, and to store them in order. */
#ifndef ATTENTION_ATTENTION_PROMPTS_TILING_CUH
#define ATTENTION_ATTENTION_PROMPTS_TILING_CUH

#include "kernels/cuda/tensor.cuh"

#define TILING_THREADS   1024
#define PROMPT_MAX_TILES (1 << 16)

/* Consecutive tokens [t0, t0 + n_tokens) of one sequence. */
struct prompt_tile {
    int t0, n_tokens;
};

/* The output of tile_prompts for the kernel; zeros at first. */
struct prompt_tiles {
    int n_tiles;
    unsigned n_taken; /* units */
    int kv_heads;     /* KV heads whose tiles are processed together: as many as fit into L2 with their keys */
    prompt_tile tile[PROMPT_MAX_TILES];
};

struct tiling_args {
    const int32_t *slot, *pos;
    int n_tokens, n_alone, tile_tokens, step, window;
    int n_kv_heads, l2_steps; /* l2_steps: steps of one KV head's keys and values that fit into L2 */
    bool singles;             /* tokens without a neighbour of their sequence have tiles, too */
};

/* Is token t the first of a run? So is the index after the last token. */
__device__ static inline bool begins_run(const tiling_args &a, int t)
{
    return t <= a.n_alone || t >= a.n_tokens || a.slot[t] != a.slot[t - 1] || a.pos[t] != a.pos[t - 1] + 1;
}

/* The number of steps of keys that tokens [t0, t] of a run see, from 1 to TILING_THREADS. */
__device__ static inline int steps_of(const tiling_args &a, int t0, int t)
{
    int first = a.window > 0 ? max(0, a.pos[t0] - a.window + 1) : 0;
    return min(max(a.pos[t] / a.step - first / a.step, 0), TILING_THREADS - 1) + 1;
}

/* Calls f(tile, TILING_THREADS - its steps, the steps of its run if it is the run's last, else 0) for all tiles that
 * end among tokens [t, end), end - t <= 32; starts: bit i is set if a run begins with token t + i, up to end; start:
 * the beginning of token t - 1's run. Without `singles`, tokens without a neighbour of their sequence are left to
 * attention_many.cuh. */
template <typename F>
__device__ static inline void for_tiles(const tiling_args &a, int t, int end, uint64_t starts, int start, F f)
{
    while (t < end) {
        if (starts & 1)
            start = t;
        int t0 = t - (t - start) % a.tile_tokens, run_end = t + __ffsll((long long)(starts >> 1 | (uint64_t)1 << 40));
        int last = min(t0 + a.tile_tokens, run_end) - 1;
        if (last >= end)
            return;
        bool run_ends = last + 1 == run_end, alone = !a.singles && run_ends && last == start &&
                                                     !(last > 0 && a.slot[last - 1] == a.slot[last]) &&
                                                     !(last + 1 < a.n_tokens && a.slot[last + 1] == a.slot[last]);
        if (!alone)
            f(prompt_tile{t0, last + 1 - t0}, TILING_THREADS - steps_of(a, t0, last),
              run_ends ? steps_of(a, start, last) : 0);
        starts >>= last + 1 - t;
        t = last + 1;
    }
}

/* Exclusive scan over the block's threads with `join`; `none` for the first. room: [33] */
template <typename F>
__device__ static inline int over_threads_before(int x, int none, int *room, F join)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    auto over_lanes = [&](int y) {
        for (int d = 1; d < 32; d *= 2) {
            int below = __shfl_up_sync(0xffffffffu, y, d);
            y = lane >= d ? join(y, below) : y;
        }
        return y;
    };
    x = over_lanes(x);
    if (lane == 31)
        room[warp + 1] = x;
    __syncthreads();
    if (warp == 0) {
        int y = over_lanes(room[lane + 1]);
        room[lane + 1] = y;
        if (lane == 0)
            room[0] = none;
    }
    __syncthreads();
    int before = __shfl_up_sync(0xffffffffu, x, 1);
    x = lane == 0 ? room[warp] : join(room[warp], before);
    __syncthreads();
    return x;
}

/* The number of heads per round, in equal rounds over n_heads, such that l2_steps suffice for n_steps of each; at least
 * 1. */
__device__ static inline int share_of_heads(int n_heads, int n_steps, int l2_steps)
{
    int at_once = min(max(l2_steps / max(n_steps, 1), 1), n_heads), n_turns = (n_heads + at_once - 1) / at_once;
    return (n_heads + n_turns - 1) / n_turns;
}

/* A thread of the tiling has 32 tokens, or a multiple of 32 if TILING_THREADS are too few for that. */
template <typename F>
__device__ static inline void for_own_tiles(const tiling_args &a, const unsigned *starts, int n_words, int share,
                                            int start, F f)
{
    for (int word = (int)threadIdx.x * share; word < min(n_words, ((int)threadIdx.x + 1) * share); word++) {
        int t = a.n_alone + word * 32;
        uint64_t bits = starts[word] | (uint64_t)(starts[word + 1] & 1) << 32;
        for_tiles(a, t, min(t + 32, a.n_tokens), bits, start, f);
        if (starts[word] != 0)
            start = t + 31 - __clz((int)starts[word]);
    }
}

static __global__ void __launch_bounds__(TILING_THREADS) tile_prompts(tiling_args a, prompt_tiles *tiles)
{
    __shared__ unsigned starts[PROMPT_MAX_TILES / 32 + 1];
    __shared__ int count[TILING_THREADS], room[33], n_steps;
    let_next_begin();
    int n_words = (a.n_tokens - a.n_alone + 31) / 32, share = (n_words + TILING_THREADS - 1) / TILING_THREADS,
        start = -1;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < (n_words + 1) * 32; i += TILING_THREADS) {
        unsigned bits = __ballot_sync(0xffffffffu, begins_run(a, a.n_alone + i));
        if (i % 32 == 0)
            starts[i / 32] = bits;
    }
    count[threadIdx.x] = n_steps = 0;
    __syncthreads();
    for (int word = (int)threadIdx.x * share; word < min(n_words, ((int)threadIdx.x + 1) * share); word++)
        if (starts[word] != 0)
            start = a.n_alone + word * 32 + 31 - __clz((int)starts[word]);
    start = over_threads_before(start, -1, room, [](int x, int y) { return max(x, y); });
    for_own_tiles(a, starts, n_words, share, start, [&](prompt_tile, int which, int n_keys) {
        atomicAdd(&count[which], 1);
        if (n_keys > 0)
            atomicAdd(&n_steps, n_keys);
    });
    __syncthreads();
    int own = count[threadIdx.x], before = over_threads_before(own, 0, room, [](int x, int y) { return x + y; });
    count[threadIdx.x] = before;
    if (threadIdx.x == TILING_THREADS - 1) {
        tiles->n_tiles = before + own;
        tiles->n_taken = 0;
        tiles->kv_heads = share_of_heads(a.n_kv_heads, n_steps, a.l2_steps);
    }
    __syncthreads();
    for_own_tiles(a, starts, n_words, share, start,
                  [&](prompt_tile tile, int which, int) { tiles->tile[atomicAdd(&count[which], 1)] = tile; });
    wait_for_previous(); /* so that "this kernel is done" implies "those before it are" */
}

#endif
