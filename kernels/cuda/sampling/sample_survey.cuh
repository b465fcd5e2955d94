/* kernels/cuda/sampling/sample_survey.cuh - scans a row of logits for its best ones and the sum of all exponentials. By
 * one block, or by a cluster of blocks that divide the row. */
#ifndef SAMPLING_SAMPLE_SURVEY_CUH
#define SAMPLING_SAMPLE_SURVEY_CUH

#include "kernels/cuda/device.cuh"

#include <cooperative_groups.h>
#include <float.h>
#include <math.h>

#define SAMPLE_THREADS 1024 /* of a block */
#define SAMPLE_WARPS   32

/* The largest number and the lowest id that has it; NaN is never the largest. */
struct best {
    float x;
    int id;
};

__device__ static struct best better(struct best a, struct best b)
{
    if (a.id < 0 || b.id < 0)
        return a.id < 0 ? b : a;
    if (isnan(a.x) != isnan(b.x))
        return isnan(a.x) ? b : a;
    if (a.x < b.x || (!(a.x > b.x) && b.id < a.id))
        return b;
    return a;
}

__device__ static struct best block_best(struct best a)
{
    __shared__ struct best part[SAMPLE_WARPS];
    for (int round = 0; round < 2; round++) {
        for (int d = 16; d > 0; d /= 2) {
            struct best other = {__shfl_xor_sync(0xffffffffu, a.x, d), __shfl_xor_sync(0xffffffffu, a.id, d)};
            a = better(a, other);
        }
        if (round == 1)
            break;
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = a;
        __syncthreads();
        a = part[threadIdx.x % 32];
    }
    __syncthreads();
    return a;
}

__device__ static struct best argmax(const float *x, int n)
{
    struct best a = {0, -1};
    for (int i = threadIdx.x; i < n; i += SAMPLE_THREADS)
        a = better(a, best{x[i], i});
    a = block_best(a);
    return a.id < 0 ? best{0, 0} : a;
}

/* Updates *best, and *sum, which is relative to it, by N more numbers with ids from `first` on. */
template <typename T, int N>
__device__ static void take_in(struct best *best, float *sum, const vec<T, N> &v, int first)
{
    struct best top = *best;
    for (int k = 0; k < N; k++) {
        float f = to_float(v.e[k]);
        if (f > top.x || (f == top.x && top.id < 0))
            top = {f, first + k};
    }
    float more = 0;
    for (int k = 0; k < N; k++)
        more += expf(to_float(v.e[k]) - top.x);
    *sum = *sum * expf(best->x - top.x) + more;
    *best = top;
}

/* A block's share of a row: its best logit (id -1: none above -inf), the best one that the row's mask allows, and the
 * sum of all exponentials relative to the best. */
struct block_share {
    struct best best, allowed;
    double sum;
};

/* Is the token's bit set? mask NULL: all are allowed. */
__device__ static bool allows(const uint32_t *mask, int id)
{
    return mask == NULL || (mask[id / 32] >> id % 32 & 1) != 0;
}

/* The best among N numbers whose bit is set; N divides 32 and `first`. */
template <typename T, int N>
__device__ static void take_allowed(struct best *best, const vec<T, N> &v, int first, const uint32_t *mask)
{
    uint32_t bits = mask[first / 32] >> first % 32;
    for (int k = 0; k < N; k++) {
        float f = to_float(v.e[k]);
        if ((bits >> k & 1) != 0 && (f > best->x || (f == best->x && best->id < 0)))
            *best = {f, first + k};
    }
}

/* The share of block `part` of C, in one pass; a thread's sum is relative to the best it has seen (online softmax). The
 * exponentials are float: only a reported log-probability depends on them. */
template <typename T, int N, int C, bool MASKED>
__device__ static struct block_share survey(const T *x, int n, int part, const uint32_t *mask)
{
    const int AHEAD = 4, STEP = C * SAMPLE_THREADS * N; /* AHEAD: loads in flight */
    struct best a = {-FLT_MAX, -1}, allowed = a;        /* the best of no logits: keeps the differences below finite */
    float sum = 0;
    for (int i = (part * SAMPLE_THREADS + (int)threadIdx.x) * N; i < n; i += AHEAD * STEP) {
        vec<T, N> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + j * STEP < n)
                v[j] = *(const vec<T, N> *)(x + i + j * STEP);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + j * STEP < n) {
                take_in<T, N>(&a, &sum, v[j], i + j * STEP);
                if constexpr (MASKED)
                    take_allowed<T, N>(&allowed, v[j], i + j * STEP, mask);
            }
    }
    struct best top = block_best(a), kept = MASKED ? block_best(allowed) : top;
    return block_share{top, kept, block_sum((double)(sum * expf(a.x - top.x)))};
}

/* By vectors where the row is aligned for them. */
template <typename T, int C, bool MASKED>
__device__ static struct block_share survey_part(const T *logits, int vocab, int part, const uint32_t *mask)
{
    const int WIDE = 16 / sizeof(T);
    bool wide = vocab % WIDE == 0 && (size_t)logits % 16 == 0;
    return wide ? survey<T, WIDE, C, MASKED>(logits, vocab, part, mask)
                : survey<T, 1, C, MASKED>(logits, vocab, part, mask);
}

/* A row: its best logit, the best one that its mask allows (id -1: there is none), and log sum exp of all, which is not
 * finite if one of them is NaN or +inf, or if all are -inf. */
struct survey_result {
    struct best best, allowed;
    double norm;
};

/* mask: of the row; NULL: it has none. The blocks of a cluster divide the row, exchange their shares, and all get the
 * result. */
template <typename T, int C>
__device__ static struct survey_result survey_row(const T *logits, int vocab, const uint32_t *mask)
{
    int part = C > 1 ? (int)blockIdx.x % C : 0;
    struct block_share row = mask != NULL ? survey_part<T, C, true>(logits, vocab, part, mask)
                                          : survey_part<T, C, false>(logits, vocab, part, mask);
#if __CUDA_ARCH__ >= 900
    if constexpr (C > 1) {
        __shared__ struct block_share all[C];
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        cluster.sync(); /* all have begun */
        if (threadIdx.x < C)
            *cluster.map_shared_rank(&all[part], threadIdx.x) = row;
        cluster.sync();
        row = all[0];
        for (int k = 1; k < C; k++) {
            struct best top = better(row.best, all[k].best);
            row.sum = row.sum * exp((double)row.best.x - top.x) + all[k].sum * exp((double)all[k].best.x - top.x);
            row.best = top;
            row.allowed = better(row.allowed, all[k].allowed);
        }
    }
#endif
    if (row.best.id < 0)
        row.best = best{0, 0};
    return survey_result{row.best, row.allowed, row.best.x + log(row.sum)};
}

/* The n_top best logits, best first: each is the best of those that come after the one before. */
template <typename T>
__device__ static void best_tokens(struct sampled *out, const T *logits, int vocab, int n_top, double norm)
{
    struct best last = {INFINITY, -1};
    for (int k = 0; k < n_top; k++) {
        struct best a = {0, -1};
        for (int i = threadIdx.x; i < vocab && k < vocab; i += SAMPLE_THREADS) {
            float x = to_float(logits[i]);
            if (k == 0 || x < last.x || (x == last.x && i > last.id))
                a = better(a, best{x, i});
        }
        last = block_best(a);
        if (threadIdx.x == 0) {
            out->top_id[k] = k < vocab ? last.id : -1; /* a vocabulary smaller than n_top */
            out->top_logprob[k] = k < vocab ? (float)(last.x - norm) : -INFINITY;
        }
    }
}

#endif
