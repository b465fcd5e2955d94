/* kernels/cuda/products/codes.cu - the product of quantised weights. Up to CODES_MAX_TOKENS tokens: codes_stream.cuh,
 * at memory bandwidth. For more, codes_many.cu; for many, rows are dequantised to 16 bits in memory, some at a time,
 * for the ordinary product. A plain kernel takes the rest: float activations, and groups that a lane's loads do not
 * cover evenly. */
#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/products/codes_stream.cuh"
#include "kernels/cuda/products/library.cuh"

#define PLAIN_TOKENS  8
#define PLAIN_WARPS   8
#define WIDEN_THREADS 256
#define WIDEN_AT_ONCE 4   /* rows per thread */
#define WIDEN_ROWS    128 /* where there are as many rows, a multiple of this is dequantised at a time */

/* A warp computes one row for up to PLAIN_TOKENS tokens. grid: rows / PLAIN_WARPS, tokens / PLAIN_TOKENS */
template <typename T>
__global__ void plain_codes(T *out, const T *x, coded w, const void *bias, enum dtype bias_type, int n_tokens, int rows,
                            int cols, bool accumulate)
{
    int row = (int)(blockIdx.x * PLAIN_WARPS + threadIdx.x / 32), lane = threadIdx.x % 32;
    int t0 = (int)blockIdx.y * PLAIN_TOKENS;
    if (row >= rows)
        return;
    float sum[PLAIN_TOKENS] = {0};
    for (int k = lane; k < cols; k += 32) {
        float weight = coded_element(w, row, k);
#pragma unroll
        for (int t = 0; t < PLAIN_TOKENS; t++)
            if (t0 + t < n_tokens)
                sum[t] = fmaf(weight, to_float(x[(size_t)(t0 + t) * cols + k]), sum[t]);
    }
#pragma unroll
    for (int t = 0; t < PLAIN_TOKENS; t++) {
        float s = warp_sum(sum[t]) + weight_at(bias, bias_type, row, 0.0f);
        if (lane != 0 || t0 + t >= n_tokens)
            continue;
        T *to = out + (size_t)(t0 + t) * rows + row;
        *to = from_float<T>(accumulate ? s + to_float(*to) : s);
    }
}

static void plain(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                  int n_tokens, bool accumulate)
{
    dim3 grid((unsigned)(w->rows + PLAIN_WARPS - 1) / PLAIN_WARPS,
              (unsigned)(n_tokens + PLAIN_TOKENS - 1) / PLAIN_TOKENS);
    coded codes = w->cols > 0 ? coded_rows(w, 0) : coded{};
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        plain_codes<<<grid, PLAIN_WARPS * 32, 0, cuda_stream(q)>>>(
            (T *)out, (const T *)x, codes, bias ? bias->data : NULL, bias ? bias->type : DTYPE_F32, n_tokens, w->rows,
            w->cols, accumulate);
    });
    CUDA_TRY(q, cudaGetLastError());
}

/* ---- few tokens ---- */

/* Calls f(kernel, shared bytes) for a number type, codes, and scaling. */
template <typename T, enum codes C, enum code_scaling S, typename F>
static void with_tokens(int n_tokens, F f)
{
    if (n_tokens > 8)
        f(codes_matmul<T, C, S, 16, false>, codes_stream<T, C, S, 16, false>::SHARED);
    else
        f(codes_matmul<T, C, S, 8, false>, codes_stream<T, C, S, 8, false>::SHARED);
}

template <typename T, enum codes C, typename F>
static void with_scaling(enum code_scaling way, int n_tokens, F f)
{
    if (way == SCALES_OF_ROWS)
        with_tokens<T, C, SCALES_OF_ROWS>(n_tokens, f);
    else if (way == SCALES_OF_STEPS)
        with_tokens<T, C, SCALES_OF_STEPS>(n_tokens, f);
    else
        with_tokens<T, C, SCALES_OF_LANES>(n_tokens, f);
}

template <typename T, typename F>
static void with_codes(enum codes codes, enum code_scaling way, int n_tokens, F f)
{
    if (codes == CODES_E4M3)
        with_scaling<T, CODES_E4M3>(way, n_tokens, f);
    else if (codes == CODES_INT8)
        with_scaling<T, CODES_INT8>(way, n_tokens, f);
    else if (codes == CODES_INT4)
        with_scaling<T, CODES_INT4>(way, n_tokens, f);
    else
        with_tokens<T, CODES_E2M1, SCALES_OF_LANES>(n_tokens, f);
}

bool product_of_codes_open(cudaError_t *rc, size_t shared_bytes)
{
    bool fits = true;
    auto prepare = [&](auto kernel, size_t bytes) {
        fits = fits && bytes <= shared_bytes;
        if (*rc == cudaSuccess && fits)
            *rc = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    };
    for (int codes = CODES_E4M3; codes <= CODES_E2M1; codes++)
        for (int way = SCALES_OF_ROWS; way <= SCALES_OF_LANES; way++)
            for (int n_tokens = 8; n_tokens <= CODES_MAX_TOKENS; n_tokens += 8) {
                with_codes<__half>((enum codes)codes, (enum code_scaling)way, n_tokens, prepare);
                with_codes<__nv_bfloat16>((enum codes)codes, (enum code_scaling)way, n_tokens, prepare);
            }
    return fits;
}

template <typename T>
static void stream(struct queue *q, const codes_args<T> &a, enum code_scaling way, bool early)
{
    with_codes<T>(a.w.form.codes, way, a.n_tokens, [&](auto kernel, size_t bytes) {
        int n_tiles = (a.rows + CODES_ROWS - 1) / CODES_ROWS, n_blocks = cuda_state(q)->n_multiprocessors;
        launch_early(q, early, kernel, dim3((unsigned)(n_tiles < n_blocks ? n_tiles : n_blocks)), CODES_WARPS * 32,
                     bytes, a);
    });
}

/* Returns false for an unsupported product. */
static bool stream_any(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       int n_tokens, bool accumulate, bool early)
{
    enum code_scaling way;
    bool types = q->act != DTYPE_F32 && (!bias || bias->type == q->act);
    if (!types || w->cols < 1 || w->cols % 8 != 0 || (uintptr_t)x % 16 != 0 || !codes_scaling(w, &way))
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            codes_args<T> a = {};
            a.out = (T *)out, a.x = (const T *)x, a.bias = bias ? (const T *)bias->data : NULL;
            a.w = coded_rows(w, 0);
            a.n_tokens = n_tokens, a.rows = w->rows, a.cols = w->cols, a.accumulate = accumulate;
            stream(q, a, way, early);
        }
    });
    return true;
}

/* ---- many tokens ---- */

/* grid: columns, rows */
template <typename T>
__global__ void widen_codes(T *wide, coded w, int cols)
{
    int row = (int)blockIdx.y;
    for (int col = (int)(blockIdx.x * WIDEN_THREADS + threadIdx.x); col < cols; col += (int)gridDim.x * WIDEN_THREADS)
        wide[(size_t)row * cols + col] = from_float<T>(coded_element(w, row, col));
}

/* The same, eight columns of one group per thread. grid: columns / 8, rows / WIDEN_AT_ONCE */
template <typename T, enum codes C>
__global__ void widen_eights(T *wide, coded w, int rows, int cols)
{
    const int WORDS = bits_of_codes<C> / 4;
    int col = (int)(blockIdx.x * WIDEN_THREADS + threadIdx.x) * 8, first = (int)blockIdx.y * WIDEN_AT_ONCE;
    uint32_t word[WIDEN_AT_ONCE][WORDS], scale[WIDEN_AT_ONCE], zero[WIDEN_AT_ONCE];
    if (col >= cols)
        return;
    unsigned group = ((unsigned)w.form.first + (unsigned)col) / (unsigned)w.form.group;
#pragma unroll
    for (int r = 0; r < WIDEN_AT_ONCE; r++) {
        size_t row = (size_t)min(first + r, rows - 1), i = row * (size_t)w.n_groups + group;
        const uint32_t *from = (const uint32_t *)(w.codes + row * w.pitch) + col / 8 * WORDS;
#pragma unroll
        for (int j = 0; j < WORDS; j++)
            word[r][j] = from[j];
        scale[r] = coded_scale_word(w, i);
        zero[r] = (uint32_t)coded_zero(w, i);
    }
#pragma unroll
    for (int r = 0; r < WIDEN_AT_ONCE; r++) {
        uint32_t pair[4];
        codes_wide<T, C>(pair, word[r], code_pairs<T, C>::zero((int)zero[r]), w.form.scale, scale[r]);
        if (first + r < rows)
            *(uint4 *)(wide + (size_t)(first + r) * cols + col) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

/* Calls f(kernel) for the type of the codes. */
template <typename T, typename F>
static void with_eights(enum codes codes, F f)
{
    if (codes == CODES_E4M3)
        f(widen_eights<T, CODES_E4M3>);
    else if (codes == CODES_INT8)
        f(widen_eights<T, CODES_INT8>);
    else if (codes == CODES_INT4)
        f(widen_eights<T, CODES_INT4>);
    else
        f(widen_eights<T, CODES_E2M1>);
}

static bool in_eights(const struct weight *w)
{
    bool one = code_groups(&w->form, w->cols) == 1;
    return w->cols % 8 == 0 && (one || (w->form.group % 8 == 0 && w->form.first % 8 == 0));
}

/* Dequantises rows [first, first + n_rows) to the beginning of w->wide. */
static void widen(struct queue *q, const struct weight *w, int first, int n_rows)
{
    int threads = in_eights(w) && q->act != DTYPE_F32 ? w->cols / 8 : w->cols;
    unsigned n_blocks = (unsigned)(threads + WIDEN_THREADS - 1) / WIDEN_THREADS;
    coded part = coded_rows(w, (size_t)first);
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            if (in_eights(w)) {
                dim3 grid(n_blocks, (unsigned)(n_rows + WIDEN_AT_ONCE - 1) / WIDEN_AT_ONCE);
                with_eights<T>(w->form.codes, [&](auto kernel) {
                    kernel<<<grid, WIDEN_THREADS, 0, cuda_stream(q)>>>((T *)w->wide, part, n_rows, w->cols);
                });
                return;
            }
        }
        widen_codes<<<dim3(n_blocks, (unsigned)n_rows), WIDEN_THREADS, 0, cuda_stream(q)>>>((T *)w->wide, part,
                                                                                            w->cols);
    });
    CUDA_TRY(q, cudaGetLastError());
}

static void many(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                 int n_tokens, bool accumulate)
{
    size_t size = dtype_bytes(q->act), most = WIDE_BYTES / ((size_t)w->cols * size);
    int rows = (int)(most > 32768 ? 32768 : most > WIDEN_ROWS ? most / WIDEN_ROWS * WIDEN_ROWS : most);
    for (int first = 0; first < w->rows; first += rows) {
        struct weight part = {}, part_bias = {};
        part.data = w->wide;
        part.type = q->act;
        part.rows = w->rows - first < rows ? w->rows - first : rows;
        part.cols = w->cols;
        if (bias) {
            part_bias = *bias;
            part_bias.data = (char *)bias->data + (size_t)first * dtype_bytes(bias->type);
            part_bias.cols = part.rows;
        }
        widen(q, w, first, part.rows);
        product_of_many(q, product_out{(char *)out + (size_t)first * size, w->rows}, x, &part, bias ? &part_bias : NULL,
                        n_tokens, accumulate);
    }
}

/* All rows, with unquantised inputs. */
static void wide_inputs(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                        int n_tokens, bool accumulate)
{
    if (!coded_product(q, out, x, w, bias, n_tokens, accumulate))
        many(q, out, x, w, bias, n_tokens, accumulate);
}

void invariant_product_of_codes(struct queue *q, void *out, const void *x, const struct weight *w,
                                const struct weight *bias, int n_tokens, bool accumulate)
{
    if (!invariant_coded_product(q, out, x, w, bias, n_tokens, accumulate))
        plain(q, out, x, w, bias, n_tokens, accumulate);
}

void product_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate, bool streams, bool early)
{
    static_assert(CODES_MAX_TOKENS == CUDA_INPUTS_AS_THEY_ARE, "few tokens' inputs are not quantised");
    bool few = n_tokens <= CODES_MAX_TOKENS;
    if (few && streams && stream_any(q, out, x, w, bias, n_tokens, accumulate, early))
        return;
    bool fits = w->wide != NULL && w->cols > 0 && (size_t)w->cols * sizeof(float) <= WIDE_BYTES;
    if (few || !fits) {
        plain(q, out, x, w, bias, n_tokens, accumulate);
        return;
    }
    if (w->inputs == NULL)
        wide_inputs(q, out, x, w, bias, n_tokens, accumulate);
    else if (!product_of_inputs(q, out, x, w, bias, n_tokens, accumulate))
        ERR(&q->err, ERR_DEVICE, "quantised activations: no product [%d, %d] of %d tokens", w->rows, w->cols, n_tokens);
}
