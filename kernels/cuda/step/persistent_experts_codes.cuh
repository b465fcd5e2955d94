/* kernels/cuda/step/persistent_experts_codes.cuh - products of experts with quantised weights: E4M3 with scales of rows
 * or of GROUP_COLUMNS columns, E2M1 with exponents of SMALL_GROUP columns. As in persistent_code_tile.cuh weights are
 * the operand with 16 rows, activations are f16, times INPUT_HALF_SCALE where they were bf16, and a group's scale
 * multiplies the sum of its products, in float.
 *
 * With E2M1 the lanes of a quad have eight columns each of one group, so that an instruction sums one group only: a
 * row's 16 bytes of a group are one row of a matrix of 8 x 8 16-bit numbers. In kernels for one token on one rank each
 * lane has a group of its own instead, which takes fewer instructions: of the products' eight columns every second one
 * has x in the columns of one lane of each quad, and zeros, so a lane's results are those of its own groups. The bits
 * of E2M1, moved to their positions in f16, are 2^-14 of their value, also when subnormal. */
#ifndef STEP_PERSISTENT_EXPERTS_CODES_CUH
#define STEP_PERSISTENT_EXPERTS_CODES_CUH

#include "kernels/cuda/step/persistent_code_tile.cuh"
#include "kernels/cuda/step/persistent_experts_scales.cuh"

#define SMALL_GROUP 32 /* columns of a scale of E2M1 */

/* Do the lanes of a quad have columns of one group of E2M1, or each of its own? */
template <chain_form FORM>
constexpr bool CODES_SHARED = CHAIN_LONE != 1 && FORM == FORM_E2M1;
template <chain_form FORM>
constexpr bool CODES_APART = CHAIN_LONE == 1 && FORM == FORM_E2M1;

/* Is this one of the lanes with the token's x if groups are apart? Lane i of a quad has column 2 i of the products. */
__device__ static inline bool code_lane_has_x(void)
{
    return threadIdx.x % 32 % 9 == 0;
}

/* Columns per warp and step. */
template <chain_form FORM>
constexpr int EXPERT_WARP_COLUMNS = 8 * code_columns(FORM);

/* Compensates for the factors of the activations and of the codes. */
template <typename T, chain_form FORM>
constexpr float EXPERT_GAIN = (std::is_same<T, __nv_bfloat16>::value ? 1 / INPUT_HALF_SCALE : 1) *
                              (FORM == FORM_E2M1 ? 16384.0f : 1.0f);

/* The index of 8 of a warp's columns, from `column` on, among its groups of eight: the lanes of a quad multiply four
 * consecutive ones. */
template <chain_form FORM>
__device__ static inline int eight_place(int column)
{
    const int LANE = code_columns(FORM), QUAD = 4 * LANE;
    if (CODES_SHARED<FORM>)
        return column / 8;
    return column / QUAD * (QUAD / 8) + column % LANE / 8 * 4 + column / LANE % 4;
}

/* A lane's two rows of a tile, row g and row g + 8 of the products' operand. */
template <chain_form FORM>
struct code_rows {
    int weight[2]; /* offset of the lane's data in a slot, in bytes */
    int scale[2];  /* offset of the row's first scale in a slot, in bytes */

    /* n: rows of a box; at: its offset in a slot; up: the offset of the second half's rows; < 0: they are the box's
     * from the eighth on. warp: by its part of the columns */
    __device__ code_rows(int n, int at, int up, int warp)
    {
        weight[0] = at + place(n, warp, 0);
        weight[1] = up >= 0 ? weight[0] - at + up : at + place(n, warp, CHAIN_OCTET);
    }
    /* at: offset in a slot of the scales of the rows from `first` on; up_at, up: the same for the second half; up < 0:
     * they follow. skip: rows from there to the tile's */
    __device__ void set_scales(int at, int first, int skip, int up_at, int up, int pitch)
    {
        int row = (weight_row((int)threadIdx.x % 32 / 4) + skip) * pitch;
        scale[0] = at + scales_begin(first, pitch) + row;
        scale[1] = up >= 0 ? up_at + scales_begin(up, pitch) + row : scale[0] + 8 * pitch;
    }
    /* The 16 bytes of one of 8 rows, from row r on, that the lane reads, or whose address it passes to tensor_load:
     * then of group lane / 8. */
    __device__ static int place(int n, int warp, int r)
    {
        const bool SHARED = CODES_SHARED<FORM>;
        int lane = threadIdx.x % 32, part = SHARED ? lane / 8 : lane % 4;
        int row = warp * n + r + weight_row(SHARED ? lane % 8 : lane / 4);
        return row * 128 + (part ^ row % 8) * 16;
    }
};

/* The operands of a warp's step. */
struct code_step {
    const char *slot; /* weights and scales */
    const __half *x;  /* this lane's part of its token's columns; NULL: there is no such token */
    int stride;       /* distance between units of four groups of eight, in elements */
    int group, last;  /* the warp's first group in the row; the row's last group */
};

template <chain_form FORM>
__device__ static inline uint4 step_input(const code_step &s, int four)
{
    return s.x != nullptr ? *(const uint4 *)(s.x + four * s.stride) : make_uint4(0, 0, 0, 0);
}

/* sum += part times a scale for each of the two rows. */
__device__ static inline void add_scaled(float (&sum)[4], const float (&part)[4], float low, float high)
{
    sum[0] = fmaf(part[0], low, sum[0]);
    sum[1] = fmaf(part[1], low, sum[1]);
    sum[2] = fmaf(part[2], high, sum[2]);
    sum[3] = fmaf(part[3], high, sum[3]);
}

/* Adds the products of a slot over the warp's columns; each half has sums of its own, which makes them independent. */
__device__ static inline void multiply_e4m3(float (&sum)[4], const code_rows<FORM_E4M3> &rows, const code_step &s)
{
    float part[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 w[2], x[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            w[r] = *(const uint4 *)(s.slot + (rows.weight[r] ^ half * 64));
            x[r] = step_input<FORM_E4M3>(s, half * 2 + r);
        }
        code_multiply<FORM_E4M3>(part[half], w, x);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        part[0][i] += part[1][i];
    int group = min(s.group, s.last) * (int)sizeof(float);
    add_scaled(sum, part[0], *(const float *)(s.slot + rows.scale[0] + group),
               *(const float *)(s.slot + rows.scale[1] + group));
}

/* 2^(b - 127) */
__device__ static inline float exponent_value(const char *b)
{
    return __uint_as_float(max((uint32_t) * (const uint8_t *)b << 23, 0x00400000u));
}
/* The same in one instruction less. */
__device__ static inline float exponent_value_lone(const char *b)
{
    uint32_t bits = (uint32_t) * (const uint8_t *)b << 23;
    asm("max.u32 %0, %0, 0x00400000;" : "+r"(bits));
    return __uint_as_float(bits);
}

/* c = a b, see tensor_mma. */
__device__ static inline void half_product(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                           uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%10,%10,%10,%10};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

/* Groups after a row's last one meet activations of 0, whatever their codes are, and the last group's scale. For a
 * quad's rows each lane converts two groups' exponents, and shuffles them to the others. ROWS: 1: there are no rows g +
 * 8 */
template <int ROWS>
__device__ static inline void multiply_e2m1(float (&sum)[4], const code_rows<FORM_E2M1> &rows, const code_step &s)
{
    const __half *from = s.x;
    uint4 x[2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t w[2][4];
        float value[2] = {};
        int group = min(s.group + half * 4 + (int)threadIdx.x % 4, s.last);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            tensor_load(w[r], s.slot + (rows.weight[r] ^ half * 64));
            value[r] = exponent_value(s.slot + rows.scale[r] + group);
        }
#pragma unroll
        for (int k = 0; k < 4; k++, from += s.stride) {
            uint32_t a[2][4] = {};
            float part[4];
            if (s.x != nullptr)
                x[k % 2] = *(const uint4 *)from;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                code_pairs<__half, CODES_E2M1>::decode_small(a[r], w[r][k]);
            half_product(part, a[0][0], a[1][0], a[0][2], a[1][2], x[k % 2].x, x[k % 2].y);
            tensor_mma<__half>(part, a[0][1], a[1][1], a[0][3], a[1][3], x[k % 2].z, x[k % 2].w);
            float low = __shfl_sync(0xffffffffu, value[0], k, 4);
            add_scaled(sum, part, low, ROWS > 1 ? __shfl_sync(0xffffffffu, value[1], k, 4) : 0.0f);
        }
    }
}

/* The same for one token on one rank, each lane with its own groups. */
template <int ROWS>
__device__ static inline void multiply_e2m1_lone(float (&sum)[4], const code_rows<FORM_E2M1> &rows, const code_step &s)
{
    uint4 w[2][2] = {}, x[2] = {};
    float value[2][2] = {}, part[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int group = min(s.group + half * 4 + (int)threadIdx.x % 4, s.last);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            w[half][r] = *(const uint4 *)(s.slot + (rows.weight[r] ^ half * 64));
            value[half][r] = exponent_value_lone(s.slot + rows.scale[r] + group);
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int half = 0; half < 2; half++) { /* independent of each other */
            uint32_t a[2][4] = {};
            if (s.x != nullptr)
                x[half] = *(const uint4 *)(s.x + (half * 4 + k) * s.stride);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                code_pairs<__half, CODES_E2M1>::decode_small(a[r], (&w[half][r].x)[k]);
            if (k == 0)
                half_product(part[half], a[0][0], a[1][0], a[0][2], a[1][2], x[half].x, x[half].y);
            else
                tensor_mma<__half>(part[half], a[0][0], a[1][0], a[0][2], a[1][2], x[half].x, x[half].y);
            tensor_mma<__half>(part[half], a[0][1], a[1][1], a[0][3], a[1][3], x[half].z, x[half].w);
        }
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[2 * r] = fmaf(part[half][2 * r], value[half][r], sum[2 * r]);
}

/* The products of a tile in a slot. ROWS: see multiply_e2m1 */
template <chain_form FORM, int ROWS>
__device__ static inline void multiply_codes(float (&sum)[4], const code_rows<FORM> &rows, const code_step &s)
{
    if constexpr (CODES_SHARED<FORM>)
        multiply_e2m1<ROWS>(sum, rows, s);
    else if constexpr (FORM == FORM_E2M1)
        multiply_e2m1_lone<ROWS>(sum, rows, s);
    else
        multiply_e4m3(sum, rows, s);
}

/* A warp's columns in all steps: its first one, the number of the matrix's columns; x, stride: see code_step, for the
 * first step; step_stride: distance to the next step's x, in elements. */
struct code_columns_of {
    int column, cols, n_steps;
    const __half *x;
    int stride, step_stride;
};

/* A warp's columns of one expert's rows, through all steps, in one tile or two: sum[.][i] of token lane % 4 * 2 + i %
 * 2, row g or, from sum[.][2] on, g + 8. more: rows of the second tile */
template <chain_form FORM, int TILES, int SLOTS>
__device__ static inline void expert_code_sums(weight_ring<SLOTS> &ring, const chain_shared &sh,
                                               const code_rows<FORM> (&rows)[TILES], int more,
                                               const code_columns_of &of, int pitch, float (&sum)[TILES][4])
{
    const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, GROUP = FORM == FORM_E2M1 ? SMALL_GROUP : GROUP_COLUMNS;
    const int SCALE = FORM == FORM_E2M1 ? 1 : (int)sizeof(float);
    int column = of.column;
    code_step s = {nullptr, of.x, of.stride, 0, pitch / SCALE - 1};
    for (int step = 0; step < of.n_steps; step++, column += CHAIN_WARPS * COLUMNS) {
        s.group = column / GROUP;
        barrier_wait(ring.filled(), ring.round);
        s.slot = ring.weights(sh);
        if (column < of.cols) {
            multiply_codes<FORM, 2>(sum[0], rows[0], s);
            if (TILES > 1 && more > CHAIN_OCTET)
                multiply_codes<FORM, 2>(sum[TILES - 1], rows[TILES - 1], s);
            else if (TILES > 1 && more > 0)
                multiply_codes<FORM, 1>(sum[TILES - 1], rows[TILES - 1], s);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
        s.x = s.x != nullptr ? s.x + of.step_stride : nullptr;
    }
}

/* Stores a lane's sums to its warp's part of a tile's. */
template <chain_form FORM>
__device__ static inline void expert_keep_codes(const expert_args &a, float (&sum)[4], float gain, float *partial)
{
    int lane = threadIdx.x % 32, t = lane % 4 * 2;
    if constexpr (CODES_APART<FORM>)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
        }
    float *to = partial + ((int)threadIdx.x / 32 * a.n_tokens + t) * CHAIN_ROWS + weight_row(lane / 4);
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (t + i < a.n_tokens) {
            to[i * CHAIN_ROWS] = sum[i] * gain;
            to[i * CHAIN_ROWS + CHAIN_OCTET] = sum[2 + i] * gain;
        }
}

/* A lane's part in the tiles of the first product: values that depend on the height only are kept from tile to tile. */
template <chain_form FORM>
struct code_firsts {
    static constexpr int FOURS = EXPERT_WARP_COLUMNS<FORM> / 32;
    const __half *x; /* see expert_code_sums */
    int height = 0;  /* rows of the preceding tile */
    coded_slot slot = coded_slot(0, 0, false, 0, 0);
    code_rows<FORM> rows[1] = {code_rows<FORM>(0, 0, -1, 0)};

    __device__ code_firsts(const expert_args &a, const chain_shared &sh)
    {
        int lane = threadIdx.x % 32, t = CODES_APART<FORM> ? 0 : lane / 4, warp = threadIdx.x / 32;
        const bool has = CODES_APART<FORM> ? code_lane_has_x() : t < a.n_tokens;
        const __half *input = sh.at<__half>(a.codes.input) + t * 32 + lane % 4 * 8;
        x = has ? input + warp * sh.share[2].n_steps * FOURS * a.n_tokens * 32 : nullptr;
    }
    /* A lane's sums of one tile: n rows of weights from row `first` on (of each half where there are ups, from row `up`
     * on; up < 0: there are none). */
    template <int SLOTS>
    __device__ void multiply(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh, int n, int first,
                             int up, float (&sum)[1][4])
    {
        const int pitch = a.codes.pitch[0], stride = a.n_tokens * 32;
        if (n != height) {
            height = n;
            slot = coded_slot(n, up >= 0 ? n : 0, up >= 0, a.codes.pieces[0], pitch);
            rows[0] = code_rows<FORM>(n, 0, up >= 0 ? slot.second : -1, (int)threadIdx.x / 32);
        }
        rows[0].set_scales(slot.scales, first, 0, slot.up_scales, up, pitch);
        const code_columns_of of = {(int)threadIdx.x / 32 * EXPERT_WARP_COLUMNS<FORM>,
                                    a.product[2].cols,
                                    sh.share[2].n_steps,
                                    x,
                                    stride,
                                    FOURS * stride};
        expert_code_sums<FORM, 1>(ring, sh, rows, 0, of, pitch, sum);
    }
};

/* Converts 8 columns in the order of input_units::store for the first product: to f16, and for E2M1 to the order of its
 * pairs. */
template <typename T, chain_form FORM>
__device__ static inline uint4 recoded(uint4 plain)
{
    uint32_t w[4] = {plain.x, plain.z, plain.y, plain.w};
#pragma unroll
    for (uint32_t &pair : w)
        if (std::is_same<T, __nv_bfloat16>::value)
            pair = input_units<T, FORM>::half_pair(pair);
    if (FORM != FORM_E2M1)
        return make_uint4(w[0], w[1], w[2], w[3]);
    return make_uint4(codes_pick(w[0], w[2], 0x5410), codes_pick(w[1], w[3], 0x5410), codes_pick(w[0], w[2], 0x7632),
                      codes_pick(w[1], w[3], 0x7632));
}

/* Columns of a token's activations for the first product; some warps may have none in the last steps. */
template <chain_form FORM>
__host__ __device__ static inline int recoded_columns(int cols)
{
    const int WARP = EXPERT_WARP_COLUMNS<FORM>, STEP = CHAIN_WARPS * WARP, UNIT = cols > STEP ? STEP : WARP;
    return (cols + UNIT - 1) / UNIT * UNIT;
}

/* Converts the router's activations in shared memory for the first product, which cannot begin before the choice is
 * made. Zeros beyond the last column. */
template <typename T, chain_form FORM>
__device__ static inline void expert_recode(const expert_args &a, const chain_shared &sh)
{
    const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, EIGHTS = COLUMNS / 8, WARPS = CHAIN_WARPS * EIGHTS;
    const int n_steps = sh.share[2].n_steps, plain_spans = expert_choice_of(a, sh)->router.n_spans,
              n = recoded_columns<FORM>(a.product[2].cols) / 8;
    chain_sync(); /* in a block without a tile of the router the warps have not synchronised yet */
#pragma unroll 1
    for (int i = threadIdx.x; i < n * a.n_tokens; i += CHAIN_THREADS) {
        int t = i / n, eight = i - t * n, column = eight * 8;
        int warp = eight / EIGHTS % CHAIN_WARPS, step = eight / WARPS, place = eight_place<FORM>(column % COLUMNS);
        uint4 x = make_uint4(0, 0, 0, 0);
        if (column < a.product[2].cols) {
            int piece = column / (CHAIN_WARPS * STEP_COLUMNS) * 2 + column % STEP_COLUMNS / 32;
            int from = chain_input_at(column / STEP_COLUMNS % CHAIN_WARPS, plain_spans, piece, a.n_tokens, t);
            x = recoded<T, FORM>(*(const uint4 *)(sh.at<T>(a.at.input) + from + column % 32));
        }
        int four = (warp * n_steps + step) * (EIGHTS / 4) + place / 4;
        *(uint4 *)(sh.at<__half>(a.codes.input) + (four * a.n_tokens + t) * 32 + place % 4 * 8) = x;
    }
}

/* The end of the columns of an input's units. */
__device__ static inline int expert_units_end(int columns)
{
    const int STEP = CHAIN_WARPS * STEP_COLUMNS;
    return (columns + STEP - 1) / STEP * STEP;
}

/* The units of an input that go to shared memory as expert_recode leaves it, where the router does not need them. */
template <typename T, chain_form FORM>
struct recoded_units : input_units<T, FORM_NONE> {
    typedef input_units<T, FORM_NONE> plain;
    __half *to;
    int n_steps, end; /* end: of the columns that are stored */

    __device__ recoded_units(const expert_args &a, const chain_shared &sh)
        : plain(a, sh, expert_choice_of(a, sh)->router, a.product[2].cols), to(sh.at<__half>(a.codes.input)),
          n_steps(sh.share[2].n_steps), end(recoded_columns<FORM>(a.product[2].cols))
    {
    }
    /* The place of the eight columns that include this one. */
    __device__ __half *eight_of(int column) const
    {
        const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, FOURS = COLUMNS / 32,
                  place = eight_place<FORM>(column % COLUMNS);
        int warp = column / COLUMNS % CHAIN_WARPS, step = column / (CHAIN_WARPS * COLUMNS);
        return to + ((warp * n_steps + step) * FOURS + place / 4) * 32 + place % 4 * 8;
    }
    /* Two neighbouring lanes have eight columns, the even lane the lower four. */
    __device__ void store(int i, int, uint2 x) const
    {
        int first = this->column + this->offset(i);
        if (std::is_same<T, __nv_bfloat16>::value)
            x = make_uint2(plain::half_pair(x.x), plain::half_pair(x.y));
        if (FORM == FORM_E2M1)
            x = plain::pair_up(x);
        if (first < end)
            *(uint2 *)(eight_of(first) + threadIdx.x % 2 * 4) = x;
    }
    /* Zeros beyond the columns that all units cover. */
    __device__ void store_rest(void) const
    {
        int begin = expert_units_end(this->columns);
        for (int column = begin + (int)threadIdx.x * 8; column < end; column += CHAIN_THREADS * 8)
            *(uint4 *)eight_of(column) = make_uint4(0, 0, 0, 0);
    }
};

#endif
