/* kernels/cuda/products/inputs_many.cu - the launch of inputs_many.cuh. */
#include "kernels/cuda/products/inputs.cuh"
#include "kernels/cuda/products/inputs_many.cuh"
#include "kernels/cuda/products/parts.cuh"
#include "kernels/cuda/tensor_map.cuh"

#define STAGE_US      0.9 /* while all multiprocessors have work */
#define INPUTS_SHARED (sizeof(inputs_shared) + MANY_ALIGN)

void product_of_inputs_open(cudaError_t *rc, size_t shared_bytes)
{
    const void *const kernel[] = {(const void *)inputs_many<__half>, (const void *)inputs_many<__nv_bfloat16>};
    for (const void *k : kernel)
        if (*rc == cudaSuccess && INPUTS_SHARED <= shared_bytes)
            *rc = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, INPUTS_SHARED);
}

/* Rows of codes, in boxes of 128 columns. */
static CUtensorMap rows_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const uint8_t *codes, int rows,
                            int cols, size_t row, int box_rows)
{
    const cuuint64_t size[] = {(cuuint64_t)cols, (cuuint64_t)rows, 1}, pitch[] = {row, (cuuint64_t)rows * row};
    const cuuint32_t box[] = {2 * MANY_COLS, (cuuint32_t)box_rows, 1}, stride[] = {1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, (void *)codes, size, pitch, box, stride,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of codes [%d, %d]: error %d", rows, cols, (int)rc);
    return map;
}

static part_choice parts_of(const coded_inputs &x, const struct weight *w, bool accumulate)
{
    part_choice of = {};
    of.tiles = (w->rows + 2 * MANY_BOX - 1) / (2 * MANY_BOX) * ((x.n_rows + INPUTS_WIDTH - 1) / INPUTS_WIDTH);
    of.stages = (w->cols + 2 * MANY_COLS - 1) / (2 * MANY_COLS);
    of.results = (double)w->rows * x.n_rows;
    of.stage = STAGE_US;
    of.bytes = WIDE_BYTES - (size_t)((char *)x.rest - (char *)w->wide);
    of.sums = accumulate;
    return of;
}

template <typename T>
static void launch_inputs(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, expert_product<T> a,
                          const coded_inputs &x, const struct weight *w)
{
    const coded codes = coded_rows(w, 0);
    const inputs_scales scales = {(const float *)codes.scales, x.scales, codes.n_groups, x.pitch};
    if (a.n_held > 1 || a.accumulate)
        a.sums = x.rest;
    launch(q, inputs_many<T>, dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(MANY_THREADS), INPUTS_SHARED, a,
           scales, rows_map(q, encode, codes.codes, w->rows, w->cols, codes.pitch, MANY_BOX),
           rows_map(q, encode, x.codes, x.n_rows, w->cols, (size_t)w->cols, INPUTS_WIDTH));
    if (a.sums != NULL)
        launch_join(q, a);
}

bool product_of_some_inputs(struct queue *q, void *out, const coded_inputs &x, const struct weight *w,
                            const struct weight *bias, bool accumulate)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = many_encoder(q);
    const part_choice of = parts_of(x, w, accumulate);
    if (encode == NULL || (accumulate && of.results * sizeof(float) > (double)of.bytes))
        return false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            expert_product<T> a = {};
            a.out = (T *)out;
            a.bias = bias ? bias->data : NULL, a.bias_type = bias ? bias->type : DTYPE_F32;
            a.n_tokens = x.n_rows, a.rows = w->rows, a.accumulate = accumulate;
            a.cols = w->cols / 2; /* two codes count as one element */
            a.n_held = choose_parts(cuda_state(q)->n_multiprocessors, of);
            launch_inputs(q, encode, a, x, w);
        }
    });
    return true;
}
