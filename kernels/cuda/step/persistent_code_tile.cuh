/* kernels/cuda/step/persistent_code_tile.cuh - a tile's products with quantised weights. Weights are the operand with
 * 16 rows here: converted codes may go to any register, so the fragment layout of the tensor cores puts no constraint
 * on the codes in memory. That halves the number of products against persistent_stream.cuh, whose weights are used
 * unconverted. A scale of GROUP_COLUMNS columns multiplies their sum, in float, before it joins the others; a scale of
 * a row multiplies the final sum (chain_finish_tile). */
#ifndef STEP_PERSISTENT_CODE_TILE_CUH
#define STEP_PERSISTENT_CODE_TILE_CUH

#include "kernels/cuda/step/persistent_kernel.cuh"

/* Word i of four. */
__device__ static inline uint32_t word_of(const uint4 &w, int i)
{
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}

/* Adds the products of rows g and g + 8 (weight_row) over 64 bytes of each; x: by groups of eight columns. Integers
 * become 2^-24 of their value, since a number in the lowest bits of f16 is subnormal, which the tensor cores multiply
 * like any other; INTEGER_UNIT compensates for it. */
template <chain_form FORM>
__device__ static inline void code_multiply(float (&sum)[4], const uint4 (&w)[2], const uint4 (&x)[2])
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[2][2];
        const uint4 &v = x[k / 2];
#pragma unroll
        for (int r = 0; r < 2; r++)
            if constexpr (FORM == FORM_E4M3) {
                code_pairs<__half, CODES_E4M3>::decode(a[r], word_of(w[r], k), 0);
            } else {
                a[r][0] = codes_pick(word_of(w[r], k), 0, 0x4140);
                a[r][1] = codes_pick(word_of(w[r], k), 0, 0x4342);
            }
        tensor_mma<__half>(sum, a[0][0], a[1][0], a[0][1], a[1][1], k % 2 == 0 ? v.x : v.z, k % 2 == 0 ? v.y : v.w);
    }
}

/* The same for INT4. Every other nibble is 4 bits higher, which makes it 16 times as large: those have sums of their
 * own. */
template <chain_form FORM>
__device__ static inline void code_multiply(float (&sum)[4], const uint4 (&w)[2], const uint4 (&x)[4])
{
    const uint32_t LOW = 0x000f000fu, HIGH = 0x00f000f0u;
    float high[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a = word_of(w[0], k), b = word_of(w[1], k), a8 = a >> 8, b8 = b >> 8;
        tensor_mma<__half>(sum, a & LOW, b & LOW, a8 & LOW, b8 & LOW, x[k].x, x[k].y);
        tensor_mma<__half>(high, a & HIGH, b & HIGH, a8 & HIGH, b8 & HIGH, x[k].z, x[k].w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = fmaf(high[i], 0.0625f, sum[i]);
}

/* The groups of a lane's two rows in a slot. area: one of the CHAIN_WARPS parts of a slot's columns */
template <chain_form FORM>
struct code_groups_at {
    static constexpr int COUNT = group_count(FORM), ROW = COUNT * (int)sizeof(float);
    static constexpr float CENTRE = FORM == FORM_INT8 ? 128 : 8; /* the zero point of codes without one of their own */
    int scale, zero; /* bytes into a slot's; the area's next group lies behind */

    __device__ code_groups_at(int area, int row)
    {
        int group = area * (COUNT / CHAIN_WARPS);
        /* as the copy swizzles 16-byte units: by the row's index in 1024 bytes, or in 512 */
        int part = ROW == 128 ? group / 4 ^ row % 8 : group / 4 ^ row / 2 % 4;
        scale = row * ROW + part * 16 + group % 4 * 4;
        zero = row * COUNT + group;
    }
    /* Initialises products of integers: subtracts the zero points. sums: of x of the lane's two tokens, see
     * keep_sum. */
    __device__ void begin(float (&part)[4], float2 sums, const char *zeros, bool own) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float z = own ? (float)*(const uint8_t *)(zeros + zero + r * 8 * COUNT) : CENTRE;
            part[2 * r] = z * sums.x;
            part[2 * r + 1] = z * sums.y;
        }
    }
    /* sum += part times the scales; scales NULL: applied later */
    __device__ void add(float (&sum)[4], const float (&part)[4], const char *scales) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float s = scales != nullptr ? *(const float *)(scales + scale + r * 8 * ROW) : 1;
            sum[2 * r] = fmaf(part[2 * r], s, sum[2 * r]);
            sum[2 * r + 1] = fmaf(part[2 * r + 1], s, sum[2 * r + 1]);
        }
    }
};

/* The offset of row r of an area's n in a slot, or in its half, as weight_at. */
__device__ static inline int code_at(int area, int n, int r)
{
    int row = area * n + r, part = threadIdx.x % 4;
    return row * 128 + (part ^ row % 8) * 16;
}

/* Scales as the compiler knows them: not at all, of rows, of groups, of groups with zero points. */
enum code_scaling { SCALES_ANY, SCALES_ROWS, SCALES_GROUPS, SCALES_ZEROS };

/* A lane's two rows of a tile in one area: where its weights, inputs and groups lie. */
template <chain_form FORM, typename T>
struct code_lane {
    static constexpr int EIGHTS = code_columns(FORM) / 8;          /* of columns in a lane's 16 bytes */
    static constexpr int GROUPS = group_count(FORM) / CHAIN_WARPS; /* of an area in a step */
    int at[2];                                                     /* of the rows' weights, in a slot */
    const T *input;                                                /* of the lane's token */
    const float *sums;                                             /* of two tokens, see keep_sum */
    code_groups_at<FORM> groups;

    __device__ code_lane(const chain_args &a, const chain_shared &sh, const chain_share &share, int n, bool gated,
                         int area)
        : groups(area, weight_row((int)threadIdx.x % 32 / 4))
    {
        int lane = threadIdx.x % 32, t = lane / 4, row = weight_row(t);
        at[0] = code_at(area, n, row);
        at[1] = gated ? RING_SLOT_BYTES / 2 + code_at(area, n, row) : code_at(area, n, row + 8);
        input = sh.at<T>(a.at.input) + chain_input_at(area, share.n_spans, 0, a.n_tokens, t < a.n_tokens ? t : 0) +
                lane % 4 * 8;
        sums = sh.at<float>(a.at.sums) + area * (share.n_spans / 2) * CHAIN_OCTET + lane % 4 * 2;
    }
    /* Adds the products with one step's weights in the ring's next slot, and moves on. x: zeros for tokens beyond the
     * end, as in chain_tile */
    template <code_scaling HOW, int SLOTS>
    __device__ __forceinline__ void add(float (&sum)[4], uint4 (&x)[EIGHTS], const weight_ring<SLOTS> &ring,
                                        const chain_args &a, const chain_shared &sh)
    {
        const bool INTEGERS = FORM != FORM_E4M3;
        const bool mine = (int)threadIdx.x % 32 / 4 < a.n_tokens,
                   scaled = HOW == SCALES_ANY ? a.group_maps != nullptr : HOW != SCALES_ROWS,
                   own = HOW == SCALES_ANY ? a.group_zeros : HOW == SCALES_ZEROS;
        const char *weights = ring.weights(sh), *all = sh.base + a.at.groups;
        const char *scales = all + ring.slot * group_scale_bytes(FORM);
        const char *zeros = all + SLOTS * group_scale_bytes(FORM) + ring.slot * group_zero_bytes(FORM);
        float part[4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) { /* 64 bytes of each row */
            const int group = half * GROUPS / 2;
            uint4 w[2];
#pragma unroll
            for (int r = 0; r < 2; r++)
                w[r] = *(const uint4 *)(weights + (at[r] ^ half * 64));
#pragma unroll
            for (int k = 0; k < EIGHTS; k++)
                if (mine)
                    x[k] = *(const uint4 *)(input + (half * EIGHTS + k) * a.n_tokens * 32);
            if (INTEGERS && (half == 0 || GROUPS == 2))
                groups.begin(part, *(const float2 *)(sums + group * CHAIN_OCTET), zeros + group, own);
            code_multiply<FORM>(part, w, x);
            if (half == 1 || GROUPS == 2)
                groups.add(sum, part, scaled ? scales + group * 4 : nullptr);
        }
        input += 2 * EIGHTS * a.n_tokens * 32;
        sums += GROUPS * CHAIN_OCTET;
    }
};

/* A lane's sums to the warp's part of `partial`. */
template <typename T, chain_form FORM>
__device__ static inline void code_keep(const chain_args &a, float *partial, int warp, const float (&sum)[4])
{
    const float GAIN =
        (std::is_same<T, __nv_bfloat16>::value ? 1 / INPUT_HALF_SCALE : 1) * (FORM != FORM_E4M3 ? INTEGER_UNIT : 1);
    int lane = threadIdx.x % 32, row = weight_row(lane / 4);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (lane % 4 * 2 + i % 2 < a.n_tokens)
            partial[(warp * a.n_tokens + lane % 4 * 2 + i % 2) * CHAIN_ROWS + i / 2 * CHAIN_OCTET + row] =
                sum[i] * GAIN;
}

/* One tile's products, as in chain_tile. */
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void code_tile(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                 const chain_share &share, int n, bool gated, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    code_lane<FORM, T> rows(a, sh, share, n, gated, warp);
    float sum[4] = {};
    uint4 x[code_columns(FORM) / 8] = {};
    for (int step = 0; step < share.n_steps; step++) {
        barrier_wait(ring.filled(), ring.round);
        rows.template add<SCALES_ANY>(sum, x, ring, a, sh);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    }
    code_keep<T, FORM>(a, partial, warp, sum);
}

#define CODE_TEAMS 2
#define TEAM_WARPS (CHAIN_WARPS / CODE_TEAMS)
static_assert(NARROW_TOKENS <= TEAM_WARPS && TEAM_WARPS % FINISH_PARTS == 0, "see chain_finish_tile");

__device__ static inline void team_sync(int team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(3 + team), "n"(TEAM_WARPS * 32) : "memory");
}

/* Another team has these slots. */
template <int SLOTS>
__device__ static inline void code_pass(weight_ring<SLOTS> &ring, int n_steps)
{
    for (int step = 0; step < n_steps; step++) {
        barrier_wait(ring.filled(), ring.round);
        if (threadIdx.x % 32 == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    }
    __syncwarp();
}

/* One tile's products by the TEAM_WARPS warps of a team: a warp has two areas. */
template <typename T, chain_form FORM, code_scaling HOW, int SLOTS>
__device__ __forceinline__ static void code_team_tile(weight_ring<SLOTS> &ring, const chain_args &a,
                                                      const chain_shared &sh, const chain_share &share, int n,
                                                      bool gated, float *partial)
{
    static_assert(CODE_TEAMS == 2, "two areas");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % TEAM_WARPS;
    code_lane<FORM, T> first(a, sh, share, n, gated, 2 * warp), second(a, sh, share, n, gated, 2 * warp + 1);
    float sum[4] = {};
    uint4 x[code_columns(FORM) / 8] = {};
    for (int step = 0; step < share.n_steps; step++) {
        barrier_wait(ring.filled(), ring.round);
        first.template add<HOW>(sum, x, ring, a, sh);
        second.template add<HOW>(sum, x, ring, a, sh);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    }
    code_keep<T, FORM>(a, partial, warp, sum);
}

/* The tiles of a product with quantised weights: a tile is for half of the warps, which take turns. A tile of codes has
 * few bytes, so the end of a tile, where its warps wait for each other and one of them adds up their sums, would take
 * much of the time if all of them waited. */
template <typename T, chain_form FORM, code_scaling HOW, int SLOTS>
__device__ __forceinline__ static void
code_team_tiles_of(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh, const chain_product &p,
                   const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch)
{
    const int team = threadIdx.x / 32 / TEAM_WARPS, size = TEAM_WARPS * a.n_tokens * CHAIN_ROWS;
    chain_sync(); /* a warp reads what two have stored */
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        if (count.tiles % CODE_TEAMS != team) {
            code_pass(ring, share.n_steps);
            continue;
        }
        int turn = count.tiles / CODE_TEAMS;
        float *partial = sh.at<float>(a.at.partial) + (team * 2 + turn % 2) * size;
        code_team_tile<T, FORM, HOW>(ring, a, sh, share, chain_tile_rows(share, tile), p.gated, partial);
        team_sync(team);
        chain_finish_tile<T, TEAM_WARPS>(a, sh, p, share, tile, turn % TEAM_WARPS, partial, bias, scales, epoch);
    }
    chain_sync(); /* the next input, or attention's scratch, overwrites this one */
}

template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void
code_team_tiles(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh, const chain_product &p,
                const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch)
{
    if (a.group_maps == nullptr)
        code_team_tiles_of<T, FORM, SCALES_ROWS>(ring, a, sh, p, share, count, bias, scales, epoch);
    else if (FORM == FORM_E4M3 || !a.group_zeros)
        code_team_tiles_of<T, FORM, SCALES_GROUPS>(ring, a, sh, p, share, count, bias, scales, epoch);
    else
        code_team_tiles_of<T, FORM, SCALES_ZEROS>(ring, a, sh, p, share, count, bias, scales, epoch);
}

#endif
