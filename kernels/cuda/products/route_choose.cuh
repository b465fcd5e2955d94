/* kernels/cuda/products/route_choose.cuh - chooses the best experts of one token, by one warp, which keeps the keys in
 * registers. */
#ifndef PRODUCTS_ROUTE_CHOOSE_CUH
#define PRODUCTS_ROUTE_CHOOSE_CUH

#include "kernels/cuda/device.cuh"

#include <math.h>

__device__ static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Keys that order as the floats do; no float has key 0. And the way back. NaN counts as the lowest. */
__device__ static inline uint32_t ordered(float x)
{
    uint32_t bits = __float_as_uint(isnan(x) ? -INFINITY : x + 0.0f); /* makes -0 equal to 0 */
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ static inline float of_ordered(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* The lowest `at` among the lanes with the largest key. */
__device__ static inline int best_of_warp(uint32_t key, int at)
{
    uint32_t best = __reduce_max_sync(0xffffffffu, key);
    return (int)__reduce_min_sync(0xffffffffu, key == best ? (uint32_t)at : 0x7fffffffu);
}

/* The divisor of the chosen scores. */
__device__ static inline float whole_of(const struct routing &how, float chosen, float all)
{
    return how.normalised ? fmaxf(chosen + 1e-20f, how.least * all) : how.sigmoid ? 1.0f : all;
}

/* The destination of a token's choice, and the inputs that decide it. */
struct route_choice {
    int32_t *expert; /* [n_chosen] */
    float *share;    /* [n_chosen] */
    const float *logits;
    const void *bias; /* added for the choice only; NULL: none */
    enum dtype bias_type;
};

/* The keys by which a token's experts are chosen: key[j] of lane l is that of expert l + 32 j, 0 if it is taken or does
 * not exist. PER: experts per lane. */
template <int PER>
struct route_keys {
    uint32_t key[PER];

    __device__ void fill(const float *logits, const void *bias, enum dtype bias_type, const struct routing &how)
    {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            int e = (int)threadIdx.x % 32 + 32 * j;
            key[j] = 0;
            if (e < how.n_experts)
                key[j] =
                    ordered(how.sigmoid && !how.by_logits ? sigmoid(logits[e]) + weight_at(bias, bias_type, e, 0.0f)
                                                          : logits[e]);
        }
    }
    /* Instead of logits the corrected probabilities of their softmax. most, all: the largest logit and the sum of
     * exp(logit - most). Apart from fill, so that other routers need no more registers. */
    __device__ void correct(const route_choice &c, const struct routing &how, float most, float all)
    {
#pragma unroll 1
        for (int j = 0; j < PER; j++) {
            int e = (int)threadIdx.x % 32 + 32 * j;
            uint32_t to = 0;
            if (e < how.n_experts)
                to = ordered(expf(c.logits[e] - most) / all + weight_at(c.bias, c.bias_type, e, 0.0f));
#pragma unroll
            for (int i = 0; i < PER; i++)
                key[i] = i == j ? to : key[i];
        }
    }
    /* The best of the warp's experts, on a tie the lower. */
    __device__ int best() const
    {
        uint32_t most = key[0];
        int at = 0;
#pragma unroll
        for (int j = 1; j < PER; j++)
            if (key[j] > most) {
                most = key[j];
                at = j;
            }
        return best_of_warp(most, (int)threadIdx.x % 32 + 32 * at);
    }
    /* Returns expert e's key, to every lane, and replaces it by `then`. */
    __device__ uint32_t replace(int e, uint32_t then)
    {
        uint32_t was = 0;
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (e == (int)threadIdx.x % 32 + 32 * j) {
                was = key[j];
                key[j] = then;
            }
        return __shfl_sync(0xffffffffu, was, e % 32);
    }
    __device__ int take_best()
    {
        int e = best();
#pragma unroll
        for (int j = 0; j < PER; j++)
            key[j] = e == (int)threadIdx.x % 32 + 32 * j ? 0 : key[j];
        return e;
    }
    /* A group's score: the sum of its two best experts, or the best one. */
    __device__ float group_score(int group, int size, bool by_best) const
    {
        route_keys own = *this;
#pragma unroll
        for (int j = 0; j < PER; j++)
            own.key[j] = ((int)threadIdx.x % 32 + 32 * j) / size == group ? key[j] : 0;
        uint32_t first = own.replace(own.best(), 0), second = own.replace(own.best(), 0);
        if (by_best)
            return of_ordered(first);
        return of_ordered(first) + (second > 0 ? of_ordered(second) : -INFINITY);
    }
    /* Experts outside the n_kept best groups come last. */
    __device__ void keep_groups(const struct routing &how)
    {
        int lane = (int)threadIdx.x % 32, size = how.n_experts / how.n_groups;
        uint32_t score = 0, kept = 0;
        for (int g = 0; g < how.n_groups; g++) {
            uint32_t of_group = ordered(group_score(g, size, how.groups_by_best));
            score = lane == g ? of_group : score;
        }
        for (int i = 0; i < how.n_kept; i++) {
            int g = best_of_warp(score, lane);
            kept |= 1u << g;
            score = lane == g ? 0 : score;
        }
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (key[j] != 0 && !(kept >> (lane + 32 * j) / size & 1))
                key[j] = ordered(-INFINITY);
    }
};

template <int PER>
__device__ static inline void choose_experts(const route_choice &c, const struct routing &how)
{
    int lane = (int)threadIdx.x % 32;
    float max = -INFINITY, chosen = 0, all = 0;
    route_keys<PER> keys;
    keys.fill(c.logits, c.bias, c.bias_type, how);
    for (int e = lane; e < how.n_experts; e += 32)
        max = fmaxf(max, c.logits[e]);
    for (int d = 16; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    for (int e = lane; e < how.n_experts; e += 32)
        all += how.sigmoid ? c.logits[e] : expf(c.logits[e] - max);
    all = warp_sum(all);
    if (how.corrected)
        keys.correct(c, how, max, all);
    if (how.n_groups > 1)
        keys.keep_groups(how);
    for (int i = 0; i < how.n_chosen; i++) {
        int e = keys.take_best();
        float part = how.sigmoid ? sigmoid(c.logits[e]) : expf(c.logits[e] - max);
        chosen += part;
        if (lane == 0) {
            c.expert[i] = e;
            c.share[i] = part;
        }
    }
    /* A NaN logit makes `all` NaN, and so every share, chosen or not: the fault must show. */
    float whole = whole_of(how, chosen, all);
    __syncwarp();
    for (int i = lane; i < how.n_chosen; i += 32)
        c.share[i] = isnan(all) ? all : how.scale * (c.share[i] / whole);
}

/* Dispatches to the smallest PER that holds the experts. */
__device__ static inline void choose_experts(const route_choice &c, const struct routing &how)
{
    if (how.n_experts <= 128)
        choose_experts<4>(c, how);
    else if (how.n_experts <= 256)
        choose_experts<8>(c, how);
    else
        choose_experts<ROUTING_MAX_EXPERTS / 32>(c, how);
}

#endif
