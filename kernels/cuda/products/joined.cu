/* kernels/cuda/products/joined.cu - decides which products joined.cuh computes and how they are divided, and launches
 * it. */
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/inputs.cuh"
#include "kernels/cuda/products/joined.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/tensor_map.cuh"

#include <algorithm>
#include <type_traits>

/* Sizes for which it is faster than the other kernels, as measured on Hopper. */
#define JOINED_LEAST  17 /* tokens */
#define JOINED_MOST   64
#define JOINED_LOW    96   /* rows of a tile, at most */
#define JOINED_BUSY   0.45 /* the least share of clusters that have a tile */
#define JOINED_COLS   2560 /* of 16-bit weights, the fewest; matrices of up to as many rows may have JOINED_NARROW */
#define JOINED_NARROW 2048
#define JOINED_CODES  4096 /* of weights in 8 bits, the fewest */

static int ceiling(int n, int of)
{
    return (n + of - 1) / of;
}

static int clusters_of(const struct queue *q)
{
    return cuda_state(q)->n_multiprocessors / JOINED_PARTS;
}

/* The rows of a tile: all clusters get one, if rows are many enough. */
static int rows_of_tile(const struct queue *q, int rows)
{
    return std::max(ceiling(ceiling(rows, clusters_of(q)), 8) * 8, 64);
}

/* Calls f(form) with the form for tiles of 64 G rows and so many tokens. */
template <bool CODES, int G, typename F>
static void with_tokens(int n_tokens, F f)
{
    if (n_tokens <= 32)
        f(joined_form<G, 32, CODES>());
    else
        f(joined_form<G, 64, CODES>());
}

template <bool CODES, typename F>
static void with_form(int box, int n_tokens, F f)
{
    if (box <= 64)
        with_tokens<CODES, 1>(n_tokens, f);
    else
        with_tokens<CODES, 2>(n_tokens, f);
}

template <typename FORM>
static int shared_bytes(FORM)
{
    return sizeof(joined_shared<FORM>) + JOINED_ALIGN;
}

/* A matrix in memory: its elements' type and bytes, the bytes from row to row. */
struct layout {
    const void *data;
    CUtensorMapDataType type;
    size_t element, pitch;
};

/* The map of a matrix as [chunks][rows][JOINED_SPAN bytes]. Elements beyond the matrix are zeros. */
static CUtensorMap chunks_map(struct queue *q, const layout &of, int rows, int n_chunks, int box_rows, int box_chunks)
{
    const cuuint64_t row = JOINED_SPAN / of.element, size[] = {row, (cuuint64_t)rows, (cuuint64_t)n_chunks};
    const cuuint64_t pitch[] = {of.pitch, JOINED_SPAN};
    const cuuint32_t box[] = {(cuuint32_t)row, (cuuint32_t)box_rows, (cuuint32_t)box_chunks}, stride[] = {1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = many_encoder(q)(&map, of.type, 3, (void *)of.data, size, pitch, box, stride,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of [%d, %d chunks]: error %d", rows, n_chunks, (int)rc);
    return map;
}

/* Launches the kernel for operands in these layouts, whose columns are whole chunks. */
template <bool CODES, typename T>
static void launch_joined(struct queue *q, joined_args<T> a, const layout &x, const layout &w)
{
    a.box = rows_of_tile(q, a.rows);
    a.early = is_alone(q);
    with_form<CODES>(a.box, a.n_tokens, [&](auto form) {
        using FORM = decltype(form);
        launch_clusters(q, JOINED_PARTS, joined_product<T, FORM>,
                        dim3((unsigned)(ceiling(a.rows, a.box) * JOINED_PARTS)), dim3(FORM::THREADS),
                        (size_t)shared_bytes(form), a,
                        chunks_map(q, x, a.n_tokens, a.n_chunks, FORM::TOKENS, FORM::CHUNKS),
                        chunks_map(q, w, a.rows, a.n_chunks, a.box, FORM::CHUNKS));
    });
}

template <bool CODES>
static void prepare_forms(struct queue *q)
{
    for (int box : {64, JOINED_LOW})
        for (int n : {32, JOINED_MOST})
            with_form<CODES>(box, n, [&](auto form) {
                using FORM = decltype(form);
                const auto what = cudaFuncAttributeMaxDynamicSharedMemorySize;
                CUDA_TRY(q, cudaFuncSetAttribute((const void *)joined_product<__half, FORM>, what, shared_bytes(form)));
                CUDA_TRY(q, cudaFuncSetAttribute((const void *)joined_product<__nv_bfloat16, FORM>, what,
                                                 shared_bytes(form)));
            });
}

void prepare_joined_products(struct queue *q)
{
    prepare_forms<false>(q);
    prepare_forms<true>(q);
}

/* The fewest columns of 16-bit weights with so many rows for which the kernel is faster. */
static int least_columns(int rows)
{
    return rows <= JOINED_COLS ? JOINED_NARROW : JOINED_COLS;
}

/* Is the kernel faster than the other ones? It depends on the sizes and the device only. columns: of a chunk, least: of
 * a row */
static bool is_faster(const struct queue *q, const struct weight *w, int n_tokens, int columns, int least)
{
    if (w->rows % 8 != 0 || w->cols % columns != 0 || w->cols < least)
        return false;
    int box = rows_of_tile(q, w->rows);
    return n_tokens >= JOINED_LEAST && n_tokens <= JOINED_MOST && box <= JOINED_LOW &&
           ceiling(w->rows, box) >= JOINED_BUSY * clusters_of(q);
}

/* The arguments but for chunks and scales. */
template <typename T>
static joined_args<T> arguments_of(void *out, const struct weight *w, const struct weight *bias, int n_tokens,
                                   bool accumulate)
{
    joined_args<T> a = {};
    a.out = (T *)out;
    a.bias = bias ? bias->data : NULL, a.bias_type = bias ? bias->type : DTYPE_F32;
    a.n_tokens = n_tokens, a.rows = w->rows, a.accumulate = accumulate;
    return a;
}

bool product_by_clusters(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                         int n_tokens, bool accumulate)
{
    if (many_encoder(q) == NULL || q->act == DTYPE_F32 || w->type != q->act ||
        ((uintptr_t)w->data | (uintptr_t)x | (uintptr_t)out) % 16 != 0)
        return false;
    const int columns = JOINED_SPAN / 2;
    if (!is_faster(q, w, n_tokens, columns, least_columns(w->rows)))
        return false;
    const CUtensorMapDataType type =
        q->act == DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            joined_args<T> a = arguments_of<T>(out, w, bias, n_tokens, accumulate);
            a.n_chunks = w->cols / columns;
            launch_joined<false>(q, a, {x, type, sizeof(T), (size_t)w->cols * sizeof(T)},
                                 {w->data, type, sizeof(T), (size_t)w->cols * sizeof(T)});
        }
    });
    return true;
}

bool clusters_take_inputs(const struct queue *q, const struct weight *w, int n_tokens)
{
    return many_encoder(q) != NULL && q->act != DTYPE_F32 && code_groups(&w->form, w->cols) == 1 &&
           is_faster(q, w, n_tokens, JOINED_SPAN, JOINED_CODES);
}

bool inputs_by_clusters(struct queue *q, void *out, const coded_inputs &x, const struct weight *w,
                        const struct weight *bias, bool accumulate)
{
    const coded codes = coded_rows(w, 0);
    if (!clusters_take_inputs(q, w, x.n_rows) || ((uintptr_t)codes.codes | codes.pitch) % 16 != 0)
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            joined_args<T> a = arguments_of<T>(out, w, bias, x.n_rows, accumulate);
            a.w_scales = (const float *)codes.scales, a.x_scales = x.scales;
            a.n_chunks = w->cols / JOINED_SPAN;
            launch_joined<true>(q, a, {x.codes, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, (size_t)w->cols},
                                {codes.codes, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, codes.pitch});
        }
    });
    return true;
}
