/* kernels/cuda/products/codes_many.cu - the product of a matrix of codes for more tokens than are streamed:
 * coded_many.cuh, where experts are parts of the columns, as many as keep the multiprocessors busy. The parts' results
 * meet in memory that stays in L2 and are added up in order. */
#include "kernels/cuda/products/coded_many_host.cuh"
#include "kernels/cuda/products/codes_stream.cuh"
#include "kernels/cuda/products/products.cuh"

#define MOST_TOKENS  CODED_WIDTH /* for more the matrix is made wide first, which is faster */
#define MOST_PARTS   16
#define LEAST_STAGES 4 /* of a part */
#define JOIN_THREADS 256

/* out (+)= the sum of all parts, and bias. A thread: four results of a token. grid: rows / 4, tokens */
template <typename T>
__global__ void join_parts(T *out, const float *sums, const void *bias, enum dtype bias_type, int n_parts, int rows,
                           bool accumulate)
{
    after_previous_alone();
    int row = (int)(blockIdx.x * JOIN_THREADS + threadIdx.x) * 4;
    size_t at = (size_t)blockIdx.y * rows + row, part = (size_t)gridDim.y * rows;
    if (row >= rows)
        return;
    float sum[4] = {};
    for (int p = 0; p < n_parts; p++) {
        vec<float, 4> y = *(const vec<float, 4> *)(sums + p * part + at);
        for (int i = 0; i < 4; i++)
            sum[i] += y.e[i];
    }
    vec<T, 4> *to = (vec<T, 4> *)(out + at), y = {};
    if (accumulate)
        y = *to;
    for (int i = 0; i < 4; i++) {
        float s = sum[i] + weight_at(bias, bias_type, row + i, 0.0f);
        y.e[i] = from_float<T>(accumulate ? s + to_float(y.e[i]) : s);
    }
    *to = y;
}

/* Parts of the columns: the least time by what a stage takes, the parts' results, and their sum, in microseconds. */
static int choose_parts(int n_blocks, int rows, int cols, int n_tokens, bool accumulate)
{
    const double stage = 0.42, join = 4, result = 8 / 4e6;
    int stages = (cols + MANY_COLS - 1) / MANY_COLS, best = 1;
    int tiles = (rows + 2 * MANY_BOX - 1) / (2 * MANY_BOX) * ((n_tokens + CODED_WIDTH - 1) / CODED_WIDTH);
    double least = 0, results = (double)rows * n_tokens;
    for (int n = 1; n <= MOST_PARTS && (n == 1 || n * LEAST_STAGES <= stages); n++) {
        int rounds = (tiles * n + n_blocks - 1) / n_blocks;
        double cost = rounds * ((stages + n - 1) / n) * stage;
        cost += n > 1 || accumulate ? join + n * results * result : 0;
        if (n * results * sizeof(float) <= WIDE_BYTES && (n == 1 || cost < least))
            best = n, least = cost;
    }
    return best;
}

template <typename T>
static void product_in_parts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, expert_product<T> a,
                             const struct weight *w)
{
    if (a.n_held > 1 || a.accumulate)
        a.sums = (float *)w->wide;
    launch_coded<T, MANY_DENSE>(q, encode, a, w);
    if (a.sums == NULL)
        return;
    dim3 grid((unsigned)(a.rows / 4 + JOIN_THREADS - 1) / JOIN_THREADS, (unsigned)a.n_tokens);
    launch(q, join_parts<T>, grid, dim3(JOIN_THREADS), 0, a.out, (const float *)a.sums, a.bias, a.bias_type, a.n_held,
           a.rows, a.accumulate);
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
            a.n_held = choose_parts(cuda_state(q)->n_multiprocessors, w->rows, w->cols, n_tokens, accumulate);
            product_in_parts(q, encode, a, w);
        }
    });
    return true;
}
