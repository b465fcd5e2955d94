/* kernels/cuda/step/persistent_code_tile.cuh - a tile's products with codes.
 *
 * Weights are the operand with 16 rows here: what is converted may go to any register, so no lane has to have what the
 * tensor cores want beside each other. That halves the products of persistent_stream.cuh, whose weights come as they
 * are. A scale of GROUP_COLUMNS columns multiplies their sum, in float, before it joins the others; one of a row what
 * comes out in the end (chain_finish_tile). */
#ifndef STEP_PERSISTENT_CODE_TILE_CUH
#define STEP_PERSISTENT_CODE_TILE_CUH

#include "kernels/cuda/step/persistent_kernel.cuh"

/* Number i of a quad's 16 words. */
__device__ static inline uint32_t quad_word(const uint4 &w, int i)
{
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}

/* Adds the products of rows g and g + 8 (weight_row) over 64 bytes of each; x: of eights of columns. */
__device__ static inline void code_multiply(float (&sum)[4], const uint4 (&w)[2], const uint4 (&x)[2])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[2], b[2];
        code_pairs<__half, CODES_E4M3>::decode(a, quad_word(w[0], k), 0);
        code_pairs<__half, CODES_E4M3>::decode(b, quad_word(w[1], k), 0);
        const uint4 &v = x[k / 2];
        tensor_mma<__half>(sum, a[0], b[0], a[1], b[1], k % 2 == 0 ? v.x : v.z, k % 2 == 0 ? v.y : v.w);
    }
}

/* The same of INT4, less the zeros. A nibble in the lowest bits of f16 is a subnormal number, 2^-24 of its value, and
 * in the bits above 2^-20, which the tensor cores multiply like any other. sums: of x, times -2^-24, of the lane's two
 * tokens. The result is 2^-24 of what it should be: INT4_UNIT makes up for it. */
__device__ static inline void code_multiply(float (&sum)[4], const uint4 (&w)[2], const uint4 (&x)[4], float2 sums,
                                            const float (&zero)[2])
{
    float even[4] = {zero[0] * sums.x, zero[0] * sums.y, zero[1] * sums.x, zero[1] * sums.y}, odd[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a = quad_word(w[0], k), b = quad_word(w[1], k), a8 = a >> 8, b8 = b >> 8;
        const uint32_t LOW = 0x000f000fu, HIGH = 0x00f000f0u;
        tensor_mma<__half>(even, a & LOW, b & LOW, a8 & LOW, b8 & LOW, x[k].x, x[k].y);
        tensor_mma<__half>(odd, a & HIGH, b & HIGH, a8 & HIGH, b8 & HIGH, x[k].z, x[k].w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = fmaf(odd[i], 0.0625f, even[i]);
}

/* What a lane reads of a step: where its rows' scales and zeros are in a slot, row 8 further for the second one. */
template <chain_form FORM>
struct group_scales {
    int scale, zero; /* bytes into a slot's; a second group of this warp lies behind the first */
    static constexpr int ROW = group_count(FORM) * (int)sizeof(float), ROW8 = 8 * ROW;

    __device__ explicit group_scales(int row)
    {
        int group = (int)threadIdx.x / 32 * (FORM == FORM_INT4 ? 2 : 1);
        /* as the copy has exchanged parts of 16 bytes: by the row's place in 1024 bytes, or in 512 */
        int part = FORM == FORM_INT4 ? group / 4 ^ row % 8 : group / 4 ^ row / 2 % 4;
        scale = row * ROW + part * 16 + group % 4 * 4;
        zero = row * group_count(FORM) + group;
    }
    /* sum += part times the scales of the lane's rows */
    __device__ static void add(float (&sum)[4], const float (&part)[4], const char *scales)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] = fmaf(part[i], *(const float *)(scales + i / 2 * ROW8), sum[i]);
    }
};

/* One tile's products, as chain_tile. */
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void code_tile(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                 const chain_share &share, int n, bool gated, float *partial)
{
    const bool FINE = FORM == FORM_INT4;
    const int GROUPS = FINE ? 2 : 1; /* of a warp in a step */
    const int EIGHTS = FINE ? 4 : 2; /* of columns of a lane in 64 bytes */
    const float GAIN = (FORM != FORM_ROWS && std::is_same<T, __nv_bfloat16>::value ? 1 / INPUT_HALF_SCALE : 1) *
                       (FINE ? INT4_UNIT : 1);
    typedef group_scales<FORM> scales_at;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane / 4, row = weight_row(t);
    float sum[4] = {};
    bool mine = t < a.n_tokens;
    uint4 x[EIGHTS] = {}; /* of nobody's columns: zeros, as in chain_tile */
    const T *input =
        sh.at<T>(a.at.input) + chain_input_at(warp, share.n_spans, 0, a.n_tokens, mine ? t : 0) + lane % 4 * 8;
    const float *sums = sh.at<float>(a.at.sums) + warp * (share.n_spans / 2) * CHAIN_OCTET + lane % 4 * 2;
    const scales_at mine_at(row);
    int at[2] = {weight_at(n, row), gated ? RING_SLOT_BYTES / 2 + weight_at(n, row) : weight_at(n, row + 8)};
    for (int step = 0; step < share.n_steps; step++) {
        const char *weights = sh.base + ring.slot * RING_SLOT_BYTES, *groups = sh.base + a.at.groups;
        const char *scales = groups + ring.slot * group_scale_bytes(FORM) + mine_at.scale;
        const char *zeros =
            groups + SLOTS * group_scale_bytes(FORM) + ring.slot * group_zero_bytes(FORM) + mine_at.zero;
        float group[4] = {};
        barrier_wait(ring.filled(), ring.round);
#pragma unroll
        for (int half = 0; half < 2; half++) { /* 64 bytes of each row */
            uint4 w[2];
#pragma unroll
            for (int r = 0; r < 2; r++)
                w[r] = *(const uint4 *)(weights + (at[r] ^ half * 64));
#pragma unroll
            for (int k = 0; k < EIGHTS; k++)
                if (mine)
                    x[k] = *(const uint4 *)(input + (half * EIGHTS + k) * a.n_tokens * 32);
            if constexpr (FINE) {
                float part[4], zero[2] = {8, 8};
                if (a.group_zeros)
                    for (int r = 0; r < 2; r++)
                        zero[r] = (float)(uint8_t)zeros[r * 8 * group_count(FORM) + half];
                code_multiply(part, w, x, *(const float2 *)(sums + half * CHAIN_OCTET), zero);
                scales_at::add(sum, part, scales + half * 4);
            } else if (FORM == FORM_ROWS) {
                code_multiply(sum, w, x);
            } else {
                code_multiply(group, w, x);
            }
        }
        if (FORM == FORM_E4M3)
            scales_at::add(sum, group, scales);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
        input += 2 * EIGHTS * a.n_tokens * 32;
        sums += GROUPS * CHAIN_OCTET;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (lane % 4 * 2 + i % 2 < a.n_tokens)
            partial[(warp * a.n_tokens + lane % 4 * 2 + i % 2) * CHAIN_ROWS + i / 2 * CHAIN_OCTET + row] =
                sum[i] * GAIN;
}

#endif
