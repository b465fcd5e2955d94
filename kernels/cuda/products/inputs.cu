/* kernels/cuda/products/inputs.cu - products of many tokens whose inputs are quantised (kernels/inputs.h): x becomes
 * E4M3 codes, with one scale per row or per 128 columns of a row, in the scratch that quantised products share. Codes
 * are multiplied with codes by inputs_many.cuh, for more than INPUTS_MANY tokens by cuBLASLt. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/activation_choice.cuh"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/inputs.cuh"
#include "kernels/cuda/products/library.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/invariance.h"

#include <algorithm>
#include <type_traits>

#define ROW_THREADS  256
#define MOST_THREADS 512
#define AT_ONCE      8 /* elements of a thread's vector */
#define ROW_KEPT     8 /* vectors of a thread */
#define OF_GROUP     (INPUT_BLOCK / AT_ONCE)
#define KEPT_BYTES   ((size_t)48 << 10) /* of a row in shared memory */

/* The largest over the block, for every thread. */
__device__ static inline float block_largest(float x)
{
    __shared__ float part[32];
    for (int d = 16; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.0f;
    for (int d = 16; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* As in kernels/cpu/inputs.c. */
__device__ static inline float input_scale(const coded_inputs &to, float largest)
{
    float most = to.most > 0 && largest > to.most ? to.most : largest;
    float scale = to.given > 0 ? to.given : most / 448.0f;
    return scale > 0 ? scale : 1;
}

/* The larger ones of the magnitudes in two words; NaN is ignored. */
template <typename T>
__device__ static inline uint32_t larger_pair(uint32_t a, uint32_t b)
{
    using P = std::conditional_t<std::is_same<T, __half>::value, __half2, __nv_bfloat162>;
    P x = __hmax2(__habs2(*(P *)&a), __habs2(*(P *)&b));
    return *(uint32_t *)&x;
}

template <typename T>
__device__ static inline float largest_of(uint32_t pair)
{
    float2 x = tensor_unpack<T>(pair);
    return fmaxf(fabsf(x.x), fabsf(x.y));
}

template <typename T>
__device__ static inline float largest_of(const vec_pairs<T, AT_ONCE> &x)
{
    return largest_of<T>(larger_pair<T>(larger_pair<T>(x.e[0], x.e[1]), larger_pair<T>(x.e[2], x.e[3])));
}

/* x / scale, correctly rounded for scales and quotients far from the ends of the range: one correction step repairs the
 * error of the rounded inverse. */
__device__ static inline float quotient(float x, float scale, float inverse)
{
    float q = x * inverse, nearer = fmaf(fmaf(-q, scale, x), inverse, q);
    return fabsf(q) < 1e38f ? nearer : q; /* NaN stays NaN */
}

template <typename T, typename F>
__device__ static inline uint32_t two_codes(uint32_t pair, F divide)
{
    float2 x = tensor_unpack<T>(pair);
    return __nv_cvt_float2_to_fp8x2(make_float2(divide(x.x), divide(x.y)), __NV_SATFINITE, __NV_E4M3);
}

template <typename T, typename F>
__device__ static inline uint2 codes_of(const vec_pairs<T, AT_ONCE> &x, F divide)
{
    return make_uint2(two_codes<T>(x.e[0], divide) | two_codes<T>(x.e[1], divide) << 16,
                      two_codes<T>(x.e[2], divide) | two_codes<T>(x.e[3], divide) << 16);
}

template <typename T>
__device__ static inline uint2 input_codes(const vec_pairs<T, AT_ONCE> &x, float scale)
{
    const float inverse = 1.0f / scale;
    if (scale > 1e-30f && scale < 1e30f)
        return codes_of(x, [=](float y) { return quotient(y, scale, inverse); });
    return codes_of(x, [=](float y) { return y / scale; });
}

/* Up to KEPT vectors of a row, from column `first` on, in the registers of each thread of a block. */
template <typename T, int KEPT>
struct row_vectors {
    using V = vec_pairs<T, AT_ONCE>;
    V x[KEPT];

    __device__ static int span()
    {
        return (int)blockDim.x * AT_ONCE * KEPT;
    }
    __device__ static int column(int first, int i)
    {
        return first + ((int)threadIdx.x + i * (int)blockDim.x) * AT_ONCE;
    }
    /* vector(c): the elements from column c on. Returns the largest magnitude. */
    template <typename F>
    __device__ float fetch(int first, int cols, F vector)
    {
        float largest = 0;
#pragma unroll
        for (int i = 0; i < KEPT; i++)
            x[i] = column(first, i) < cols ? vector(column(first, i)) : V{};
#pragma unroll
        for (int i = 0; i < KEPT; i++)
            largest = fmaxf(largest, largest_of(x[i]));
        return largest;
    }
    __device__ void store(uint8_t *codes, int first, int cols, float scale) const
    {
#pragma unroll
        for (int i = 0; i < KEPT; i++)
            if (column(first, i) < cols)
                *(uint2 *)(codes + column(first, i)) = input_codes(x[i], scale);
    }
};

/* The elements of a row as they are in memory. */
template <typename T>
__device__ static inline auto vectors_at(const T *row)
{
    return [=](int c) { return *(const vec_pairs<T, AT_ONCE> *)(row + c); };
}

/* Quantises the block's row, whose elements vector(c) gives; those that registers do not hold it gives twice. */
template <typename T, int KEPT, typename F>
__device__ static inline void quantise_row(const coded_inputs &to, F vector)
{
    using row = row_vectors<T, KEPT>;
    row r;
    float largest = 0;
    for (int first = 0; first < to.cols; first += row::span())
        largest = fmaxf(largest, r.fetch(first, to.cols, vector));
    const float scale = input_scale(to, block_largest(largest));
    uint8_t *codes = to.codes + (size_t)blockIdx.x * to.cols;
    for (int first = 0; first < to.cols; first += row::span()) {
        if (to.cols > row::span())
            (void)r.fetch(first, to.cols, vector);
        r.store(codes, first, to.cols, scale);
    }
    if (threadIdx.x == 0)
        to.scales[blockIdx.x] = scale;
}

/* grid: rows; block: row_threads(). */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS) quantise_rows(coded_inputs to, const T *x)
{
    after_previous();
    quantise_row<T, ROW_KEPT>(to, vectors_at(x + (size_t)blockIdx.x * to.cols));
}

/* The same for activated gates and ups, as in ops->activate. x: [rows, 2 cols] */
template <typename T, int KIND>
__global__ void __launch_bounds__(MOST_THREADS) quantise_activated(coded_inputs to, const T *x)
{
    using V = vec_pairs<T, AT_ONCE>;
    after_previous();
    const T *row = x + (size_t)blockIdx.x * 2 * to.cols;
    quantise_row<T, ROW_KEPT>(to, [=, cols = to.cols](int c) {
        float gate[AT_ONCE], up[AT_ONCE];
        widen_pairs(gate, *(const V *)(row + c));
        widen_pairs(up, *(const V *)(row + cols + c));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            gate[i] = activation((enum activation)KIND, gate[i]) * up[i];
        return round_pairs<T>(gate);
    });
}

/* The same for the norm of x + add, which is stored to x; the row is kept in shared memory. */
template <typename T, int N, int K, bool PLAIN>
__global__ void __launch_bounds__(NORM_THREADS / K, PLAIN ? 3 : 1)
    quantise_normed(coded_inputs to, T *x, const T *add, norm_args a)
{
    extern __shared__ uint4 shared[];
    normed_row<T, N, K, PLAIN>((T *)shared, x, add, a);
    __syncthreads();
    quantise_row<T, K>(to, vectors_at((const T *)shared));
}

/* Gathers the scales of w's blocks from each block's first row; rows are n_groups apart. Called by one thread block. */
__device__ static inline void gather_blocks(const coded_inputs &to, const float *of_rows, int n_groups, int block)
{
    for (int g = (int)threadIdx.x; g < to.blocks_pitch; g += ROW_THREADS)
        to.blocks[(size_t)block * to.blocks_pitch + g] =
            g < n_groups ? of_rows[(size_t)block * INPUT_BLOCK * n_groups + g] : 0.0f;
}

/* One thread block per row of x, OF_GROUP threads per group of its columns; then one per block of w's rows. */
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    quantise_groups(coded_inputs to, const T *x, const float *of_rows, int n_groups)
{
    using row = row_vectors<T, 1>;
    after_previous();
    if ((int)blockIdx.x >= to.n_rows) {
        gather_blocks(to, of_rows, n_groups, (int)blockIdx.x - to.n_rows);
        return;
    }
    row r;
    for (int first = 0; first < to.cols; first += row::span()) {
        const int mine = row::column(first, 0);
        float largest = r.fetch(first, to.cols, vectors_at(x + (size_t)blockIdx.x * to.cols));
        for (int d = OF_GROUP / 2; d > 0; d /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        const float scale = input_scale(to, largest);
        r.store(to.codes + (size_t)blockIdx.x * to.cols, first, to.cols, scale);
        if (mine < to.cols && threadIdx.x % OF_GROUP == 0)
            to.scales[(size_t)(mine / INPUT_BLOCK) * to.pitch + blockIdx.x] = scale;
    }
}

/* Threads of a block that quantises a row. */
static unsigned row_threads(int cols)
{
    const int warps = (cols + 32 * AT_ONCE * ROW_KEPT - 1) / (32 * AT_ONCE * ROW_KEPT);
    return (unsigned)std::min(std::max(warps, 2) * 32, MOST_THREADS);
}

static void quantise(struct queue *q, const coded_inputs &to, const void *x, const struct weight *w)
{
    const coded codes = coded_rows(w, 0);
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            if (codes.n_groups == 1)
                launch(q, quantise_rows<T>, dim3((unsigned)to.n_rows), dim3(row_threads(to.cols)), 0, to, (const T *)x);
            else
                launch(q, quantise_groups<T>, dim3((unsigned)(to.n_rows + (w->rows + INPUT_BLOCK - 1) / INPUT_BLOCK)),
                       dim3(ROW_THREADS), 0, to, (const T *)x, (const float *)codes.scales, codes.n_groups);
        }
    });
}

const char *cuda_inputs_refusal(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts)
{
    int major = 0;
    CUDA_TRY(q, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda_state(q)->device));
    if (cuda_is_invariant(q))
        return "batch-invariant devices";
    if (major != 9 || many_encoder(q) == NULL)
        return "a device of another compute capability than 9.0";
    if (!library_takes_codes())
        return "a cuBLAS before 12.9";
    if (q->act == DTYPE_F32)
        return "activations of 32 bits";
    if (of_experts)
        return "experts";
    if (f->codes != CODES_E4M3 || w->form.scale != SCALE_F32)
        return "INT8";
    bool rows = code_groups(&w->form, w->cols) <= 1 && (f->scale > 0 || f->n_groups == 1);
    bool blocks = w->form.group == INPUT_BLOCK && w->form.first == 0 && f->blocks && f->scale == 0 &&
                  f->group == INPUT_BLOCK && f->first % INPUT_BLOCK == 0;
    if (!rows && !blocks)
        return "scales that are not those of rows or of whole blocks of 128";
    if (w->rows % 16 != 0 || w->cols % 16 != 0)
        return "a rank's matrix of other sizes than multiples of 16";
    return NULL;
}

static float *after(void *p, size_t bytes)
{
    return (float *)((char *)p + (bytes + CODES_ALIGN - 1) / CODES_ALIGN * CODES_ALIGN);
}

/* The memory for n rows of x, at most rows_at_once. */
static coded_inputs place_inputs(const struct weight *w, int n)
{
    int groups = code_groups(&w->form, w->cols);
    coded_inputs to = {};
    to.cols = w->cols;
    to.n_rows = n;
    to.given = w->inputs->scale;
    to.most = w->inputs->most;
    to.pitch = (n + 3) / 4 * 4;
    to.blocks_pitch = (groups + 3) / 4 * 4;
    to.codes = (uint8_t *)w->wide;
    to.scales = after(to.codes, (size_t)n * (size_t)w->cols);
    to.blocks = after(to.scales, (size_t)to.pitch * (size_t)groups * sizeof(float));
    to.rest = after(to.blocks, (size_t)(w->rows / INPUT_BLOCK + 1) * (size_t)to.blocks_pitch * sizeof(float));
    return to;
}

/* The number of rows of x that the memory holds. */
static int rows_at_once(const struct weight *w)
{
    size_t groups = (size_t)code_groups(&w->form, w->cols), row = (size_t)w->cols + groups * sizeof(float);
    size_t blocks = ((size_t)w->rows / INPUT_BLOCK + 1) * (groups + 3) * sizeof(float) + 4 * CODES_ALIGN;
    return blocks < WIDE_BYTES ? (int)((WIDE_BYTES - blocks) / row / 4 * 4) : 0;
}

/* The number of rows, of n, that one product takes: for blocks cuBLASLt requires multiples of four, and no bias of
 * another type. */
static int rows_of_product(const struct queue *q, const struct weight *w, const struct weight *bias, int n)
{
    int most = rows_at_once(w);
    n = n < most ? n : most;
    if (bias != NULL && bias->type != q->act)
        return n < INPUTS_MANY ? n : INPUTS_MANY;
    return n > INPUTS_MANY && code_groups(&w->form, w->cols) > 1 ? n / 4 * 4 : n;
}

/* Scales are per row, a row fits in shared memory, and one product takes all rows. A block handles one row: few rows
 * are quantised faster by a kernel of their own. */
static bool rows_stay(const struct queue *q, const struct weight *w, const void *x, int n_rows)
{
    return n_rows > INPUTS_MANY && code_groups(&w->form, w->cols) == 1 &&
           rows_of_product(q, w, NULL, n_rows) == n_rows && (size_t)w->cols * dtype_bytes(q->act) <= KEPT_BYTES &&
           (uintptr_t)x % 16 == 0;
}

/* Gates and ups are side by side. */
bool cuda_inputs_activate(struct queue *q, const struct weight *w, const void *x, enum activation kind, int n_rows)
{
    if (!rows_stay(q, w, x, n_rows) || kind == ACTIVATION_SWIGLU)
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2)
            with_activation(kind, [&](auto chosen) {
                launch(q, quantise_activated<T, chosen()>, dim3((unsigned)n_rows), dim3(row_threads(w->cols)), 0,
                       place_inputs(w, n_rows), (const T *)x);
            });
    });
    return true;
}

bool cuda_inputs_norm(struct queue *q, const struct weight *w, void *x, const void *add, enum norm_kind kind,
                      const struct weight *scale, const struct weight *shift, int n_rows, float eps)
{
    const int N = 8;
    size_t bytes = (size_t)w->cols * dtype_bytes(q->act);
    if (!rows_stay(q, w, x, n_rows) || (uintptr_t)add % 16 != 0 || norm_kept(w->cols, N) != 1)
        return false;
    const struct norm_args a = norm_make(q, kind, scale, shift, w->cols, eps);
    bool plain = norm_is_plain(a, N);
    unsigned threads = (unsigned)norm_threads(w->cols, N, plain ? NORM_PLAIN_KEPT : 1);
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2)
            launch(q, plain ? quantise_normed<T, N, NORM_PLAIN_KEPT, true> : quantise_normed<T, N, 1, false>,
                   dim3((unsigned)n_rows), dim3(threads), bytes, place_inputs(w, n_rows), (T *)x, (const T *)add, a);
    });
    return true;
}

static bool multiply(struct queue *q, product_out out, const coded_inputs &x, const struct weight *w,
                     const struct weight *bias, bool accumulate)
{
    const coded codes = coded_rows(w, 0);
    const struct code_scales scales = {codes.n_groups > 1 ? x.blocks : (const float *)codes.scales, x.scales};
    if (inputs_by_clusters(q, out.data, x, w, bias, accumulate))
        return true;
    if (x.n_rows <= INPUTS_MANY && product_of_some_inputs(q, out.data, x, w, bias, accumulate))
        return true;
    if ((bias != NULL && bias->type != q->act) || (codes.n_groups > 1 && x.n_rows % 4 != 0))
        return false;
    return product_of_library(q, out, x.codes, w, bias, x.n_rows, accumulate, &scales);
}

bool product_of_inputs(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       int n_tokens, bool accumulate)
{
    size_t size = dtype_bytes(q->act);
    if (((uintptr_t)x | (uintptr_t)out) % 16 != 0)
        return false;
    for (int first = 0, n; first < n_tokens; first += n) {
        n = rows_of_product(q, w, bias, n_tokens - first);
        if (n == 0)
            return false;
        const coded_inputs made = place_inputs(w, n);
        if (x != NULL)
            quantise(q, made, (const char *)x + (size_t)first * w->cols * size, w);
        if (!multiply(q, product_out{(char *)out + (size_t)first * w->rows * size, w->rows}, made, w, bias, accumulate))
            return false;
    }
    return true;
}

bool gated_product_of_inputs(struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                             int n_tokens)
{
    if (w->inputs == NULL || n_tokens <= CUDA_INPUTS_AS_THEY_ARE || ((uintptr_t)x | (uintptr_t)out) % 16 != 0 ||
        rows_of_product(q, w, NULL, n_tokens) != n_tokens || !gated_product_takes_codes(q, w, kind, n_tokens))
        return false;
    const coded_inputs made = place_inputs(w, n_tokens);
    if (x != NULL)
        quantise(q, made, x, w);
    gated_product_of_codes(q, out, made, w);
    return true;
}
