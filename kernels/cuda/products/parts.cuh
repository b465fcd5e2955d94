/* kernels/cuda/products/parts.cuh - a product whose columns are split into parts (split-K), as many as keep the
 * multiprocessors busy: the number of parts, and the sum of their results, which pass through memory that stays in
 * L2. */
#ifndef PRODUCTS_PARTS_CUH
#define PRODUCTS_PARTS_CUH

#include "kernels/cuda/products/experts_many.cuh"

#define MOST_PARTS   16
#define LEAST_STAGES 4 /* of a part */
#define JOIN_THREADS 256

/* out (+)= the sum of all parts, in order, and bias. Four results of a token per thread. grid: rows / 4, tokens */
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

/* The work to split: tiles, stages per row, results; microseconds per stage; memory for the parts' results. */
struct part_choice {
    int tiles, stages;
    double results, stage;
    size_t bytes;
    bool sums; /* the results of a single part go through the sum, too */
};

/* The number of parts that takes the least time, by the cost of a stage, of the parts' results, and of their sum. */
static inline int choose_parts(int n_blocks, const part_choice &of)
{
    const double join = 4, result = 8 / 4e6;
    int best = 1;
    double least = 0;
    for (int n = 1; n <= MOST_PARTS && (n == 1 || n * LEAST_STAGES <= of.stages); n++) {
        int rounds = (of.tiles * n + n_blocks - 1) / n_blocks;
        double cost = rounds * ((of.stages + n - 1) / n) * of.stage;
        cost += n > 1 || of.sums ? join + n * of.results * result : 0;
        if (n * of.results * sizeof(float) <= (double)of.bytes && (n == 1 || cost < least))
            best = n, least = cost;
    }
    return best;
}

template <typename T>
static inline void launch_join(struct queue *q, const expert_product<T> &a)
{
    dim3 grid((unsigned)(a.rows / 4 + JOIN_THREADS - 1) / JOIN_THREADS, (unsigned)a.n_tokens);
    launch(q, join_parts<T>, grid, dim3(JOIN_THREADS), 0, a.out, (const float *)a.sums, a.bias, a.bias_type, a.n_held,
           a.rows, a.accumulate);
}

#endif
