/* kernels/cuda/products/experts_codes.cu - products of experts whose weights are quantised: codes_stream.cuh over the
 * chosen experts' rows, up to EIGHT or SIXTEEN tokens of an expert at once. A plain kernel takes the rest. */
#include "kernels/cuda/products/codes_stream.cuh"
#include "kernels/cuda/products/products.cuh"

#define PLAIN_TOKENS 8
#define PLAIN_WARPS  8

/* One warp per row of one expert, for all of its tokens. grid: rows / PLAIN_WARPS, experts */
template <typename T>
__global__ void plain_experts(T *out, const T *x, coded w, const void *bias, enum dtype bias_type, const int32_t *begin,
                              const int32_t *pair, int rows, int cols, int pairs_a_row)
{
    int row = (int)(blockIdx.x * PLAIN_WARPS + threadIdx.x / 32), lane = threadIdx.x % 32;
    int all = (int)blockIdx.y * rows + row, end = begin[blockIdx.y + 1];
    if (row >= rows)
        return;
    for (int p0 = begin[blockIdx.y]; p0 < end; p0 += PLAIN_TOKENS) {
        float sum[PLAIN_TOKENS] = {0};
        for (int k = lane; k < cols; k += 32) {
            float weight = coded_element(w, all, k);
            for (int t = 0; t < PLAIN_TOKENS && p0 + t < end; t++)
                sum[t] = fmaf(weight, to_float(x[(size_t)(pair[p0 + t] / pairs_a_row) * cols + k]), sum[t]);
        }
        for (int t = 0; t < PLAIN_TOKENS; t++) {
            float s = warp_sum(sum[t]) + weight_at(bias, bias_type, all, 0.0f);
            if (lane == 0 && p0 + t < end)
                out[(size_t)pair[p0 + t] * rows + row] = from_float<T>(s);
        }
    }
}

static void plain(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                  const struct routes *r, int pairs_a_row)
{
    int rows = w->rows / r->n_held;
    dim3 grid((unsigned)(rows + PLAIN_WARPS - 1) / PLAIN_WARPS, (unsigned)r->n_held);
    coded codes = w->cols > 0 ? coded_rows(w, 0) : coded{};
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        plain_experts<<<grid, PLAIN_WARPS * 32, 0, cuda_stream(q)>>>(
            (T *)out, (const T *)x, codes, bias ? bias->data : NULL, bias ? bias->type : DTYPE_F32,
            r->begin + r->first_held, r->pair, rows, w->cols, pairs_a_row);
    });
    CUDA_TRY(q, cudaGetLastError());
}

template <typename T, enum codes C, enum code_scaling S, int NT, typename F>
static void of(F f)
{
    f(codes_matmul<T, C, S, NT, true>, codes_stream<T, C, S, NT, true>::SHARED);
}

/* Scales of whole rows are treated as scales of steps. Calls f(kernel, shared bytes). */
template <typename T, int NT, typename F>
static void with_codes(enum codes codes, enum code_scaling way, F f)
{
    if (codes == CODES_E4M3 && way != SCALES_OF_LANES)
        of<T, CODES_E4M3, SCALES_OF_STEPS, NT>(f);
    else if (codes == CODES_E4M3)
        of<T, CODES_E4M3, SCALES_OF_LANES, NT>(f);
    else if (codes == CODES_INT8 && way != SCALES_OF_LANES)
        of<T, CODES_INT8, SCALES_OF_STEPS, NT>(f);
    else if (codes == CODES_INT8)
        of<T, CODES_INT8, SCALES_OF_LANES, NT>(f);
    else if (codes == CODES_INT4 && way != SCALES_OF_LANES)
        of<T, CODES_INT4, SCALES_OF_STEPS, NT>(f);
    else if (codes == CODES_INT4)
        of<T, CODES_INT4, SCALES_OF_LANES, NT>(f);
    else
        of<T, CODES_E2M1, SCALES_OF_LANES, NT>(f);
}

bool experts_of_codes_open(cudaError_t *rc, size_t shared_bytes)
{
    bool fits = true;
    auto prepare = [&](auto kernel, size_t bytes) {
        fits = fits && bytes <= shared_bytes;
        if (*rc == cudaSuccess && fits)
            *rc = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    };
    for (int codes = CODES_E4M3; codes <= CODES_E2M1; codes++)
        for (int way = SCALES_OF_STEPS; way <= SCALES_OF_LANES; way++) {
            with_codes<__half, 8>((enum codes)codes, (enum code_scaling)way, prepare);
            with_codes<__half, 16>((enum codes)codes, (enum code_scaling)way, prepare);
            with_codes<__nv_bfloat16, 8>((enum codes)codes, (enum code_scaling)way, prepare);
            with_codes<__nv_bfloat16, 16>((enum codes)codes, (enum code_scaling)way, prepare);
        }
    return fits;
}

template <typename T>
static void stream(struct queue *q, const codes_args<T> &a, enum code_scaling way, int n_tokens)
{
    auto start = [&](auto kernel, size_t bytes) {
        launch_early(q, cuda_state(q)->launches_early, kernel, dim3((unsigned)cuda_state(q)->n_multiprocessors),
                     CODES_WARPS * 32, bytes, a);
    };
    if (n_tokens > 8)
        with_codes<T, 16>(a.w.form.codes, way, start);
    else
        with_codes<T, 8>(a.w.form.codes, way, start);
}

void experts_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      const struct routes *r, const struct routing *how, int pairs_a_row, int n_tokens, bool streams)
{
    enum code_scaling way;
    int n_pairs = n_tokens * how->n_chosen, most = n_tokens > 8 ? 16 : 8;
    bool fits = n_pairs / most + (r->n_held < n_pairs ? r->n_held : n_pairs) <= CODES_CHUNKS;
    bool types = q->act != DTYPE_F32 && (!bias || bias->type == q->act);
    if (!streams || !fits || !types || w->cols < 1 || w->cols % 8 != 0 || (uintptr_t)x % 16 != 0 ||
        !codes_scaling(w, &way)) {
        plain(q, out, x, w, bias, r, pairs_a_row);
        return;
    }
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            codes_args<T> a = {};
            a.out = (T *)out, a.x = (const T *)x, a.bias = bias ? (const T *)bias->data : NULL;
            a.w = coded_rows(w, 0);
            a.rows = w->rows / r->n_held, a.cols = w->cols;
            a.begin = r->begin + r->first_held, a.pair = r->pair, a.n_held = r->n_held, a.pairs_a_row = pairs_a_row;
            stream(q, a, way, n_tokens);
        }
    });
}
