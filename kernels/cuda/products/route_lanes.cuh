/* kernels/cuda/products/route_lanes.cuh - as route_choose.cuh, for at most LANES_EXPERTS experts, whose logits the warp
 * keeps in registers, too. The same bits. */
#ifndef PRODUCTS_ROUTE_LANES_CUH
#define PRODUCTS_ROUTE_LANES_CUH

#include "kernels/cuda/products/route_choose.cuh"

#define LANES_EXPERTS 256

/* Expert e's element of values that are spread over the lanes as keys are, to every lane. */
template <int PER>
__device__ static inline float value_of(const float (&value)[PER], int e)
{
    float found = value[0];
#pragma unroll
    for (int j = 1; j < PER; j++)
        found = e / 32 == j ? value[j] : found;
    return __shfl_sync(0xffffffffu, found, e % 32);
}

template <int PER>
__device__ static inline void choose_in_lanes(const route_choice &c, const struct routing &how)
{
    int lane = (int)threadIdx.x % 32, which = 0; /* which, kept: the lane's pair, if it is one of the first 32 */
    float logit[PER], max = -INFINITY, chosen = 0, all = 0, kept = 0;
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
    if (how.n_groups > 1)
        keys.keep_groups(how);
    for (int i = 0; i < how.n_chosen; i++) {
        int e = keys.take_best();
        float of_e = value_of(logit, e), part = how.sigmoid ? sigmoid(of_e) : expf(of_e - max);
        chosen += part;
        which = lane == i ? e : which;
        kept = lane == i ? part : kept;
        if (i >= 32 && lane == 0) {
            c.expert[i] = e;
            c.share[i] = part;
        }
    }
    float whole = how.normalised ? chosen + 1e-20f : how.sigmoid ? 1.0f : all;
    auto share = [&](float part) { return isnan(all) ? all : how.scale * (part / whole); };
    if (lane < how.n_chosen) {
        c.expert[lane] = which;
        c.share[lane] = share(kept);
    }
    __syncwarp();
    for (int i = lane + 32; i < how.n_chosen; i += 32)
        c.share[i] = share(c.share[i]);
}

/* By a warp: a token's choice. */
__device__ static inline void choose_of_token(const route_choice &c, const struct routing &how)
{
    if (how.n_experts <= LANES_EXPERTS / 2)
        choose_in_lanes<LANES_EXPERTS / 64>(c, how);
    else if (how.n_experts <= LANES_EXPERTS)
        choose_in_lanes<LANES_EXPERTS / 32>(c, how);
    else
        choose_experts(c, how);
}

#endif
