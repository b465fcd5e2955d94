/* kernels/cuda/step/persistent_digit_tile.cuh - a tile's products of weights in INT4 with one token, as products of
 * integers (persistent_digits.cuh). One token leaves seven of the eight columns of a tensor-core instruction to spare.
 * Here a warp has four groups of a step, and the two digits of each have two columns, with zeros in the rows of other
 * groups: so the sums of a lane are those of one group, which alone it scales. Four neighbouring weights become bytes
 * by one mask; those of odd columns are 4 bits higher, 16 times as large, and have sums of their own. Sums of integers
 * are exact. */
#ifndef STEP_PERSISTENT_DIGIT_TILE_CUH
#define STEP_PERSISTENT_DIGIT_TILE_CUH

#include "kernels/cuda/step/persistent_code_tile.cuh"
#include "kernels/cuda/step/persistent_digits.cuh"

#define DIGIT_AREAS  CODE_TEAMS        /* of a warp, see code_groups_at */
#define DIGIT_GROUPS (2 * DIGIT_AREAS) /* of a warp in a step */

/* sum += a b: a of 16 rows and 32 columns, unsigned; b of 32 rows and 8 columns. */
__device__ static inline void digit_mma(int (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The sums of a step: rows g and g + 8, high and low digits. */
struct digit_sums {
    int even[4], odd[4];

    __device__ digit_sums()
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            even[i] = 0;
            odd[i] = DIGIT_BITS;
        }
    }
    /* Adds the products of 64 bytes of rows g and g + 8. x: digits of even columns, of odd ones */
    __device__ void add(const uint4 &a, const uint4 &b, const uint4 (&x)[2])
    {
        const uint32_t EVEN = 0x0f0f0f0fu, ODD = 0xf0f0f0f0u;
        digit_mma(even, a.x & EVEN, b.x & EVEN, a.y & EVEN, b.y & EVEN, x[0].x, x[0].y);
        digit_mma(odd, a.x & ODD, b.x & ODD, a.y & ODD, b.y & ODD, x[1].x, x[1].y);
        digit_mma(even, a.z & EVEN, b.z & EVEN, a.w & EVEN, b.w & EVEN, x[0].z, x[0].w);
        digit_mma(odd, a.z & ODD, b.z & ODD, a.w & ODD, b.w & ODD, x[1].z, x[1].w);
    }
    /* As digit_factors takes it. */
    __device__ float all(int i) const
    {
        return __int_as_float(even[i] * 16 + odd[i]);
    }
};

/* A lane's two rows of a tile, and its activations. warp: of the team. Offsets are in bytes, in shared memory or, of
 * weights, in a slot. */
template <code_scaling HOW>
struct digit_lane {
    static constexpr int SCALES = group_scale_bytes(FORM_INT4), ZEROS = group_zero_bytes(FORM_INT4);
    int n, at[DIGIT_AREAS], up; /* rows of the tile; where the first row's weights are, how far behind the second's */
    int scale, zero, factors;   /* of the lane's group; scale, zero: of the first row, in the first slot */
    int digits, group;          /* of the group whose digits the lane has */
    uint4 x[DIGIT_GROUPS][2];   /* digits of even columns, of odd ones; zeros if they are another lane's */

    template <int SLOTS>
    __device__ void open(const chain_args &a, const chain_share &share, int warp)
    {
        const int lane = threadIdx.x % 32, row = weight_row(lane / 4), mine = lane % 4, first = DIGIT_AREAS * warp;
        const code_groups_at<FORM_INT4> groups(first, row);
        n = 0;
        scale = a.at.groups + groups.scale + mine * (int)sizeof(float);
        zero = a.at.groups + SLOTS * SCALES + groups.zero + mine;
        factors = a.at.sums + ((first + mine / 2) * share.n_spans / 2 + mine % 2) * (int)sizeof(struct digit_factors);
        group = lane / 8;
        asm volatile("" : "+r"(group)); /* else the compiler computes it again and again */
        digits = a.at.input + 2 * chain_input_at(first + group / 2, share.n_spans, 0, 1, 0) + group % 2 * 256 +
                 lane / 4 % 2 * 64 + mine * 16;
#pragma unroll
        for (int i = 0; i < DIGIT_GROUPS; i++)
            x[i][0] = x[i][1] = make_uint4(0, 0, 0, 0);
    }
    /* Turns to a tile of that many rows. */
    __device__ void place(int rows, bool gated, int warp)
    {
        if (n == rows)
            return;
        n = rows;
        up = gated ? RING_SLOT_BYTES / 2 : CHAIN_OCTET * 128;
#pragma unroll
        for (int i = 0; i < DIGIT_AREAS; i++)
            at[i] = code_at(DIGIT_AREAS * warp + i, n, weight_row((int)threadIdx.x % 32 / 4));
    }
    __device__ void load(const chain_shared &sh, int step)
    {
        const char *from = sh.base + digits + step * 512;
#pragma unroll
        for (int i = 0; i < DIGIT_GROUPS; i++)
            if (group == i) {
                x[i][0] = *(const uint4 *)from;
                x[i][1] = *(const uint4 *)(from + 128);
            }
    }
    /* Adds the products with one step's weights in the ring's next slot to the sums of the two rows. */
    template <int SLOTS>
    __device__ __forceinline__ void add(float (&sum)[2], int step, const weight_ring<SLOTS> &ring,
                                        const chain_shared &sh) const
    {
        const char *weights = ring.weights(sh), *scales = sh.base + scale + ring.slot * SCALES;
        digit_sums d;
#pragma unroll
        for (int i = 0; i < DIGIT_GROUPS; i++) {
            const char *w = weights + (at[i / 2] ^ i % 2 * 64);
            d.add(*(const uint4 *)w, *(const uint4 *)(w + up), x[i]);
        }
        const digit_factors f = *(const digit_factors *)(sh.base + factors + step * 2 * (int)sizeof f);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float s = HOW == SCALES_ROWS ? 1 : *(const float *)(scales + r * SCALES / 2);
            float low = fmaf(d.all(2 * r + 1), f.low_u, f.low_c);
            if (HOW == SCALES_ZEROS) {
                const float z = *(const uint8_t *)(sh.base + zero + ring.slot * ZEROS + r * ZEROS / 2);
                low = fmaf(z / 8 - 1, fmaf(DIGIT_FLOAT, f.low_u, f.low_c), low);
            }
            sum[r] = fmaf(fmaf(d.all(2 * r), f.high_u, f.high_c), s, sum[r]);
            sum[r] = fmaf(low, s, sum[r]);
        }
    }
    /* The sums over a quad's groups to the warp's part of `partial`. */
    __device__ static void keep(float *partial, const float (&sum)[2], int warp)
    {
        const int lane = threadIdx.x % 32;
        const bool second = lane % 2 != 0;
        float all = (second ? sum[1] : sum[0]) + __shfl_xor_sync(0xffffffffu, second ? sum[0] : sum[1], 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        if (lane % 4 < 2)
            partial[warp * CHAIN_ROWS + lane % 2 * CHAIN_OCTET + weight_row(lane / 4)] = all;
    }
    /* One tile's products; the digits of a tile of one step are loaded already. */
    template <int SLOTS>
    __device__ __forceinline__ void tile(weight_ring<SLOTS> &ring, const chain_shared &sh, int n_steps, float *partial,
                                         int warp)
    {
        float sum[2] = {};
        for (int step = 0; step < n_steps; step++) {
            if (n_steps > 1)
                load(sh, step);
            barrier_wait(ring.filled(), ring.round);
            add(sum, step, ring, sh);
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                barrier_arrive(ring.emptied());
            ring.advance();
        }
        keep(partial, sum, warp);
    }
};

/* As code_team_tiles_of. */
template <typename T, code_scaling HOW, int SLOTS>
__device__ __forceinline__ static void
digit_tiles_of(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh, const chain_product &p,
               const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch)
{
    const int team = threadIdx.x / 32 / TEAM_WARPS, warp = threadIdx.x / 32 % TEAM_WARPS,
              size = TEAM_WARPS * CHAIN_ROWS;
    chain_sync(); /* a warp reads what two have stored */
    digit_lane<HOW> lane;
    lane.template open<SLOTS>(a, share, warp);
    lane.load(sh, 0);
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        if (count.tiles % CODE_TEAMS != team) {
            code_pass(ring, share.n_steps);
            continue;
        }
        int turn = count.tiles / CODE_TEAMS;
        float *partial = sh.at<float>(a.at.partial) + (team * 2 + turn % 2) * size;
        lane.place(chain_tile_rows(share, tile), p.gated, warp);
        lane.tile(ring, sh, share.n_steps, partial, warp);
        team_sync(team);
        chain_finish_tile<T, TEAM_WARPS>(a, sh, p, share, tile, turn % TEAM_WARPS, partial, bias, scales, epoch);
    }
    chain_sync(); /* the next input, or attention's scratch, overwrites this one */
}

template <typename T, int SLOTS>
__device__ __forceinline__ static void
digit_tiles(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh, const chain_product &p,
            const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch)
{
    if (a.group_maps == nullptr)
        digit_tiles_of<T, SCALES_ROWS>(ring, a, sh, p, share, count, bias, scales, epoch);
    else if (!a.group_zeros)
        digit_tiles_of<T, SCALES_GROUPS>(ring, a, sh, p, share, count, bias, scales, epoch);
    else
        digit_tiles_of<T, SCALES_ZEROS>(ring, a, sh, p, share, count, bias, scales, epoch);
}

/* The tiles of all kernels for one token. */
#define DIGIT_TILES(T, SLOTS)                                                                                 \
    template <>                                                                                               \
    __device__ __forceinline__ void code_team_tiles<T, FORM_INT4>(                                            \
        weight_ring<SLOTS> & ring, const chain_args &a, const chain_shared &sh, const chain_product &p,       \
        const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch) \
    {                                                                                                         \
        digit_tiles<T>(ring, a, sh, p, share, count, bias, scales, epoch);                                    \
    }
DIGIT_TILES(__half, 5)
DIGIT_TILES(__half, 4)
DIGIT_TILES(__half, 3)
DIGIT_TILES(__half, 2)
DIGIT_TILES(__nv_bfloat16, 5)
DIGIT_TILES(__nv_bfloat16, 4)
DIGIT_TILES(__nv_bfloat16, 3)
DIGIT_TILES(__nv_bfloat16, 2)
#undef DIGIT_TILES

#endif
