/* kernels/cuda/products/expert_runs.cuh - the pairs of an expert in runs of up to NT, and the tiles of all runs, which
 * are numbered through: blocks deal in ranges of these numbers. */
#ifndef PRODUCTS_EXPERT_RUNS_CUH
#define PRODUCTS_EXPERT_RUNS_CUH

#include "kernels/cuda/products/experts.cuh"

/* Tokens of one expert. */
struct expert_run {
    int expert, begin, n_tokens; /* in the pairs by expert */
    int first, n;                /* the block's tiles of this run: from `first` on */
};

/* In shared memory. */
struct expert_counts {
    int32_t begin[ROUTING_MAX_EXPERTS + 1];  /* of each expert's pairs */
    int32_t before[ROUTING_MAX_EXPERTS + 1]; /* runs of tokens of lower experts */
};

/* Called by THREADS threads. begin: of the first of n_held experts' pairs */
template <int THREADS>
__device__ static inline void load_begins(expert_counts *sh, const int32_t *begin, int n_held)
{
    for (int e = threadIdx.x; e <= n_held; e += THREADS)
        sh->begin[e] = begin[e];
}

/* Called by one warp, when these are there; returns the number of all runs. */
template <int NT>
__device__ static inline int scan_runs(expert_counts *sh, int n_held)
{
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int e0 = 0; e0 <= n_held; e0 += 32) {
        int e = e0 + lane, runs = e < n_held ? (sh->begin[e + 1] - sh->begin[e] + NT - 1) / NT : 0;
        int sum = runs;
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, d);
            sum += lane >= d ? other : 0;
        }
        if (e <= n_held)
            sh->before[e] = before + sum - runs;
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    __syncwarp();
    return before;
}

/* Called by all threads of a block of THREADS. begin: of the first of n_held experts' pairs */
template <int NT, int THREADS>
__device__ static inline void count_runs(expert_counts *sh, const int32_t *begin, int n_held)
{
    load_begins<THREADS>(sh, begin, n_held);
    __syncthreads();
    if (threadIdx.x < 32)
        scan_runs<NT>(sh, n_held);
    __syncthreads();
}

/* Run i of expert e, and its tiles from `first` up to `end`. n_tiles: of a run */
__device__ static inline expert_run run_of_expert(const expert_counts *sh, int e, int i, int n_tiles, int first,
                                                  int end)
{
    int all = sh->begin[e + 1] - sh->begin[e], runs = sh->before[e + 1] - sh->before[e];
    int width = ((all + runs - 1) / runs + 7) / 8 * 8, from = sh->begin[e] + i * width;
    return expert_run{e, from, min(width, sh->begin[e + 1] - from), first, min(end, n_tiles) - first};
}

/* The run of tile i, up to tile `end`. n_tiles: of a run */
__device__ static inline expert_run find_run(const expert_counts *sh, int n_held, int n_tiles, int i, int end)
{
    int at = i / n_tiles, low = 0, high = n_held; /* before[low] <= at < before[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (sh->before[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return run_of_expert(sh, low, at - sh->before[low], n_tiles, i % n_tiles, end - at * n_tiles);
}

#endif
