/* kernels/cuda/step/persistent_experts_code_inputs.cuh - the activations of pairs of a token and an expert on their way
 * to the second products with quantised weights. */
#ifndef STEP_PERSISTENT_EXPERTS_CODE_INPUTS_CUH
#define STEP_PERSISTENT_EXPERTS_CODE_INPUTS_CUH

#include "kernels/cuda/step/persistent_experts_codes.cuh"

#define CODE_UNITS_AT_ONCE 8 /* units of 4 columns that a lane waits for */

/* A warp's part of the second products: every teams-th expert, from `team` on, and the columns of `warp` in a team.
 * team >= teams: it is idle. */
struct code_part {
    int team, warp;

    __device__ explicit code_part(const expert_args &a)
        : team((int)threadIdx.x / 32 / a.codes.warps), warp((int)threadIdx.x / 32 - team * a.codes.warps)
    {
    }
    __device__ bool has(const expert_args &a, int column) const
    {
        return team < a.codes.teams && column < a.product[3].cols;
    }
};

/* Pairs whose activations a warp has in shared memory: [begin, end) of all, in choice_order if they are loaded in
 * parts; the offset of the first. */
struct code_pairs_at {
    int begin, end, place;
};

/* 4 columns of a pair's activations; lanes beside each other have neighbouring ones. */
struct code_unit {
    int from, to; /* words, elements; from < 0: zeros; to < 0: nothing */

    /* row: counted through the pairs' steps; in_warp: the first one's index among the warp's columns; place: the same
     * in order of multiplication */
    template <chain_form FORM>
    __device__ void find(const expert_args &a, const chain_shared &sh, const code_pairs_at &pairs,
                         const code_part &part, int row, int in_warp, int place)
    {
        const expert_choice *c = expert_choice_of(a, sh);
        int n_steps = sh.share[3].n_steps, cols = a.product[3].cols, i = n_steps == 1 ? row : row / n_steps;
        int p = pairs.begin + i, base = ((row - i * n_steps) * CHAIN_WARPS + part.warp) * EXPERT_WARP_COLUMNS<FORM>;
        from = to = -1;
        if (p >= pairs.end || base >= cols)
            return;
        if (expert_in_parts<FORM>(a))
            p = choice_order(a, c)[p];
        if ((unsigned)(choice_expert(a, c)[p] - a.first_held) >= (unsigned)a.n_held ||
            choice_team(a, c)[p] / EXPERT_MAX != part.team)
            return;
        from = base + in_warp < cols ? (p * cols + base + in_warp) / 2 : -1;
        to = (pairs.place + i) * a.pair_pitch + base + place;
    }
};

/* As expert_inputs: [pair][columns], with a warp's groups of eight columns in order of multiplication. */
template <typename T, chain_form FORM>
__device__ static inline void expert_code_inputs(const expert_args &a, const chain_shared &sh,
                                                 const code_pairs_at &pairs, const code_part &part, uint32_t epoch)
{
    const int N = CODE_UNITS_AT_ONCE, COLUMNS = EXPERT_WARP_COLUMNS<FORM>, UNITS = COLUMNS / UNIT_COLUMNS / 32;
    int n = (pairs.end - pairs.begin) * sh.share[3].n_steps;
    if (!part.has(a, part.warp * COLUMNS))
        return;
    int in_warp[UNITS], place[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        int column = (u * 32 + (int)threadIdx.x % 32) * UNIT_COLUMNS;
        in_warp[u] = column;
        place[u] = eight_place<FORM>(column) * 8 + column % 8;
    }
#pragma unroll 1
    for (int row = 0; row < n; row += N / UNITS) {
        code_unit unit[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            unit[i].find<FORM>(a, sh, pairs, part, row + i / UNITS, in_warp[i % UNITS], place[i % UNITS]);
        int lane0 = __shfl_sync(0xffffffffu, unit[0].from, 0);
        ulonglong2 v[N];
        word_await(
            v, [&](int i) { return unit[i].from >= 0; }, [&](int i) { return a.pairs + unit[i].from; }, epoch,
            lane0 >= 0 ? a.pairs + lane0 : nullptr);
#pragma unroll
        for (int i = 0; i < N; i++) {
            uint2 x = make_uint2((uint32_t)v[i].x, (uint32_t)v[i].y);
            if (std::is_same<T, __nv_bfloat16>::value)
                x = make_uint2(input_units<T, FORM>::half_pair(x.x), input_units<T, FORM>::half_pair(x.y));
            if (FORM == FORM_E2M1)
                x = input_units<T, FORM>::pair_up(x);
            if (unit[i].to >= 0)
                *(uint2 *)(sh.at<__half>(a.at.input) + unit[i].to) = x;
        }
    }
    __syncwarp();
}

/* The same for all pairs of one token, in less code: lanes look for the warp's pairs first. */
template <typename T, chain_form FORM>
__device__ static inline void expert_code_inputs_lone(const expert_args &a, const chain_shared &sh,
                                                      const code_part &part, uint32_t epoch)
{
    const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, UNITS = COLUMNS / UNIT_COLUMNS / 32, AT_ONCE = 4;
    const expert_choice *c = expert_choice_of(a, sh);
    const int cols = a.product[3].cols, lane = threadIdx.x % 32, p = min(lane, a.how.n_chosen - 1);
    const bool mine = lane < a.how.n_chosen && (unsigned)(choice_expert(a, c)[p] - a.first_held) < (unsigned)a.n_held &&
                      choice_team(a, c)[p] / EXPERT_MAX == part.team;
    const unsigned pairs = __ballot_sync(0xffffffffu, mine);
#pragma unroll 1
    for (int base = part.warp * COLUMNS; part.has(a, base); base += CHAIN_WARPS * COLUMNS)
#pragma unroll 1
        for (unsigned left = pairs; left != 0;) {
            int row[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++, left &= left - 1)
                row[i] = __ffs((int)left) - 1;
            auto column = [&](int j) { return base + (j % UNITS * 32 + lane) * UNIT_COLUMNS; };
            auto from = [&](int j) { return a.pairs + (row[j / UNITS] * cols + column(j)) / 2; };
            ulonglong2 v[AT_ONCE * UNITS];
            word_await(
                v, [&](int j) { return row[j / UNITS] >= 0 && column(j) < cols; }, from, epoch,
                a.pairs + (row[0] * cols + base) / 2);
#pragma unroll
            for (int j = 0; j < AT_ONCE * UNITS; j++) {
                uint2 x = make_uint2((uint32_t)v[j].x, (uint32_t)v[j].y);
                const int in_warp = column(j) - base;
                if (std::is_same<T, __nv_bfloat16>::value)
                    x = make_uint2(input_units<T, FORM>::half_pair(x.x), input_units<T, FORM>::half_pair(x.y));
                if (FORM == FORM_E2M1)
                    x = input_units<T, FORM>::pair_up(x);
                if (row[j / UNITS] >= 0)
                    *(uint2 *)(sh.at<__half>(a.at.input) + row[j / UNITS] * a.pair_pitch + base +
                               eight_place<FORM>(in_warp) * 8 + in_warp % 8) = x;
            }
        }
    __syncwarp();
}

/* The address of the activations of a lane's pair p of the warp's next expert, which are loaded if missing; p < 0: it
 * has none. Teams have memory of their own if activations are loaded in parts. */
template <typename T, chain_form FORM>
__device__ static inline int expert_bring(const expert_args &a, const chain_shared &sh, code_pairs_at &pairs,
                                          const code_part &part, int p, uint32_t epoch)
{
    if (!expert_in_parts<FORM>(a)) {
        if (pairs.end == 0) {
            pairs.end = expert_pairs(a);
            if constexpr (CHAIN_LONE)
                expert_code_inputs_lone<T, FORM>(a, sh, part, epoch);
            else
                expert_code_inputs<T, FORM>(a, sh, pairs, part, epoch);
        }
        return p;
    }
    int mine = p >= 0 ? choice_place(a, expert_choice_of(a, sh))[p] : -1, last = __reduce_max_sync(0xffffffffu, mine),
        places = a.codes.places / a.codes.teams;
    if (last >= pairs.end) {
        pairs.begin = __reduce_min_sync(0xffffffffu, p >= 0 ? mine : INT_MAX);
        pairs.end = min(pairs.begin + places, expert_pairs(a));
        pairs.place = part.team * places;
        expert_code_inputs<T, FORM>(a, sh, pairs, part, epoch);
    }
    return p >= 0 ? pairs.place + mine - pairs.begin : -1;
}

#endif
