/* kernels/cuda/products/gated.cu - chooses the tiles of gated.cuh, which decide about its speed alone, and launches
 * it. */
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/gated.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/invariance.h"

#include <algorithm>
#include <math.h>
#include <type_traits>

/* Numbers of tokens for which the kernel is faster than cuBLASLt's and the activation after it, as measured on Hopper.
 * Fewer go through the stream of matmul_stream.cuh. */
#define GATED_LEAST 17
#define GATED_SOME  256  /* up to which weights are read at memory bandwidth */
#define GATED_MANY  1024 /* from which tiles are large and many, if few of them are partly empty: */
#define GATED_FULL  0.93 /* the least share of results in all multiprocessors' tiles */
#define GATED_BUSY  0.7  /* the least share of multiprocessors that have a tile */

/* Calls f(form) with the form for a number of tokens. */
template <typename F>
static void with_form(int n_tokens, F f)
{
    if (n_tokens <= 64)
        f(gated_form<64, 5, 1, false>());
    else if (n_tokens <= 128)
        f(gated_form<64, 5, 2, false>());
    else if (n_tokens <= 192)
        f(gated_form<96, 4, 1, false>());
    else
        f(gated_form<128, 4, 2, true>());
}

/* The weights, [gates, ups][rows][cols], or x as [1][n_tokens][cols], in boxes of box_rows rows. Elements beyond the
 * matrix are zeros. */
template <typename T>
static CUtensorMap rows_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const void *data, int kinds,
                            int rows, int cols, int box_rows)
{
    const cuuint64_t row = (cuuint64_t)cols * sizeof(T);
    const cuuint64_t size[] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)kinds};
    const cuuint64_t pitch[] = {row, row * (cuuint64_t)rows};
    const cuuint32_t box[] = {GATED_COLS, (cuuint32_t)box_rows, 1}, stride[] = {1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(
        &map, std::is_same<T, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
        (void *)data, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of %d x [%d, %d]: error %d", kinds, rows, cols, (int)rc);
    return map;
}

static int ceiling(int n, int of)
{
    return (n + of - 1) / of;
}

/* The gates of a tile where reading weights takes the time: as many as spread the tiles evenly over the
 * multiprocessors. of_tokens: tiles for all tokens. */
static int gates_of_tile(int rows, int of_tokens, int n_clusters)
{
    int waves = ceiling(ceiling(rows, GATED_BOX) * of_tokens, n_clusters), tiles = waves * n_clusters / of_tokens;
    return std::max(ceiling(ceiling(rows, tiles), 8) * 8, GATED_BOX / 2);
}

template <typename T, typename FORM>
static void launch_gated(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, gated_args<T> a, const void *x,
                         const void *w)
{
    const int C = FORM::CLUSTER, of_tokens = ceiling(a.n_tokens, C * FORM::TOKENS);
    int clusters = cuda_state(q)->n_multiprocessors / C;
    a.box = a.n_tokens <= GATED_SOME ? gates_of_tile(a.rows, of_tokens, clusters) : GATED_BOX;
    int n_tiles = ceiling(a.rows, a.box) * of_tokens;
    launch_clusters(q, C, gated_product<T, FORM>, dim3((unsigned)(C * std::min(n_tiles, clusters))),
                    dim3(GATED_THREADS), sizeof(gated_shared<FORM>) + GATED_ALIGN, a,
                    rows_map<T>(q, encode, x, 1, a.n_tokens, a.cols, FORM::TOKENS),
                    rows_map<T>(q, encode, w, 2, a.rows, a.cols, a.box));
}

void prepare_gated_products(struct queue *q)
{
    for (int n : {64, 128, 192, 256})
        with_form(n, [&](auto form) {
            using FORM = decltype(form);
            const int bytes = sizeof(gated_shared<FORM>) + GATED_ALIGN;
            CUDA_TRY(q, cudaFuncSetAttribute((const void *)gated_product<__half, FORM>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
            CUDA_TRY(q, cudaFuncSetAttribute((const void *)gated_product<__nv_bfloat16, FORM>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        });
}

/* Do tiles of so many gates and their ups keep the device busy? */
static bool is_large(const struct queue *q, int rows)
{
    return ceiling(rows, GATED_BOX / 2) >= GATED_BUSY * cuda_state(q)->n_multiprocessors;
}

/* Is the kernel faster than the two operations? It depends on the sizes and the device only. */
static bool is_faster(const struct queue *q, int n_tokens, int rows)
{
    double room = (double)cuda_state(q)->n_multiprocessors * 128.0 * GATED_BOX; /* for results, in a wave of tiles */
    double waves = ceil(256.0 * GATED_BOX * ceiling(n_tokens, 256) * ceiling(rows, GATED_BOX) / room);
    return (n_tokens >= GATED_LEAST && n_tokens <= GATED_SOME) ||
           (n_tokens >= GATED_MANY && (double)n_tokens * rows >= GATED_FULL * waves * room);
}

/* Do the kernels take these weights and activations? On invariant devices (kernels/invariance.h) it must not depend on
 * the number of tokens. */
static bool takes_gated(const struct queue *q, const struct weight *w, const void *x, const void *out,
                        enum activation kind, int n_tokens)
{
    return many_encoder(q) != NULL && kind == ACTIVATION_SILU && q->act != DTYPE_F32 && w->type == q->act &&
           !weight_is_quantised(w) && w->cols >= 1 && w->cols % 8 == 0 && w->rows >= 16 && w->rows % 16 == 0 &&
           ((uintptr_t)w->data | (uintptr_t)x | (uintptr_t)out) % 16 == 0 && is_large(q, w->rows / 2) &&
           (cuda_is_invariant(q) || is_faster(q, n_tokens, w->rows / 2));
}

extern "C" bool cuda_gated_product(struct queue *q, void *out, const void *x, const struct weight *w,
                                   enum activation kind, int n_tokens)
{
    nvtx_range range("gated_product");
    if (n_tokens < 1 || !takes_gated(q, w, x, out, kind, n_tokens))
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2)
            with_form(n_tokens, [&](auto form) {
                launch_gated<T, decltype(form)>(q, many_encoder(q), {(T *)out, n_tokens, w->rows / 2, w->cols, 0}, x,
                                                w->data);
            });
    });
    return true;
}
