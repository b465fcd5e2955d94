/* kernels/cuda/products/ordered.cu - chooses the tiles of ordered.cuh, which decide about its speed alone, and launches
 * it. */
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/products/ordered_few.cuh"
#include "kernels/cuda/products/ordered_many.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/tensor_map.cuh"

#include <algorithm>
#include <type_traits>

/* Clocks that a multiprocessor of an H200 takes for a chunk: for a row from L2, if few multiprocessors read it and if
 * all do; for a row from memory that no other tile needs. For a chunk without warpgroups, at least; its share of a
 * stage's; and what 16 x 1 results add to that. For a chunk with warpgroups, at least, and what 64 x 1 results add. The
 * last: what a tile takes besides its chunks. */
#define CLOCKS_OF_ROW      2.0
#define CLOCKS_OF_FULL_ROW 3.4
#define CLOCKS_OF_MEMORY   7.1
#define CLOCKS_OF_FEW      235.0
#define CLOCKS_OF_STAGE    600.0
#define CLOCKS_OF_NARROW   0.6
#define CLOCKS_OF_MANY     270
#define CLOCKS_OF_RESULT   1.6
#define CLOCKS_OF_TILE     600

/* Calls f(form) for every form of tiles; those of one chunk, at last, take any number of columns. */
template <typename F>
static void each_form(F f)
{
    f(ordered_few_form<2, 8, 4>()), f(ordered_few_form<3, 8, 4>()), f(ordered_few_form<7, 8, 2>());
    f(ordered_few_form<2, 16, 4>()), f(ordered_few_form<3, 16, 4>()), f(ordered_few_form<7, 16, 2>());
    f(ordered_few_form<2, 32, 4>()), f(ordered_few_form<3, 32, 4>()), f(ordered_few_form<7, 32, 2>());
    f(ordered_few_form<2, 64, 2>()), f(ordered_few_form<3, 64, 2>());
    f(ordered_many_form<1, 32, 4>()), f(ordered_many_form<1, 64, 2>());
    f(ordered_many_form<1, 128, 2>()), f(ordered_many_form<2, 64, 2>()), f(ordered_many_form<2, 128, 2>());
    f(ordered_many_form<2, 256, 1>()), f(ordered_many_form<2, 64, 1>()), f(ordered_few_form<3, 16, 1>());
}

static int ceiling(int n, int of)
{
    return (n + of - 1) / of;
}

/* The rows of x in a chunk; warpgroups read 8 at a time. */
template <typename FORM>
static int rows_of_chunk(int n_tokens)
{
    return std::min(FORM::MANY ? ceiling(n_tokens, 8) * 8 : n_tokens, FORM::TOKENS);
}

/* The clocks of a chunk whose operands are there. */
template <typename FORM>
static double clocks_of_chunk(void)
{
    if (FORM::MANY)
        return CLOCKS_OF_MANY + CLOCKS_OF_RESULT * (FORM::TOKENS / 64) * FORM::WIDTH;
    return std::max(CLOCKS_OF_FEW,
                    CLOCKS_OF_STAGE / FORM::CHUNKS + CLOCKS_OF_NARROW * FORM::TOKENS * (FORM::WIDTH / 16));
}

/* About how many clocks a form takes. */
template <typename FORM>
static double clocks_of(int n_blocks, int n_tokens, int rows, int cols)
{
    int of_tokens = ceiling(n_tokens, FORM::TOKENS), tiles = of_tokens * ceiling(rows, FORM::WIDTH);
    double busy = std::min(1.0, (double)tiles / n_blocks), row = std::max(CLOCKS_OF_ROW, CLOCKS_OF_FULL_ROW * busy);
    double boxes = row * (rows_of_chunk<FORM>(n_tokens) + FORM::WIDTH);
    double memory = CLOCKS_OF_MEMORY * busy * FORM::WIDTH / of_tokens;
    double chunk = std::max(clocks_of_chunk<FORM>(), std::max(boxes, memory));
    return ceiling(tiles, n_blocks) * (chunk * ceiling(cols, ORDERED_COLS) + CLOCKS_OF_TILE);
}

/* The map of a matrix [rows, cols], in boxes of box_rows rows of some chunks: [chunks][rows][64 columns]; whole false:
 * of one chunk. Elements beyond the matrix are zeros. */
template <typename T>
static CUtensorMap matrix_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const void *data, int rows,
                              int cols, bool whole, int box_rows, int chunks)
{
    const cuuint64_t pitch = (cuuint64_t)cols * sizeof(T), chunk = ORDERED_COLS * sizeof(T);
    const cuuint64_t size[] = {whole ? (cuuint64_t)ORDERED_COLS : (cuuint64_t)cols, (cuuint64_t)rows,
                               whole ? (cuuint64_t)cols / ORDERED_COLS : 1};
    const cuuint64_t pitches[] = {pitch, whole ? chunk : pitch * (cuuint64_t)rows};
    const cuuint32_t box[] = {ORDERED_COLS, (cuuint32_t)box_rows, (cuuint32_t)chunks}, stride[] = {1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(
        &map, std::is_same<T, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
        (void *)data, size, pitches, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of [%d, %d]: error %d", rows, cols, (int)rc);
    return map;
}

template <typename T, typename FORM>
static auto kernel_of(void)
{
    if constexpr (FORM::MANY)
        return ordered_many<T, FORM>;
    else
        return ordered_few<T, FORM>;
}

template <typename T, typename FORM>
static void launch_form(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, ordered_args<T> a, const void *x,
                        const void *w)
{
    int tiles = ceiling(a.n_tokens, FORM::TOKENS) * ceiling(a.rows, FORM::WIDTH);
    int most = cuda_state(q)->n_multiprocessors;
    a.x_rows = rows_of_chunk<FORM>(a.n_tokens);
    launch(q, kernel_of<T, FORM>(), dim3((unsigned)(tiles < most ? tiles : most)), dim3(FORM::THREADS),
           sizeof(ordered_shared<FORM>) + ORDERED_ALIGN, a,
           matrix_map<T>(q, encode, x, a.n_tokens, a.cols, a.whole, a.x_rows, FORM::CHUNKS),
           matrix_map<T>(q, encode, w, a.rows, a.cols, a.whole, FORM::WIDTH, FORM::CHUNKS));
}

/* Takes the form with the fewest clocks by estimate. */
template <typename T>
static void launch_best(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const ordered_args<T> &a,
                        const void *x, const void *w)
{
    int best = -1, n = 0, n_blocks = cuda_state(q)->n_multiprocessors;
    double least = 0;
    each_form([&](auto form) {
        using FORM = decltype(form);
        double clocks = clocks_of<FORM>(n_blocks, a.n_tokens, a.rows, a.cols);
        if ((a.whole || FORM::CHUNKS == 1) && (best < 0 || clocks < least))
            best = n, least = clocks;
        n++;
    });
    n = 0;
    each_form([&](auto form) {
        if (n++ == best)
            launch_form<T, decltype(form)>(q, encode, a, x, w);
    });
}

template <typename T>
static void prepare(struct queue *q)
{
    each_form([&](auto form) {
        using FORM = decltype(form);
        CUDA_TRY(q,
                 cudaFuncSetAttribute((const void *)kernel_of<T, FORM>(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      sizeof(ordered_shared<FORM>) + ORDERED_ALIGN));
    });
}

void prepare_ordered_products(struct queue *q)
{
    prepare<__half>(q);
    prepare<__nv_bfloat16>(q);
}

bool product_in_order(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = many_encoder(q);
    if (encode == NULL || q->act == DTYPE_F32 || w->type != q->act || w->cols < 1 || w->cols % 8 != 0 ||
        ((uintptr_t)w->data | (uintptr_t)x) % 16 != 0)
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2)
            launch_best<T>(q, encode,
                           {(T *)out, bias ? bias->data : NULL, bias ? bias->type : DTYPE_F32, n_tokens, w->rows,
                            w->cols, 0, accumulate, w->cols % ORDERED_COLS == 0, is_alone(q)},
                           x, w->data);
    });
    return true;
}
