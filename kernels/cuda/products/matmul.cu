/* kernels/cuda/products/matmul.cu - the matrix product. Up to STREAM_MAX_TOKENS tokens: matmul_stream.cuh, at memory
 * bandwidth and with the same bits whatever else is in the batch. Somewhat more: joined.cuh on Hopper. Else cuBLASLt,
 * whose algorithm for a shape is looked up once and kept. Weights are read before the preceding kernel is done, so wait
 * after writing them. A plain kernel takes the rest: other types than the activations', rows of weights that are not
 * multiples of 16 bytes. On invariant devices (kernels/invariance.h) ordered.cuh takes any number of tokens. */
#include "kernels/adding.h"
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/inputs.cuh"
#include "kernels/cuda/products/library.cuh"
#include "kernels/cuda/products/matmul_stream.cuh"
#include "kernels/invariance.h"

#include <stdlib.h>

#define STREAM_EARLY 8 /* most tokens of a stream beside which the next kernel may begin */

/* cuda_state.matmul */
struct matmul_state {
    struct library *library;
    bool launches_early, streams; /* compute capability of the device */
    bool invariant;               /* see kernels/invariance.h */
};

/* The stream kernel for up to NT tokens and tiles of 8 R rows. */
template <typename T, int NT, int R>
struct stream_variant {
    static const int P = R > 2 ? 1 : 2;
    static const size_t shared_bytes = stream_shared_bytes<T, NT, R>();

    static cudaError_t prepare()
    {
        return cudaFuncSetAttribute((const void *)stream_matmul<T, NT, R, P>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    }
    static void launch(struct queue *q, const stream_args<T> &a)
    {
        int n_tiles = (a.rows + 8 * R - 1) / (8 * R), n_blocks = cuda_state(q)->n_multiprocessors;
        const struct matmul_state *m = (const struct matmul_state *)cuda_state(q)->matmul;
        launch_early(q, m->launches_early, stream_matmul<T, NT, R, P>,
                     dim3((unsigned)(n_tiles < n_blocks ? n_tiles : n_blocks)), stream_shape<T>::WARPS * 32,
                     shared_bytes, a);
    }
};

/* Calls f(variant) for every kernel that cuda_matmul may launch. */
template <typename F>
static void each_variant(F f)
{
    f(stream_variant<__half, 8, 2>()), f(stream_variant<__half, 16, 2>()), f(stream_variant<__half, 16, 4>());
    f(stream_variant<__nv_bfloat16, 8, 2>()), f(stream_variant<__nv_bfloat16, 16, 2>());
    f(stream_variant<__nv_bfloat16, 16, 4>());
    f(stream_variant<float, 1, 2>()), f(stream_variant<float, 4, 2>()), f(stream_variant<float, 8, 2>());
}

/* More rows in a tile share a load of x, which matters with many tokens. */
template <typename T>
static void stream_16bit(struct queue *q, const stream_args<T> &a)
{
    if (a.n_tokens > 12)
        stream_variant<T, 16, 4>::launch(q, a);
    else if (a.n_tokens > 8)
        stream_variant<T, 16, 2>::launch(q, a);
    else
        stream_variant<T, 8, 2>::launch(q, a);
}

static void stream(struct queue *q, const stream_args<__half> &a)
{
    stream_16bit(q, a);
}

static void stream(struct queue *q, const stream_args<__nv_bfloat16> &a)
{
    stream_16bit(q, a);
}

static void stream(struct queue *q, const stream_args<float> &all)
{
    for (int t = 0; t < all.n_tokens; t += 8) {
        stream_args<float> a = all;
        a.x += (size_t)t * a.cols;
        a.out += (size_t)t * a.rows;
        a.n_tokens = all.n_tokens - t < 8 ? all.n_tokens - t : 8;
        if (a.n_tokens > 4)
            stream_variant<float, 8, 2>::launch(q, a);
        else if (a.n_tokens > 1)
            stream_variant<float, 4, 2>::launch(q, a);
        else
            stream_variant<float, 1, 2>::launch(q, a);
    }
}

#define PLAIN_TOKENS 8
#define PLAIN_WARPS  8

/* A warp computes one row for up to PLAIN_TOKENS tokens. grid: rows / PLAIN_WARPS, tokens / PLAIN_TOKENS */
template <typename T, typename W>
__global__ void plain_matmul(T *out, int ld, const T *x, const W *w, const void *bias, enum dtype bias_type,
                             int n_tokens, int rows, int cols, bool accumulate)
{
    int row = (int)(blockIdx.x * PLAIN_WARPS + threadIdx.x / 32), lane = threadIdx.x % 32;
    int t0 = (int)blockIdx.y * PLAIN_TOKENS;
    if (row >= rows)
        return;
    float sum[PLAIN_TOKENS] = {0};
    for (int k = lane; k < cols; k += 32) {
        float weight = to_float(w[(size_t)row * cols + k]);
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
        T *to = out + (size_t)(t0 + t) * ld + row;
        *to = from_float<T>(accumulate ? s + to_float(*to) : s);
    }
}

static void plain(struct queue *q, product_out out, const void *x, const struct weight *w, const struct weight *bias,
                  int n_tokens, bool accumulate)
{
    dim3 grid((unsigned)(w->rows + PLAIN_WARPS - 1) / PLAIN_WARPS,
              (unsigned)(n_tokens + PLAIN_TOKENS - 1) / PLAIN_TOKENS);
    with_type(q->act, [&](auto act) {
        with_type(w->type, [&](auto type) {
            using T = decltype(act);
            using W = decltype(type);
            plain_matmul<<<grid, PLAIN_WARPS * 32, 0, cuda_stream(q)>>>(
                (T *)out.data, out.ld, (const T *)x, (const W *)w->data, bias ? bias->data : NULL,
                bias ? bias->type : DTYPE_F32, n_tokens, w->rows, w->cols, accumulate);
        });
    });
    CUDA_TRY(q, cudaGetLastError());
}

void product_of_many(struct queue *q, product_out out, const void *x, const struct weight *w, const struct weight *bias,
                     int n_tokens, bool accumulate)
{
    bool one_type = w->cols > 0 && w->type == q->act && (!bias || bias->type == q->act);
    if (!one_type || !product_of_library(q, out, x, w, bias, n_tokens, accumulate, NULL))
        plain(q, out, x, w, bias, n_tokens, accumulate);
}

struct library *products_library(const struct queue *q)
{
    return ((const struct matmul_state *)cuda_state(q)->matmul)->library;
}

extern "C" void cuda_make_invariant(struct queue *q)
{
    ((struct matmul_state *)cuda_state(q)->matmul)->invariant = true;
}

extern "C" bool cuda_is_invariant(const struct queue *q)
{
    return ((const struct matmul_state *)cuda_state(q)->matmul)->invariant;
}

bool products_stream(const struct queue *q)
{
    return ((const struct matmul_state *)cuda_state(q)->matmul)->streams;
}

extern "C" int cuda_matmul_open(struct queue *q, struct err *e)
{
    struct matmul_state *m = (struct matmul_state *)calloc(1, sizeof *m);
    if (!m)
        return ERR(e, ERR_MEMORY, "cannot allocate %zu bytes of host memory", sizeof *m);
    cuda_state(q)->matmul = m;
    if (library_open(&m->library, cuda_state(q)->device, e) != 0)
        return -1;
    int shared_bytes = 0, device = cuda_state(q)->device;
    cudaError_t failed = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    m->launches_early = cuda_state(q)->launches_early;
    m->streams =
        product_of_codes_open(&failed, (size_t)shared_bytes) && experts_of_codes_open(&failed, (size_t)shared_bytes);
    product_of_inputs_open(&failed, (size_t)shared_bytes);
    each_variant([&](auto variant) { m->streams = m->streams && variant.shared_bytes <= (size_t)shared_bytes; });
    each_variant([&](auto variant) {
        if (failed == cudaSuccess && m->streams)
            failed = variant.prepare();
    });
    return failed == cudaSuccess ? 0 : ERR(e, ERR_DEVICE, "matrix product: %s", cudaGetErrorString(failed));
}

extern "C" void cuda_matmul_close(struct queue *q)
{
    struct matmul_state *m = cuda_state(q) ? (struct matmul_state *)cuda_state(q)->matmul : NULL;
    if (!m)
        return;
    library_close(m->library);
    free(m);
    cuda_state(q)->matmul = NULL;
}

/* cuBLASLt and joined.cuh compute these, and results depend on the number of tokens in any case. */
bool cuda_adds_at_no_cost(const struct queue *q, const struct weight *w, int n_tokens)
{
    if (cuda_is_invariant(q))
        return false;
    if (weight_is_quantised(w))
        return w->inputs != NULL && (n_tokens > INPUTS_MANY || clusters_take_inputs(q, w, n_tokens));
    return w->type == q->act && n_tokens > STREAM_MAX_TOKENS;
}

/* May the kernel after a stream of so many tokens begin early? With more its blocks would slow the stream down. */
static bool begins_early(const struct queue *q, int n_tokens)
{
    return n_tokens <= STREAM_EARLY && is_alone(q);
}

/* The stream, a few tokens at a time. Returns false for an unsupported product. */
static bool stream_all(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       int n_tokens, bool accumulate)
{
    if (w->type != q->act || (bias && bias->type != q->act) || !products_stream(q) ||
        (size_t)w->cols * dtype_bytes(w->type) % 16 != 0 || ((uintptr_t)w->data | (uintptr_t)x) % 16 != 0)
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        for (int t = 0; t < n_tokens; t += STREAM_MAX_TOKENS)
            stream(q, stream_args<T>{(T *)out + (size_t)t * w->rows, (const T *)x + (size_t)t * w->cols,
                                     (const T *)w->data, bias ? (const T *)bias->data : NULL,
                                     n_tokens - t < STREAM_MAX_TOKENS ? n_tokens - t : STREAM_MAX_TOKENS, w->rows,
                                     w->cols, accumulate, begins_early(q, n_tokens)});
    });
    return true;
}

/* The same bits for any number of tokens. */
static void invariant_product(struct queue *q, void *out, const void *x, const struct weight *w,
                              const struct weight *bias, int n_tokens, bool accumulate)
{
    if (weight_is_quantised(w))
        invariant_product_of_codes(q, out, x, w, bias, n_tokens, accumulate);
    else if (w->cols < 1 || (!product_in_order(q, out, x, w, bias, n_tokens, accumulate) &&
                             !stream_all(q, out, x, w, bias, n_tokens, accumulate)))
        plain(q, product_out{out, w->rows}, x, w, bias, n_tokens, accumulate);
}

extern "C" void cuda_matmul(struct queue *q, void *out, const void *x, const struct weight *w,
                            const struct weight *bias, int n_tokens, bool accumulate)
{
    nvtx_range range("matmul");
    if (n_tokens < 1 || w->rows < 1)
        return;
    const struct matmul_state *m = (const struct matmul_state *)cuda_state(q)->matmul;
    if (m->invariant) {
        invariant_product(q, out, x, w, bias, n_tokens, accumulate);
        return;
    }
    if (weight_is_quantised(w)) {
        product_of_codes(q, out, x, w, bias, n_tokens, accumulate, m->streams, m->launches_early);
        return;
    }
    bool one_type = w->cols > 0 && w->type == q->act && (!bias || bias->type == q->act);
    bool whole = (size_t)w->cols * dtype_bytes(w->type) % 16 == 0 && ((uintptr_t)w->data | (uintptr_t)x) % 16 == 0;
    bool few = n_tokens <= STREAM_MAX_TOKENS, streams = m->streams;
    if (one_type && few && whole && streams) {
        with_type(q->act, [&](auto act) {
            using T = decltype(act);
            stream(q, stream_args<T>{(T *)out, (const T *)x, (const T *)w->data, bias ? (const T *)bias->data : NULL,
                                     n_tokens, w->rows, w->cols, accumulate, begins_early(q, n_tokens)});
        });
        return;
    }
    if (few && streams)
        plain(q, product_out{out, w->rows}, x, w, bias, n_tokens, accumulate);
    else if (!product_by_clusters(q, out, x, w, bias, n_tokens, accumulate))
        product_of_many(q, product_out{out, w->rows}, x, w, bias, n_tokens, accumulate);
}
