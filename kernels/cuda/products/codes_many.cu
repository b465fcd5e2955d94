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

/* Does the kernel take this product, of any number of tokens? */
static bool takes_product(const struct queue *q, const void *out, const void *x, const struct weight *w)
{
    enum code_scaling way;
    return many_encoder(q) != NULL && q->act != DTYPE_F32 && w->rows % 8 == 0 && w->cols > 0 && w->cols % 8 == 0 &&
           ((uintptr_t)x | (uintptr_t)out) % 16 == 0 && codes_scaling(w, &way);
}

static void launch_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                           int n_tokens, bool accumulate, int n_parts)
{
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            expert_product<T> a = {};
            a.out = (T *)out, a.x = (const T *)x;
            a.bias = bias ? bias->data : NULL, a.bias_type = bias ? bias->type : DTYPE_F32;
            a.n_tokens = n_tokens, a.rows = w->rows, a.cols = w->cols, a.accumulate = accumulate;
            a.n_held = n_parts;
            product_in_parts(q, many_encoder(q), a, w);
        }
    });
}

bool coded_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate)
{
    if (n_tokens > MOST_TOKENS || !takes_product(q, out, x, w))
        return false;
    if (accumulate && (size_t)n_tokens * (size_t)w->rows * sizeof(float) > WIDE_BYTES)
        return false;
    launch_product(q, out, x, w, bias, n_tokens, accumulate,
                   choose_parts(cuda_state(q)->n_multiprocessors, parts_of(w, n_tokens, accumulate)));
    return true;
}

/* The number of parts depends on the matrix alone. */
bool invariant_coded_product(struct queue *q, void *out, const void *x, const struct weight *w,
                             const struct weight *bias, int n_tokens, bool accumulate)
{
    if (!takes_product(q, out, x, w) || w->wide == NULL)
        return false;
    int n_parts = choose_parts(cuda_state(q)->n_multiprocessors, parts_of(w, 1, true)), most = MOST_TOKENS;
    size_t size = dtype_bytes(q->act), of_token = (size_t)n_parts * (size_t)w->rows * sizeof(float);
    if ((size_t)most * of_token > WIDE_BYTES)
        most = (int)(WIDE_BYTES / of_token);
    if (most < 1)
        return false;
    for (int t = 0; t < n_tokens; t += most)
        launch_product(q, (char *)out + (size_t)t * w->rows * size, (const char *)x + (size_t)t * w->cols * size, w,
                       bias, n_tokens - t < most ? n_tokens - t : most, accumulate, n_parts);
    return true;
}
