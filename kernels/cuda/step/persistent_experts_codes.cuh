/* kernels/cuda/step/persistent_experts_codes.cuh - products of experts whose weights are codes: E4M3 with scales of
 * rows or of GROUP_COLUMNS columns, E2M1 with exponents of SMALL_GROUP columns. As in persistent_code_tile.cuh weights
 * are the operand with 16 rows, activations are f16, times INPUT_HALF_SCALE where they were bf16, and a group's scale
 * multiplies the sum of its products, in float.
 *
 * Of E2M1 the lanes of a quad have eight columns each of one group, so that the tensor cores add up no others: a row's
 * 16 bytes of a group are one row of a matrix of 8 x 8 numbers of 16 bits. The bits of E2M1, put where f16 has its own,
 * are 2^-14 of what they stand for, subnormal ones too. */
#ifndef STEP_PERSISTENT_EXPERTS_CODES_CUH
#define STEP_PERSISTENT_EXPERTS_CODES_CUH

#include "kernels/cuda/step/persistent_code_tile.cuh"
#include "kernels/cuda/step/persistent_experts_scales.cuh"

#define SMALL_GROUP 32 /* columns of a scale of E2M1 */

/* Columns of a warp in a step. */
template <chain_form FORM>
constexpr int EXPERT_WARP_COLUMNS = 8 * code_columns(FORM);

/* Makes up for the activations' factor and that of the codes. */
template <typename T, chain_form FORM>
constexpr float EXPERT_GAIN = (std::is_same<T, __nv_bfloat16>::value ? 1 / INPUT_HALF_SCALE : 1) *
                              (FORM == FORM_E2M1 ? 16384.0f : 1.0f);

/* The place of 8 of a warp's columns, from `column` on, among its eights: four that follow each other are multiplied by
 * the lanes of a quad. */
template <chain_form FORM>
__device__ static inline int eight_place(int column)
{
    const int LANE = code_columns(FORM), QUAD = 4 * LANE;
    if (FORM == FORM_E2M1)
        return column / 8;
    return column / QUAD * (QUAD / 8) + column % LANE / 8 * 4 + column / LANE % 4;
}

/* A lane's two rows of a tile, row g and row g + 8 of the products' operand. */
template <chain_form FORM>
struct code_rows {
    int weight[2]; /* bytes in a slot to what the lane reads */
    int scale[2];  /* bytes in a slot's scales to the row's first one */

    /* n: rows of a tile, of each half where there are ups; first, up: the number of its first one, and of ups; up < 0:
     * no ups. slot: expert_codes' */
    __device__ code_rows(int n, int first, int up, int pitch, int slot)
    {
        int row = weight_row((int)threadIdx.x % 32 / 4);
        set_scales(first, up, pitch, slot);
        if (FORM == FORM_E2M1) {
            weight[0] = matrix_at(n, weight_row((int)threadIdx.x % 8));
            weight[1] = up >= 0 ? RING_SLOT_BYTES / 2 + weight[0] : matrix_at(n, weight_row((int)threadIdx.x % 8) + 8);
        } else {
            weight[0] = weight_at(n, row);
            weight[1] = up >= 0 ? RING_SLOT_BYTES / 2 + weight[0] : weight_at(n, row + 8);
        }
    }
    __device__ void set_scales(int first, int up, int pitch, int slot)
    {
        int row = weight_row((int)threadIdx.x % 32 / 4);
        scale[0] = scales_begin(first, pitch) + row * pitch;
        scale[1] = up >= 0 ? slot / 2 + scales_begin(up, pitch) + row * pitch : scale[0] + 8 * pitch;
    }
    /* The 16 bytes of row r whose address the lane gives to tensor_load: of group lane / 8. */
    __device__ static int matrix_at(int n, int r)
    {
        int row = (int)threadIdx.x / 32 * n + r, part = (int)threadIdx.x % 32 / 8;
        return row * 128 + (part ^ row % 8) * 16;
    }
};

/* A step of a warp: what its lanes multiply. */
struct code_step {
    const char *weights, *scales; /* the slot's */
    const __half *x;              /* the lane's token's eights, its own part; NULL: there is no such token */
    int stride;                   /* elements from four eights to the next four */
    int group, last;              /* the warp's first one in the row; the row's last one */
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

/* Adds the products of a slot over the warp's columns; each half has sums of its own, so that they need not wait for
 * each other. */
__device__ static inline void multiply_e4m3(float (&sum)[4], const code_rows<FORM_E4M3> &rows, const code_step &s)
{
    float part[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 w[2], x[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            w[r] = *(const uint4 *)(s.weights + (rows.weight[r] ^ half * 64));
            x[r] = step_input<FORM_E4M3>(s, half * 2 + r);
        }
        code_multiply<FORM_E4M3>(part[half], w, x);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        part[0][i] += part[1][i];
    int group = min(s.group, s.last) * (int)sizeof(float);
    add_scaled(sum, part[0], *(const float *)(s.scales + rows.scale[0] + group),
               *(const float *)(s.scales + rows.scale[1] + group));
}

/* 2^(b - 127) */
__device__ static inline float exponent_value(const char *b)
{
    return __uint_as_float(max((uint32_t) * (const uint8_t *)b << 23, 0x00400000u));
}

/* Groups behind a row's last one meet activations of 0, whatever their codes are, and the last one's scale. Of a quad's
 * rows each lane makes the values of two groups' exponents, and tells the others. */
__device__ static inline void multiply_e2m1(float (&sum)[4], const code_rows<FORM_E2M1> &rows, const code_step &s)
{
    const __half *from = s.x;
    uint4 x[2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t w[2][4];
        float value[2];
        int group = min(s.group + half * 4 + (int)threadIdx.x % 4, s.last);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            tensor_load(w[r], s.weights + (rows.weight[r] ^ half * 64));
            value[r] = exponent_value(s.scales + rows.scale[r] + group);
        }
#pragma unroll
        for (int k = 0; k < 4; k++, from += s.stride) {
            uint32_t a[2][4];
            float part[4] = {};
            if (s.x != nullptr)
                x[k % 2] = *(const uint4 *)from;
            code_pairs<__half, CODES_E2M1>::decode_small(a[0], w[0][k]);
            code_pairs<__half, CODES_E2M1>::decode_small(a[1], w[1][k]);
            tensor_mma<__half>(part, a[0][0], a[1][0], a[0][2], a[1][2], x[k % 2].x, x[k % 2].y);
            tensor_mma<__half>(part, a[0][1], a[1][1], a[0][3], a[1][3], x[k % 2].z, x[k % 2].w);
            add_scaled(sum, part, __shfl_sync(0xffffffffu, value[0], k, 4), __shfl_sync(0xffffffffu, value[1], k, 4));
        }
    }
}

/* A warp's columns of one expert's rows, through all steps: sum[i] of token lane % 4 * 2 + i % 2, row g or, from
 * sum[2] on, g + 8. cols: of the matrix; x, stride: see code_step, x of the warp's first step; step_stride: elements
 * from there to the next step's. */
template <chain_form FORM, int SLOTS>
__device__ static inline void expert_code_sums(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                               const code_rows<FORM> &rows, int cols, int n_steps, const __half *x,
                                               int stride, int step_stride, int pitch, float (&sum)[4])
{
    const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, GROUP = FORM == FORM_E2M1 ? SMALL_GROUP : GROUP_COLUMNS;
    const int SCALE = FORM == FORM_E2M1 ? 1 : (int)sizeof(float);
    int column = (int)threadIdx.x / 32 * COLUMNS;
    code_step s = {nullptr, nullptr, x, stride, 0, pitch / SCALE - 1};
    for (int step = 0; step < n_steps; step++, column += CHAIN_WARPS * COLUMNS) {
        s.weights = sh.base + ring.slot * RING_SLOT_BYTES;
        s.scales = sh.base + a.codes.at + ring.slot * a.codes.slot;
        s.group = column / GROUP;
        barrier_wait(ring.filled(), ring.round);
        if (column < cols) {
            if constexpr (FORM == FORM_E2M1)
                multiply_e2m1(sum, rows, s);
            else
                multiply_e4m3(sum, rows, s);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
        s.x = s.x != nullptr ? s.x + step_stride : nullptr;
    }
}

/* A lane's sums to its warp's part of a tile's. */
__device__ static inline void expert_keep_codes(const expert_args &a, const float (&sum)[4], float gain, float *partial)
{
    int lane = threadIdx.x % 32, row = weight_row(lane / 4);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int t = lane % 4 * 2 + i % 2;
        if (t < a.n_tokens)
            partial[((int)threadIdx.x / 32 * a.n_tokens + t) * CHAIN_ROWS + i / 2 * CHAIN_OCTET + row] = sum[i] * gain;
    }
}

/* One tile of the first product, n rows of weights (of each half where there are ups): first, up as code_rows has
 * them. */
template <typename T, chain_form FORM, int SLOTS>
__device__ static inline void expert_code_first(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                int n, int first, int up, float *partial)
{
    const chain_share &share = sh.share[2];
    const int pitch = a.codes.pitch[0], stride = a.n_tokens * 32, fours = EXPERT_WARP_COLUMNS<FORM> / 32;
    int lane = threadIdx.x % 32, t = lane / 4;
    const __half *x =
        sh.at<__half>(a.codes.input) + (int)threadIdx.x / 32 * share.n_steps * fours * stride + t * 32 + lane % 4 * 8;
    float sum[4] = {};
    const code_rows<FORM> rows(n, first, up, pitch, a.codes.slot);
    expert_code_sums<FORM>(ring, a, sh, rows, a.product[2].cols, share.n_steps, t < a.n_tokens ? x : nullptr, stride,
                           fours * stride, pitch, sum);
    expert_keep_codes(a, sum, EXPERT_GAIN<T, FORM>, partial);
}

/* One tile of the sum over the experts: n rows from row `first` of each one's on. biases: as expert_tile has them. */
template <typename T, chain_form FORM, int SLOTS>
__device__ static inline void expert_code_second(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                 int n, int first, const float *biases, float *partial)
{
    const expert_choice *c = expert_choice_of(a, sh);
    const int pitch = a.codes.pitch[1], COLUMNS = EXPERT_WARP_COLUMNS<FORM>;
    int lane = threadIdx.x % 32;
    float all[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int t = lane % 4 * 2 + i % 2, row = i / 2 * CHAIN_OCTET + weight_row(lane / 4);
        if (biases != nullptr && t < a.n_tokens && t == (int)threadIdx.x / 32 && row < n)
            all[i] = biases[t * a.at.x_rows + row];
    }
    code_rows<FORM> rows(n, first, -1, pitch, a.codes.slot);
    for (int i = 0; i < c->n; i++) {
        const int16_t *pair = choice_pair(a, c) + i * NARROW_TOKENS;
        int p = pair[lane / 4];
        const __half *x = sh.at<__half>(a.at.input) + p * a.pair_pitch + (int)threadIdx.x / 32 * COLUMNS + lane % 4 * 8;
        float one[4] = {};
        rows.set_scales(choice_which(a, c)[i] * a.product[3].rows + first, -1, pitch, a.codes.slot);
        expert_code_sums<FORM>(ring, a, sh, rows, a.product[3].cols, sh.share[3].n_steps, p >= 0 ? x : nullptr, 32,
                               CHAIN_WARPS * COLUMNS, pitch, one);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int of = pair[lane % 4 * 2 + k];
            float share = of >= 0 ? choice_share(a, c)[of] * EXPERT_GAIN<T, FORM> : 0.0f;
            if (of >= 0) {
                all[k] = fmaf(share, one[k], all[k]);
                all[k + 2] = fmaf(share, one[k + 2], all[k + 2]);
            }
        }
    }
    expert_keep_codes(a, all, 1, partial);
}

/* 8 columns as input_units::store has them, made the first product's: f16, and of E2M1 in the order of its pairs. */
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

/* The router's activations, which all warps have left in shared memory, once more for the first product, which cannot
 * begin before the choice is made. Zeros where a step has more columns than there are. */
template <typename T, chain_form FORM>
__device__ static inline void expert_recode(const expert_args &a, const chain_shared &sh)
{
    const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, EIGHTS = COLUMNS / 8, WARPS = CHAIN_WARPS * EIGHTS;
    const int n_steps = sh.share[2].n_steps, plain_spans = expert_choice_of(a, sh)->router.n_spans;
    chain_sync(); /* a block without a tile of the router has not waited for its other warps */
#pragma unroll 1
    for (int i = threadIdx.x; i < n_steps * WARPS * a.n_tokens; i += CHAIN_THREADS) {
        int t = i / (n_steps * WARPS), eight = i - t * n_steps * WARPS, column = eight * 8;
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

#define CODE_UNITS_AT_ONCE 8 /* of 4 columns, that a lane waits for */

/* 4 columns of a pair's activations; lanes beside each other have neighbouring ones. */
struct code_unit {
    int from, to; /* words, elements; from < 0: zeros; to < 0: nothing */

    template <chain_form FORM>
    __device__ void find(const expert_args &a, const chain_shared &sh, int unit)
    {
        const int COLUMNS = EXPERT_WARP_COLUMNS<FORM>, UNITS = COLUMNS / UNIT_COLUMNS;
        int n_steps = sh.share[3].n_steps, cols = a.product[3].cols, row = unit / UNITS;
        int p = n_steps == 1 ? row : row / n_steps;
        int in_warp = unit % UNITS * UNIT_COLUMNS;
        int base = ((row - p * n_steps) * CHAIN_WARPS + (int)threadIdx.x / 32) * COLUMNS;
        from = to = -1;
        if (p >= expert_pairs(a) || base >= cols)
            return;
        int held = choice_expert(a, expert_choice_of(a, sh))[p] - a.first_held;
        if (held < 0 || held >= a.n_held)
            return;
        from = base + in_warp < cols ? (p * cols + base + in_warp) / 2 : -1;
        to = p * a.pair_pitch + base + eight_place<FORM>(in_warp) * 8 + in_warp % 8;
    }
};

/* As expert_inputs: [pair][columns], the eights of a warp's columns in their places. */
template <typename T, chain_form FORM>
__device__ static inline void expert_code_inputs(const expert_args &a, const chain_shared &sh, uint32_t epoch)
{
    const int N = CODE_UNITS_AT_ONCE;
    int n = expert_pairs(a) * sh.share[3].n_steps * (EXPERT_WARP_COLUMNS<FORM> / UNIT_COLUMNS);
#pragma unroll 1
    for (int begin = 0; begin < n; begin += 32 * N) {
        code_unit unit[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            unit[i].find<FORM>(a, sh, begin + 32 * i + (int)threadIdx.x % 32);
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

#endif
