/* kernels/cuda/attention/attention_prefill.cuh - attention of tokens that have neighbours of their own sequence in the
 * batch, for devices and heads that attention_prompts.cuh does not support. A block takes PREFILL_TOKENS neighbouring
 * tokens and one head, and processes the runs of one sequence among them one after the other, each with all its visible
 * keys. Tokens without such neighbours are left to attention_many.cuh. */
#ifndef ATTENTION_ATTENTION_PREFILL_CUH
#define ATTENTION_ATTENTION_PREFILL_CUH

#include "kernels/cuda/attention/attention_tile.cuh"

#include <limits.h>

#define PREFILL_TOKENS (16 * ATTENTION_WARPS)

/* Shared memory: keys and values twice, then the queries of wide heads. BLOCKS: of the cache, worked on at a time. */
template <typename T, int HD>
struct prefill_shared {
    static const int BLOCKS = HD <= 128 ? 4 : 2, BLOCK = KV_BLOCK_TOKENS * attention_tile<HD>::pitch;
    T k[2][BLOCKS * BLOCK], v[2][BLOCKS * BLOCK];
    uint4 query[ATTENTION_WARPS][attention_query<T, HD>::shared_bytes / 16 + 1];
    unsigned char present[2][BLOCKS];
};

/* The keys needed by a run of tokens of one sequence: tokens [t0 + begin, t0 + end). */
struct prefill_run {
    int t0, begin, end, head, kv;
    const int32_t *table; /* of the slot */
    attention_range seen; /* seen by any of them */
};

/* Starts the copies of the blocks from key0 on; the warps divide keys and values among them. */
template <typename T, int HD, typename C>
__device__ static inline void fetch_keys(prefill_shared<T, HD> *sh, int stage, const attention_args<T, C> &a,
                                         const prefill_run &run, int key0)
{
    const int BLOCKS = prefill_shared<T, HD>::BLOCKS, BLOCK = prefill_shared<T, HD>::BLOCK;
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS / ATTENTION_WARPS; i++) {
        int which = threadIdx.x / 32 + i * ATTENTION_WARPS, b = which % BLOCKS, at = key0 + b * KV_BLOCK_TOKENS;
        bool wanted = at <= run.seen.last && at + KV_BLOCK_TOKENS > run.seen.first;
        int id = wanted ? run.table[at / KV_BLOCK_TOKENS] : -1;
        copy_block<T, HD>((which < BLOCKS ? sh->k : sh->v)[stage] + b * BLOCK, which < BLOCKS ? a.k_cache : a.v_cache,
                          a, id, run.kv, at, run.seen);
        if (which < BLOCKS && threadIdx.x % 32 == 0)
            sh->present[stage][b] = id >= 0;
    }
    async_commit();
}

/* slot, pos: of the block's tokens, in shared memory */
template <typename T, int HD, typename C>
__device__ static inline void attend_run(prefill_shared<T, HD> *sh, const attention_args<T, C> &a,
                                         const prefill_run &run, const int *slot, const int *pos)
{
    const int BLOCKS = prefill_shared<T, HD>::BLOCKS, STEP = BLOCKS * KV_BLOCK_TOKENS;
    int warp = threadIdx.x / 32, row0 = warp * 16 + threadIdx.x % 32 / 4;
    attention_sums<T, HD> sums;
    attention_query<T, HD> query;
    query.shared = sh->query[warp] + threadIdx.x % 32;
    sums.clear();
    sums.cap = a.heads.cap * ATTENTION_LOG2_E;
    const T *q[2] = {NULL, NULL};
    int all_first = 0, any_first = INT_MAX, all_last = INT_MAX, any_last = -1; /* keys that all rows see, keys that
                                                                                  any row sees */
    for (int i = 0; i < 2; i++) {
        int row = row0 + i * 8;
        sums.first[i] = 0;
        sums.last[i] = -1;
        sums.slope[i] = a.heads.alibi_slopes ? a.heads.alibi_slopes[run.head] * ATTENTION_LOG2_E : 0.0f;
        if (row < run.begin || row >= run.end)
            continue;
        attention_range r = visible(a, slot[row], pos[row]);
        q[i] = query_row(a, run.t0 + row, run.head);
        sums.first[i] = r.first;
        sums.last[i] = r.last;
        all_first = max(all_first, r.first);
        any_first = min(any_first, r.first);
        all_last = min(all_last, r.last);
        any_last = max(any_last, r.last);
    }
    all_first = __reduce_max_sync(0xffffffffu, all_first);
    any_first = __reduce_min_sync(0xffffffffu, any_first);
    all_last = __reduce_min_sync(0xffffffffu, all_last);
    any_last = __reduce_max_sync(0xffffffffu, any_last);
    query.load(q[0], q[1], a.heads.head_dim);
    int begin = run.seen.first / STEP * STEP, stage = 0;
    __syncthreads(); /* the previous run no longer uses shared memory */
    if (begin <= run.seen.last)
        fetch_keys(sh, 0, a, run, begin);
    for (int key0 = begin; key0 <= run.seen.last; key0 += STEP, stage ^= 1) {
        async_wait<0>();
        __syncthreads(); /* this step's keys have arrived, and no warp reads the previous ones */
        if (key0 + STEP <= run.seen.last)
            fetch_keys(sh, stage ^ 1, a, run, key0 + STEP);
        unsigned present = 0;
        for (int b = 0; b < BLOCKS; b++)
            present |= (unsigned)sh->present[stage][b] << b;
        bool whole = key0 >= all_first && key0 + STEP - 1 <= all_last && present == (1u << BLOCKS) - 1;
        if (key0 <= any_last && key0 + STEP > any_first)
            sums.template attend<BLOCKS>(query, sh->k[stage], sh->v[stage], key0, !whole, present,
                                         key_scale(a, run.kv) * ATTENTION_LOG2_E);
    }
    sums.finish(value_scale(a, run.kv));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!q[i])
            continue;
        sums.sum[i] += sink_weight(a, run.head, sums.last[i], sums.best[i]);
        sums.store(i, a.out + ((size_t)(run.t0 + row0 + i * 8) * a.heads.n_heads + run.head) * a.heads.head_dim,
                   a.heads.head_dim);
    }
}

/* grid: windows of tokens not known to be single, n_heads */
template <typename T, int HD, typename C>
__global__ void __launch_bounds__(ATTENTION_WARPS * 32, HD <= 128 ? 3 : 2) attention_prefill(attention_args<T, C> a)
{
    extern __shared__ uint4 shared[];
    prefill_shared<T, HD> *sh = (prefill_shared<T, HD> *)shared;
    __shared__ int slot_around[PREFILL_TOKENS + 2], pos[PREFILL_TOKENS];
    int *slot = slot_around + 1;
    wait_for_previous();
    prefill_run run;
    run.t0 = a.n_alone + (int)(gridDim.x - 1 - blockIdx.x) * PREFILL_TOKENS; /* the longest work first */
    run.head = (int)blockIdx.y;
    run.kv = (a.heads.first_head + run.head) / a.heads.heads_per_kv - a.heads.first_kv_head;
    int n = min(PREFILL_TOKENS, a.n_tokens - run.t0);
    for (int i = (int)threadIdx.x - 1; i <= n; i += ATTENTION_WARPS * 32) {
        int t = run.t0 + i;
        slot[i] = t >= 0 && t < a.n_tokens ? a.slot[t] : INT_MIN;
        if (i >= 0 && i < n)
            pos[i] = a.pos[t];
    }
    __syncthreads();
    int low = threadIdx.x % 32, high = low + 32; /* every warp searches all tokens for the beginning of another slot */
    uint64_t starts = __ballot_sync(0xffffffffu, low < n && slot[low] != slot[low - 1]) |
                      (uint64_t)__ballot_sync(0xffffffffu, high < n && slot[high] != slot[high - 1]) << 32;
    for (run.begin = 0; run.begin < n; run.begin = run.end) {
        uint64_t later = run.begin + 1 < PREFILL_TOKENS ? starts >> (run.begin + 1) : 0;
        run.end = later ? run.begin + __ffsll((long long)later) : n;
        int own = slot[run.begin], first = INT_MAX, last = -1;
        for (int i = low; i < n; i += 32)
            if (i >= run.begin && i < run.end) {
                attention_range r = visible(a, own, pos[i]);
                first = min(first, r.first);
                last = max(last, r.last);
            }
        run.seen.first = __reduce_min_sync(0xffffffffu, first);
        run.seen.last = __reduce_max_sync(0xffffffffu, last);
        if (run.end - run.begin == 1 && slot[run.begin - 1] != own && slot[run.end] != own)
            continue;
        run.table = a.block_table + (ptrdiff_t)own * a.blocks_per_slot;
        attend_run(sh, a, run, slot, pos);
    }
}

#endif
