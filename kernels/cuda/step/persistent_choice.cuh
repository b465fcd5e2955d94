/* kernels/cuda/step/persistent_choice.cuh - mixtures of experts in the persistent kernel: the router's choice, which
 * every block computes from the same logits, by ranking: an expert is chosen if fewer than n_chosen come before it.
 * (route_choose.cuh selects one after the other, too slow where all blocks wait.) */
#ifndef STEP_PERSISTENT_CHOICE_CUH
#define STEP_PERSISTENT_CHOICE_CUH

#include "kernels/cuda/products/route_choose.cuh"
#include "kernels/cuda/step/persistent_choice_tables.cuh"

#include <limits.h>

/* A key of choice_keys. bias: corrects a sigmoid. */
__device__ static inline uint32_t expert_key(const struct routing &how, float logit, float bias)
{
    return ordered(how.sigmoid && !how.by_logits ? sigmoid(logit) + bias : logit);
}

/* Reads the logits of all tokens from their words, and makes the keys. */
template <bool FULL>
__device__ static inline void expert_await_logits(const expert_args &a, const expert_choice *c,
                                                  const expert_layer &more, uint32_t epoch)
{
    const void *correction = FULL && a.how.sigmoid ? more.router_bias : nullptr;
    int pitch = expert_logits_pitch(a.how.n_experts), n = a.how.n_experts;
#pragma unroll 1
    for (int i = threadIdx.x; i < a.n_tokens * pitch / 2; i += CHAIN_THREADS) {
        int e = a.n_tokens == 1 ? i * 2 : i * 2 % pitch;
        const float bias[2] = {weight_at(e < n ? correction : nullptr, a.router_bias_type, e, 0.0f),
                               weight_at(e + 1 < n ? correction : nullptr, a.router_bias_type, e + 1, 0.0f)};
        ulonglong2 v[1];
        word_await(
            v, [=](int) { return e < n; }, [&](int) { return a.logit_words + i * 2; }, epoch);
        const float logit[2] = {word_value(v[0].x), word_value(v[0].y)};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            choice_logits(a, c)[i * 2 + k] = logit[k];
            choice_keys(a, c)[i * 2 + k] = e + k >= n ? 0
                                           : FULL     ? expert_key(a.how, logit[k], bias[k])
                                                      : ordered(logit[k]);
        }
    }
}

/* Experts outside the n_kept best groups come last (route_keys does the same). A warp has a token; its lanes
 * compute the groups' scores. */
__device__ static inline void expert_keep_groups(const expert_args &a, const expert_choice *c, int t)
{
    uint32_t *keys = choice_keys(a, c) + t * expert_logits_pitch(a.how.n_experts), first = 0, second = 0;
    int lane = threadIdx.x % 32, n = a.how.n_groups, size = a.how.n_experts / n, before = 0;
    for (int i = 0; lane < n && i < size; i++) {
        uint32_t key = keys[lane * size + i];
        second = max(second, min(first, key));
        first = max(first, key);
    }
    float worth = of_ordered(first);
    if (!a.how.groups_by_best)
        worth += second > 0 ? of_ordered(second) : -INFINITY;
    uint32_t mine = ordered(worth);
    for (int g = 0; g < n; g++)
        before += __shfl_sync(0xffffffffu, mine, g) + (g < lane) > mine;
    unsigned kept = __ballot_sync(0xffffffffu, lane < n && before < a.how.n_kept);
    for (int e = lane; e < a.how.n_experts; e += 32)
        if (!(kept >> e / size & 1))
            keys[e] = ordered(-INFINITY);
}

/* The number of experts that come before expert e: those with larger keys, and lower ones with equal keys. Four lanes
 * split them, neighbouring vectors each, and all get the sum. */
__device__ static inline int expert_rank(const uint32_t *keys, int e, int pitch)
{
    uint32_t mine = keys[e];
    int n = 0;
#pragma unroll 2
    for (int i = threadIdx.x % 4 * 4; i < pitch; i += 16) {
        uint4 v = *(const uint4 *)(keys + i);
        n += v.x + (i < e) > mine; /* the largest key has room for that */
        n += v.y + (i + 1 < e) > mine;
        n += v.z + (i + 2 < e) > mine;
        n += v.w + (i + 3 < e) > mine;
    }
    n += __shfl_xor_sync(0xffffffffu, n, 1);
    return n + __shfl_xor_sync(0xffffffffu, n, 2);
}

/* The chosen experts, four lanes each. */
__device__ static inline void expert_pick(const expert_args &a, expert_choice *c)
{
    int pitch = expert_logits_pitch(a.how.n_experts), k = a.how.n_chosen;
    for (int t = 0; t < a.n_tokens; t++)
        for (int e0 = 0; e0 < pitch; e0 += CHAIN_THREADS / 4) {
            int e = e0 + (int)threadIdx.x / 4,
                rank = expert_rank(choice_keys(a, c) + t * pitch, min(e, pitch - 1), pitch);
            if (threadIdx.x % 4 != 0 || e >= a.how.n_experts || rank >= k)
                continue;
            int held = e - a.first_held;
            choice_expert(a, c)[t * k + rank] = e;
            if (!CHAIN_LONE && held >= 0 && held < a.n_held)
                atomicOr(&c->taken[held / 32], 1u << held % 32);
        }
}

#define LOGITS_AT_ONCE (EXPERT_MAX / 64) /* pairs of a token's logits that a lane awaits */

/* A warp reads the logits of token t from their words, and makes the keys. */
__device__ static inline void expert_await_token(const expert_args &a, const expert_choice *c, int t, uint32_t epoch)
{
    const int pitch = expert_logits_pitch(a.how.n_experts), n = a.how.n_experts, lane = threadIdx.x % 32;
    const unsigned long long *words = a.logit_words + t * pitch;
    ulonglong2 v[LOGITS_AT_ONCE];
    word_await(
        v, [=](int i) { return (lane + i * 32) * 2 < n; }, [=](int i) { return words + (lane + i * 32) * 2; }, epoch);
#pragma unroll
    for (int i = 0; i < LOGITS_AT_ONCE; i++) {
        const int e = (lane + i * 32) * 2;
        if (e >= pitch)
            break;
        const float x = word_value(v[i].x), y = word_value(v[i].y);
        *(float2 *)(choice_logits(a, c) + t * pitch + e) = make_float2(x, y);
        *(uint2 *)(choice_keys(a, c) + t * pitch + e) =
            make_uint2(e < n ? max(ordered(x), 1u) : 0, e + 1 < n ? max(ordered(y), 1u) : 0);
    }
    __syncwarp();
}

/* A warp picks the experts of token t: n_chosen times the one with the largest key, of equal keys the first. A lane has
 * N neighbouring experts, in order of their keys. */
template <int N>
__device__ static inline void expert_pick_token(const expert_args &a, expert_choice *c, int t)
{
    const int pitch = expert_logits_pitch(a.how.n_experts), k = a.how.n_chosen, lane = threadIdx.x % 32;
    const unsigned before = (1u << lane) - 1;
    uint32_t key[N];
    int expert[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        expert[i] = lane * N + i;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const uint32_t *from = choice_keys(a, c) + t * pitch + expert[i];
        const uint4 v = expert[i] < pitch ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
        key[i] = v.x;
        key[i + 1] = v.y;
        key[i + 2] = v.z;
        key[i + 3] = v.w;
    }
#pragma unroll
    for (int sorted = N - 1; sorted > 0; sorted--)
#pragma unroll
        for (int i = 0; i < sorted; i++)
            if (key[i] < key[i + 1]) {
                const uint32_t x = key[i];
                const int e = expert[i];
                key[i] = key[i + 1];
                key[i + 1] = x;
                expert[i] = expert[i + 1];
                expert[i + 1] = e;
            }
#pragma unroll 1
    for (int rank = 0; rank < k; rank++) {
        const bool best = key[0] == __reduce_max_sync(0xffffffffu, key[0]);
        if ((__ballot_sync(0xffffffffu, best) & before) == 0 && best) {
            choice_expert(a, c)[t * k + rank] = expert[0];
#pragma unroll
            for (int i = 0; i < N - 1; i++) {
                key[i] = key[i + 1];
                expert[i] = expert[i + 1];
            }
            key[N - 1] = 0;
        }
    }
    __syncwarp();
    const int held = lane < k ? choice_expert(a, c)[t * k + lane] - a.first_held : -1;
    if (held >= 0 && held < a.n_held)
        atomicOr(&c->taken[held / 32], 1u << held % 32);
}

/* Do the activations of all pairs exceed shared memory? */
template <chain_form FORM>
__device__ static inline bool expert_in_parts(const expert_args &a)
{
    return !CHAIN_LONE && FORM != FORM_NONE && a.codes.places < expert_pairs(a);
}

/* Pairs with a lower one come first in choice_order. */
__device__ static inline int expert_order_key(const expert_args &a, const expert_choice *c, int p)
{
    unsigned held = (unsigned)(choice_expert(a, c)[p] - a.first_held);
    return held >= (unsigned)a.n_held ? INT_MAX : choice_team(a, c)[p];
}

/* Orders the pairs; one thread per pair. */
__device__ static inline void expert_order(const expert_args &a, const expert_choice *c)
{
    for (int p = threadIdx.x; p < expert_pairs(a); p += CHAIN_THREADS) {
        int mine = expert_order_key(a, c, p), before = 0;
#pragma unroll 4
        for (int other = 0; other < expert_pairs(a); other++) {
            int key = expert_order_key(a, c, other);
            before += key < mine || (key == mine && other < p);
        }
        choice_order(a, c)[before] = (int16_t)p;
        choice_place(a, c)[p] = (int16_t)before;
    }
}

/* Lists the used held experts, in order, and each one's pairs; one thread per pair. */
template <chain_form FORM>
__device__ static inline void expert_list(const expert_args &a, expert_choice *c)
{
    int n = 0;
    for (int p = threadIdx.x; p < expert_pairs(a); p += CHAIN_THREADS) {
        int e = choice_expert(a, c)[p] - a.first_held, before = 0;
        if (e < 0 || e >= a.n_held)
            continue;
        for (int w = 0; w < e / 32; w++)
            before += __popc(c->taken[w]);
        before += __popc(c->taken[e / 32] & ((1u << e % 32) - 1));
        choice_which(a, c)[before] = e;
        if (FORM != FORM_NONE)
            choice_team(a, c)[p] = (int16_t)(before % a.codes.teams * EXPERT_MAX + before);
        choice_pair(a, c)[before * NARROW_TOKENS + p / a.how.n_chosen] = (int16_t)p;
    }
    if (threadIdx.x != CHAIN_THREADS - 1)
        return;
    for (uint32_t taken : c->taken)
        n += __popc(taken);
    if (n != c->n) /* else the tiles are those of the layer before */
        c->first.open(a, n);
    c->n = n;
}

/* The same as expert_list for one token, by one warp. */
template <chain_form FORM>
__device__ static inline void expert_list_lone(const expert_args &a, expert_choice *c)
{
    const int lane = threadIdx.x % 32, k = a.how.n_chosen, mine = lane < k ? choice_expert(a, c)[lane] : INT_MAX;
    const bool held = lane < k && (unsigned)(mine - a.first_held) < (unsigned)a.n_held;
    const unsigned all = __ballot_sync(0xffffffffu, held);
    int before = 0;
#pragma unroll 4
    for (int i = 0; i < k; i++)
        before += __shfl_sync(0xffffffffu, mine, i) < mine && (all >> i & 1);
    if (held) {
        choice_which(a, c)[before] = mine - a.first_held;
        if (FORM != FORM_NONE)
            choice_team(a, c)[lane] = (int16_t)(before % a.codes.teams * EXPERT_MAX + before);
        choice_pair(a, c)[before * NARROW_TOKENS] = (int16_t)lane;
    }
    __syncwarp();
    if (lane != 0)
        return;
    if (__popc(all) != c->n) /* else the tiles are those of the layer before */
        c->first.open(a, __popc(all));
    c->n = __popc(all);
    barrier_arrive(shared_address(&c->made));
}

/* The shares of a token's chosen experts, as choose_experts has it. A warp has a token. */
template <bool FULL>
__device__ static inline void expert_shares(const expert_args &a, const expert_choice *c, int t)
{
    const bool sigmoids = FULL && a.how.sigmoid;
    int lane = threadIdx.x % 32, k = a.how.n_chosen;
    const float *logits = choice_logits(a, c) + t * expert_logits_pitch(a.how.n_experts);
    float most = -INFINITY, all = 0;
    for (int e = lane; e < a.how.n_experts; e += 32)
        most = fmaxf(most, logits[e]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    for (int e = lane; e < a.how.n_experts; e += 32)
        all += sigmoids ? logits[e] : expf(logits[e] - most);
    all = warp_sum(all); /* NaN if some logit is: then all shares are NaN, for the fault must show */
    float logit = lane < k ? logits[choice_expert(a, c)[t * k + lane]] : 0.0f;
    float part = lane >= k ? 0.0f : sigmoids ? sigmoid(logit) : expf(logit - most), chosen = warp_sum(part);
    float whole = a.how.normalised ? chosen + 1e-20f : sigmoids ? 1.0f : all;
    if (lane < k)
        choice_share(a, c)[t * k + lane] = isnan(all) ? all : a.how.scale * (part / whole);
}

/* No pair yet. */
__device__ static inline void expert_clear_pairs(const expert_args &a, const expert_choice *c)
{
    for (int i = threadIdx.x; i < expert_pairs(a) * NARROW_TOKENS; i += CHAIN_THREADS)
        choice_pair(a, c)[i] = -1;
}

/* The kernels for several tokens with 16-bit weights of SCOPE_PLAIN. */
template <chain_form FORM, bool FULL>
__device__ constexpr bool expert_plain(void)
{
    return !CHAIN_LONE && FORM == FORM_NONE && !FULL;
}

/* A warp awaits a token's logits and picks its experts. */
__device__ static inline void expert_choose_token(const expert_args &a, expert_choice *c, int t, uint32_t epoch)
{
    expert_await_token(a, c, t, epoch);
    if (expert_logits_pitch(a.how.n_experts) <= EXPERT_MAX / 2)
        expert_pick_token<EXPERT_MAX / 64>(a, c, t);
    else
        expert_pick_token<EXPERT_MAX / 32>(a, c, t);
}

/* In steps of several tokens with 16-bit weights the warps beside the one that requests weights hand in the inputs of
 * the second products, one expert after the other, while the computing warps multiply. */
template <chain_form FORM, bool FULL>
__device__ static inline bool expert_handed(const expert_args &a)
{
    return expert_plain<FORM, FULL>() && a.n_tokens > HAND_TOKENS;
}

/* Called by all computing warps. Only then may the layer's expert weights be requested. Shares are visible to all after
 * the next barrier. */
template <bool FULL, chain_form FORM>
__device__ static inline void expert_choose(const expert_args &a, const chain_shared &sh, const expert_layer &more,
                                            uint32_t epoch)
{
    expert_choice *c = expert_choice_of(a, sh);
    const int t = threadIdx.x / 32;
    expert_clear_pairs(a, c);
    if (expert_handed<FORM, FULL>(a)) {
        if (t < a.n_tokens)
            expert_choose_token(a, c, t, epoch);
    } else {
        for (int i = threadIdx.x; i < EXPERT_MAX / 32; i += CHAIN_THREADS)
            c->taken[i] = 0;
        expert_await_logits<FULL>(a, c, more, epoch);
        chain_sync();
        if (FULL && a.how.n_groups > 1) {
            if (t < a.n_tokens)
                expert_keep_groups(a, c, t);
            chain_sync();
        }
        expert_pick(a, c);
    }
    chain_sync();
    expert_list<FORM>(a, c);
    chain_sync();
    if (threadIdx.x == 0)
        barrier_arrive(shared_address(&c->made));
    if (t < a.n_tokens)
        expert_shares<FULL>(a, c, t);
    if (expert_plain<FORM, FULL>() && threadIdx.x < EXPERT_MAX / 32) /* until the next choice there is a barrier */
        c->taken[threadIdx.x] = 0;
    if (expert_in_parts<FORM>(a))
        expert_order(a, c);
}

/* The same for one token, whose keys are there. */
template <chain_form FORM>
__device__ static inline void expert_choose_lone(const expert_args &a, const chain_shared &sh)
{
    expert_choice *c = expert_choice_of(a, sh);
    chain_sync(); /* the keys */
    expert_pick(a, c);
    chain_sync();
    if (threadIdx.x < 32)
        expert_list_lone<FORM>(a, c);
    chain_sync();
    if (threadIdx.x < 32)
        expert_shares<false>(a, c, 0);
}

#endif
