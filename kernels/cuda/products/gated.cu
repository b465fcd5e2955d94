/* kernels/cuda/products/gated.cu - chooses the tiles of gated.cuh, which decide about its speed alone, and launches
 * it. */
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/gated.cuh"
#include "kernels/cuda/products/inputs.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/invariance.h"

#include <algorithm>
#include <math.h>
#include <type_traits>

/* Numbers of tokens for which the kernel is faster than cuBLASLt's and the activation after it, as measured on Hopper.
 * Fewer go through the stream of matmul_stream.cuh. */
#define GATED_LEAST 17
#define GATED_SOME  256  /* up to which weights are read at memory bandwidth */
#define GATED_CODES 224  /* the same of codes */
#define GATED_MANY  1024 /* from which tiles are large and many, if few of them are partly empty: */
#define GATED_FULL  0.93 /* the least share of results in all multiprocessors' tiles */
#define GATED_BUSY  0.7  /* the least share of multiprocessors that have a tile */

/* Calls f(form) with the form for a number of tokens. */
template <bool CODES, typename F>
static void with_form(int n_tokens, F f)
{
    if (!CODES && n_tokens <= 16)
        f(gated_form<16, 6, 1, false, false>());
    else if (n_tokens <= 32)
        f(gated_form<32, 6, 1, false, CODES>());
    else if (n_tokens <= 64)
        f(gated_form<64, 5, 1, false, CODES>());
    else if (n_tokens <= 128)
        f(gated_form<64, 5, 2, false, CODES>());
    else if (n_tokens <= 192)
        f(gated_form<96, 4, 1, false, CODES>());
    else
        f(gated_form<128, 4, 2, true, CODES>());
}

/* The weights, [gates, ups][rows][cols], or x as [1][n_tokens][cols]; pitch: bytes from row to row. */
struct operand {
    const void *data;
    CUtensorMapDataType type;
    int kinds, rows;
    size_t pitch;
};

/* Its map, in boxes of box_rows rows. Elements beyond the matrix are zeros. Each type has the L2 promotion
 * with which it was faster. */
static CUtensorMap rows_map(struct queue *q, const operand &of, int cols, int box_rows)
{
    const cuuint64_t size[] = {(cuuint64_t)cols, (cuuint64_t)of.rows, (cuuint64_t)of.kinds};
    const cuuint64_t pitch[] = {of.pitch, of.pitch * (cuuint64_t)of.rows};
    const bool codes = of.type == CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const int columns = codes ? GATED_SPAN : GATED_SPAN / 2;
    const auto promotion = codes ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    const cuuint32_t box[] = {(cuuint32_t)columns, (cuuint32_t)box_rows, 1}, stride[] = {1, 1, 1};
    CUtensorMap map = {};
    CUresult rc =
        many_encoder(q)(&map, of.type, 3, (void *)of.data, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of %d x [%d, %d]: error %d", of.kinds, of.rows, cols,
            (int)rc);
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
static void launch_gated(struct queue *q, gated_args<T> a, const operand &x, const operand &w)
{
    const int C = FORM::CLUSTER, of_tokens = ceiling(a.n_tokens, C * FORM::TOKENS);
    int clusters = cuda_state(q)->n_multiprocessors / C;
    a.box = a.n_tokens <= GATED_SOME ? gates_of_tile(a.rows, of_tokens, clusters) : GATED_BOX;
    a.x_rows = std::min(a.n_tokens, FORM::TOKENS);
    int n_tiles = ceiling(a.rows, a.box) * of_tokens;
    launch_clusters(q, C, gated_product<T, FORM>, dim3((unsigned)(C * std::min(n_tiles, clusters))),
                    dim3(GATED_THREADS), sizeof(gated_shared<FORM>) + GATED_ALIGN, a, rows_map(q, x, a.cols, a.x_rows),
                    rows_map(q, w, a.cols, a.box));
}

template <bool CODES>
static void prepare_forms(struct queue *q)
{
    for (int n : {16, 32, 64, 128, 192, 256})
        with_form<CODES>(n, [&](auto form) {
            using FORM = decltype(form);
            const int bytes = sizeof(gated_shared<FORM>) + GATED_ALIGN;
            CUDA_TRY(q, cudaFuncSetAttribute((const void *)gated_product<__half, FORM>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
            CUDA_TRY(q, cudaFuncSetAttribute((const void *)gated_product<__nv_bfloat16, FORM>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        });
}

void prepare_gated_products(struct queue *q)
{
    prepare_forms<false>(q);
    prepare_forms<true>(q);
}

/* Do tiles of so many gates and their ups keep the device busy? */
static bool is_large(const struct queue *q, int rows)
{
    return ceiling(rows, GATED_BOX / 2) >= GATED_BUSY * cuda_state(q)->n_multiprocessors;
}

/* Is the kernel faster than the two operations, for up to `some` tokens or for many? It depends on the sizes and the
 * device only. */
static bool is_faster(const struct queue *q, int n_tokens, int rows, int some)
{
    double room = (double)cuda_state(q)->n_multiprocessors * 128.0 * GATED_BOX; /* for results, in a wave of tiles */
    double waves = ceil(256.0 * GATED_BOX * ceiling(n_tokens, 256) * ceiling(rows, GATED_BOX) / room);
    return (n_tokens >= GATED_LEAST && n_tokens <= some) ||
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
           (cuda_is_invariant(q) || is_faster(q, n_tokens, w->rows / 2, GATED_SOME));
}

/* The same for codes with one scale a row, where the caller has checked that inputs are quantised. */
bool gated_product_takes_codes(const struct queue *q, const struct weight *w, enum activation kind, int n_tokens)
{
    const coded codes = coded_rows(w, 0);
    return many_encoder(q) != NULL && kind == ACTIVATION_SILU && q->act != DTYPE_F32 && codes.n_groups == 1 &&
           w->rows % 16 == 0 && ((uintptr_t)codes.codes | codes.pitch) % 16 == 0 && is_large(q, w->rows / 2) &&
           is_faster(q, n_tokens, w->rows / 2, GATED_CODES);
}

void gated_product_of_codes(struct queue *q, void *out, const coded_inputs &x, const struct weight *w)
{
    const coded codes = coded_rows(w, 0);
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2)
            with_form<true>(x.n_rows, [&](auto form) {
                const gated_args<T> a = {(T *)out, x.n_rows, w->rows / 2, w->cols, 0, 0, (const float *)codes.scales,
                                         x.scales};
                launch_gated<T, decltype(form)>(
                    q, a, {x.codes, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, x.n_rows, (size_t)w->cols},
                    {codes.codes, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, w->rows / 2, codes.pitch});
            });
    });
}

static void gated_product_of_numbers(struct queue *q, void *out, const void *x, const struct weight *w, int n_tokens)
{
    const CUtensorMapDataType type =
        q->act == DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        const size_t pitch = (size_t)w->cols * sizeof(T);
        if constexpr (sizeof(T) == 2)
            with_form<false>(n_tokens, [&](auto form) {
                const gated_args<T> a = {(T *)out, n_tokens, w->rows / 2, w->cols, 0, 0, NULL, NULL};
                launch_gated<T, decltype(form)>(q, a, {x, type, 1, n_tokens, pitch},
                                                {w->data, type, 2, w->rows / 2, pitch});
            });
    });
}

extern "C" bool cuda_gated_product(struct queue *q, void *out, const void *x, const struct weight *w,
                                   enum activation kind, int n_tokens)
{
    nvtx_range range("gated_product");
    if (n_tokens < 1)
        return false;
    if (weight_is_quantised(w))
        return gated_product_of_inputs(q, out, x, w, kind, n_tokens);
    if (!takes_gated(q, w, x, out, kind, n_tokens))
        return false;
    gated_product_of_numbers(q, out, x, w, n_tokens);
    return true;
}
