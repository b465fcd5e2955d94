/* kernels/cuda/step/persistent_experts_code_second.cuh - the second products with quantised weights, and their sum over
 * the experts. */
#ifndef STEP_PERSISTENT_EXPERTS_CODE_SECOND_CUH
#define STEP_PERSISTENT_EXPERTS_CODE_SECOND_CUH

#include "kernels/cuda/step/persistent_experts_code_inputs.cuh"

/* The biases' part of a lane's results, for n rows of a tile. */
__device__ static inline void expert_add_biases(const expert_args &a, const float *biases, int n, float (&all)[4])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int t = lane % 4 * 2 + i % 2, row = i / 2 * CHAIN_OCTET + weight_row(lane / 4);
        if (biases != nullptr && t < a.n_tokens && t == (int)threadIdx.x / 32 && row < n)
            all[i] = biases[t * a.at.x_rows + row];
    }
}

#define SECOND_TILES 2 /* maximum tiles of the sum over the experts at once */

/* The sum over the experts, in up to SECOND_TILES tiles: n[i] rows, 0 if there is none, from row `first` of each
 * expert's on. all: starts from the biases' sums. */
template <typename T, chain_form FORM, int SLOTS>
__device__ static inline void expert_code_second(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                 const int (&n)[SECOND_TILES], int first, uint32_t epoch,
                                                 code_pairs_at &pairs, float (&all)[SECOND_TILES][4])
{
    const bool APART = CODES_APART<FORM>;
    const expert_choice *c = expert_choice_of(a, sh);
    const int pitch = a.codes.pitch[1], COLUMNS = EXPERT_WARP_COLUMNS<FORM>, teams = a.codes.teams;
    const coded_slot slot(n[0], n[1], false, a.codes.pieces[1], pitch);
    const code_part part(a);
    int lane = threadIdx.x % 32, at = part.team * slot.bytes;
    code_columns_of of = {0, a.product[3].cols, sh.share[3].n_steps, nullptr, 32, CHAIN_WARPS * COLUMNS};
    code_rows<FORM> rows[SECOND_TILES] = {code_rows<FORM>(n[0], at, -1, part.warp),
                                          code_rows<FORM>(n[1], at + slot.second, -1, part.warp)};
    if (expert_in_parts<FORM>(a))
        pairs = {0, 0, 0};
#pragma unroll 1
    for (int i = part.team; i - part.team < c->n; i += teams) {
        const bool mine = i < c->n && part.team < teams;
        const int16_t *pair = choice_pair(a, c) + (mine ? i * NARROW_TOKENS : 0);
        int p = mine ? pair[APART ? 0 : lane / 4] : -1, place = expert_bring<T, FORM>(a, sh, pairs, part, p, epoch);
        float one[SECOND_TILES][4] = {};
        of.column = mine ? part.warp * COLUMNS : of.cols;
        const bool has = place >= 0 && (!APART || code_lane_has_x());
        of.x = has ? sh.at<__half>(a.at.input) + place * a.pair_pitch + part.warp * COLUMNS + lane % 4 * 8 : nullptr;
#pragma unroll
        for (int k = 0; k < SECOND_TILES; k++)
            rows[k].set_scales(at + slot.scales, mine ? choice_which(a, c)[i] * a.product[3].rows + first : 0,
                               k * CHAIN_ROWS, 0, -1, pitch);
        expert_code_sums<FORM, SECOND_TILES>(ring, sh, rows, n[1], of, pitch, one);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int whose = mine && (!APART || k == 0) ? pair[APART ? 0 : lane % 4 * 2 + k] : -1;
            float share = whose >= 0 ? choice_share(a, c)[whose] * EXPERT_GAIN<T, FORM> : 0.0f;
#pragma unroll
            for (int tile = 0; tile < SECOND_TILES; tile++)
                if (whose >= 0) {
                    all[tile][k] = fmaf(share, one[tile][k], all[tile][k]);
                    all[tile][k + 2] = fmaf(share, one[tile][k + 2], all[tile][k + 2]);
                }
        }
    }
}

#endif
