/* kernels/cuda/products/codes_many.cu - the product of a quantised matrix for more tokens than codes_stream.cuh takes:
 * coded_many.cuh, with parts of the columns (parts.cuh) in the place of experts. */
#include "kernels/cuda/products/coded_many_host.cuh"
#include "kernels/cuda/products/codes_stream.cuh"
#include "kernels/cuda/products/parts.cuh"
#include "kernels/cuda/products/products.cuh"

#define MOST_TOKENS CODED_WIDTH /* for more, dequantising the matrix first is faster */
#define STAGE_US    0.42

template <typename T>
static void product_in_parts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, expert_product<T> a,
                             const struct weight *w)
{
    if (a.n_held > 1 || a.accumulate)
        a.sums = (float *)w->wide;
    launch_coded<T, MANY_DENSE>(q, encode, a, w);
    if (a.sums != NULL)
        launch_join(q, a);
}

static part_choice parts_of(const struct weight *w, int n_tokens, bool accumulate)
{
    part_choice of = {};
    of.tiles = (w->rows + 2 * MANY_BOX - 1) / (2 * MANY_BOX) * ((n_tokens + CODED_WIDTH - 1) / CODED_WIDTH);
    of.stages = (w->cols + MANY_COLS - 1) / MANY_COLS;
    of.results = (double)w->rows * n_tokens;
    of.stage = STAGE_US;
    of.bytes = WIDE_BYTES;
    of.sums = accumulate;
    return of;
}

void prepare_coded_products(struct queue *q)
{
    prepare_coded<__half, MANY_DENSE>(q), prepare_coded<__nv_bfloat16, MANY_DENSE>(q);
}

bool coded_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate)
{
    enum code_scaling way;
    PFN_cuTensorMapEncodeTiled_v12000 encode = many_encoder(q);
    if (encode == NULL || q->act == DTYPE_F32 || n_tokens > MOST_TOKENS || w->rows % 8 != 0 || w->cols < 1 ||
        w->cols % 8 != 0 || ((uintptr_t)x | (uintptr_t)out) % 16 != 0 || !codes_scaling(w, &way))
        return false;
    if (accumulate && (size_t)n_tokens * (size_t)w->rows * sizeof(float) > WIDE_BYTES)
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            expert_product<T> a = {};
            a.out = (T *)out, a.x = (const T *)x;
            a.bias = bias ? bias->data : NULL, a.bias_type = bias ? bias->type : DTYPE_F32;
            a.n_tokens = n_tokens, a.rows = w->rows, a.cols = w->cols, a.accumulate = accumulate;
            a.n_held = choose_parts(cuda_state(q)->n_multiprocessors, parts_of(w, n_tokens, accumulate));
            product_in_parts(q, encode, a, w);
        }
    });
    return true;
}
