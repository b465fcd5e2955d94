/* kernels/cpu/activate.c - the activation functions between the matrices of an MLP. */
#include "kernels/cpu/cpu.h"

#include <math.h>

static float activation(enum activation kind, float x)
{
    switch (kind) {
    case ACTIVATION_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACTIVATION_RELU:
        return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case ACTIVATION_SILU:
        return x / (1.0f + expf(-x));
    case ACTIVATION_SWIGLU: /* of the clamped gate */
    case ACTIVATION_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    case ACTIVATION_XIELU: /* cpu_xielu */
        break;
    }
    return x;
}

static float swiglu(float gate, float up)
{
    gate = gate > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate;
    up = up > SWIGLU_LIMIT ? SWIGLU_LIMIT : up < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : up;
    return (up + 1.0f) * activation(ACTIVATION_SWIGLU, gate);
}

void cpu_activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens, int cols)
{
    size_t width = gated ? 2 * (size_t)cols : (size_t)cols;
    /* Threads divide elements, not rows, since a step of one token has one row. An element costs about ten
     * multiply-adds. */
#pragma omp parallel for num_threads(cpu_threads(q, 10 * (size_t)n_tokens * cols)) collapse(2) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        for (int c = 0; c < cols; c++) {
            const float *row = (const float *)x + (size_t)t * width;
            float *result = (float *)out + (size_t)t * cols + c;
            if (kind == ACTIVATION_SWIGLU)
                *result = swiglu(row[2 * c], row[2 * c + 1]);
            else if (gated)
                *result = activation(kind, row[c]) * row[cols + c];
            else
                *result = activation(kind, row[c]);
        }
    }
}

void cpu_xielu(struct queue *q, void *out, const void *x, struct xielu constants, int n_tokens, int cols)
{
    const struct xielu k = constants;
    const float *from = x;
    float *to = out;
    ptrdiff_t n = (ptrdiff_t)n_tokens * cols;
#pragma omp parallel for num_threads(cpu_threads(q, 10 * (size_t)n)) schedule(static)
    for (ptrdiff_t i = 0; i < n; i++) {
        float v = from[i];
        if (v > 0)
            to[i] = k.positive * v * v + k.beta * v;
        else
            to[i] = k.negative * (expm1f(v > k.eps ? k.eps : v) - v) + k.beta * v; /* NaN stays NaN */
    }
}

/* The two operations are as fast. */
bool cpu_gated_product(struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                       int n_tokens)
{
    (void)q, (void)out, (void)x, (void)w, (void)kind, (void)n_tokens;
    return false;
}
