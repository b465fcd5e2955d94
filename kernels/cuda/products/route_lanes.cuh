/* kernels/cuda/products/route_lanes.cuh - as route_choose.cuh, for at most LANES_EXPERTS experts, whose logits the warp
 * keeps in registers, too, and whose shares are computed side by side. The same bits. */
#ifndef PRODUCTS_ROUTE_LANES_CUH
#define PRODUCTS_ROUTE_LANES_CUH

#include "kernels/cuda/products/route_choose.cuh"

#define LANES_EXPERTS 256

/* Element `of` of values that are spread over the lanes as keys are; lanes may ask for different ones. */
template <int PER>
__device__ static inline float value_of(const float (&value)[PER], int of)
{
    float found = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        float one = __shfl_sync(0xffffffffu, value[j], of % 32);
        found = of / 32 == j ? one : found;
    }
    return found;
}

/* At most 32 experts are chosen: lane i has the i-th. */
template <int PER>
__device__ static inline void choose_in_lanes(const route_choice &c, const struct routing &how)
{
    int lane = (int)threadIdx.x % 32, mine = 0;
    float logit[PER], max = -INFINITY, chosen = 0, all = 0;
    route_keys<PER> keys;
    keys.fill(c.logits, c.bias, c.bias_type, how);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        logit[j] = lane + 32 * j < how.n_experts ? c.logits[lane + 32 * j] : -INFINITY;
        max = fmaxf(max, logit[j]);
    }
    for (int d = 16; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (lane + 32 * j < how.n_experts)
            all += how.sigmoid ? logit[j] : expf(logit[j] - max);
    all = warp_sum(all);
    if (how.corrected)
        keys.correct(c, how, max, all);
    if (how.n_groups > 1)
        keys.keep_groups(how);
    for (int i = 0; i < how.n_chosen; i++) {
        int e = keys.take_best();
        mine = lane == i ? e : mine;
    }
    float of_mine = value_of(logit, mine), part = how.sigmoid ? sigmoid(of_mine) : expf(of_mine - max);
    for (int i = 0; i < how.n_chosen; i++)
        chosen += __shfl_sync(0xffffffffu, part, i);
    float whole = whole_of(how, chosen, all);
    if (lane < how.n_chosen) {
        c.expert[lane] = mine;
        c.share[lane] = isnan(all) ? all : how.scale * (part / whole);
    }
}

/* By a warp: a token's choice. */
__device__ static inline void choose_of_token(const route_choice &c, const struct routing &how)
{
    if (how.n_experts > LANES_EXPERTS || how.n_chosen > 32)
        choose_experts(c, how);
    else if (how.n_experts <= 32)
        choose_in_lanes<1>(c, how);
    else if (how.n_experts <= LANES_EXPERTS / 2)
        choose_in_lanes<LANES_EXPERTS / 64>(c, how);
    else
        choose_in_lanes<LANES_EXPERTS / 32>(c, how);
}

#endif
