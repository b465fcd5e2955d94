/* kernels/cpu/norm.c - LayerNorm and RMSNorm, with the residual sum that precedes them. Statistics in double. */
#include "kernels/cpu/cpu.h"

#include <math.h>

/* Activations are float: NORM_RMS's rounding before the weight is the conversion to float, which NORM_RMS_ONCE need not
 * avoid. offset: of NORM_RMS_OFFSET, added to the weight. */
static void norm_rms(float *out, const float *x, const struct weight *w, float offset, int dim, float eps)
{
    double sum = 0;
    for (int c = 0; c < dim; c++)
        sum += (double)x[c] * x[c];
    double inverse = 1.0 / sqrt(sum / dim + eps);
    for (int c = 0; c < dim; c++) {
        float unit = (float)(x[c] * inverse);
        out[c] = w ? (offset + dtype_load(w->data, w->type, (size_t)c)) * unit : unit;
    }
}

static void norm_layer(float *out, const float *x, const struct weight *w, const struct weight *b, int dim, float eps)
{
    double sum = 0, squares = 0;
    for (int c = 0; c < dim; c++)
        sum += x[c];
    double mean = sum / dim;
    for (int c = 0; c < dim; c++)
        squares += (x[c] - mean) * (x[c] - mean);
    double inverse = 1.0 / sqrt(squares / dim + eps);
    for (int c = 0; c < dim; c++) {
        double scale = w ? dtype_load(w->data, w->type, (size_t)c) : 1.0;
        double shift = b ? dtype_load(b->data, b->type, (size_t)c) : 0.0;
        out[c] = (float)((x[c] - mean) * inverse * scale + shift);
    }
}

void cpu_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
              const struct weight *b, int n_tokens, int dim, float eps)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *dim)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        float *row = (float *)x + (size_t)t * dim, *result = (float *)out + (size_t)t * dim;
        for (int c = 0; c < dim && add; c++)
            row[c] += ((const float *)add)[(size_t)t * dim + c];
        if (kind != NORM_LAYER)
            norm_rms(result, row, w, kind == NORM_RMS_OFFSET ? 1.0f : 0.0f, dim, eps);
        else
            norm_layer(result, row, w, b, dim, eps);
    }
}
