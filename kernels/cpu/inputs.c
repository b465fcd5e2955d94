/* kernels/cpu/inputs.c - see kernels/inputs.h. */
#include "kernels/inputs.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

static const char *refusal(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts)
{
    (void)q, (void)w, (void)f, (void)of_experts;
    return NULL;
}

static int group_of(const struct input_form *f, int col)
{
    return (int)(((int64_t)f->first + col) / f->group);
}

static void find_largest(struct queue *q, float *largest, const void *x, const struct input_form *f, int n_rows,
                         int cols)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_rows *cols)) schedule(static)
    for (int t = 0; t < n_rows; t++) {
        const float *row = (const float *)x + (size_t)t * (size_t)cols;
        float *to = largest + (size_t)t * (size_t)f->n_groups;
        for (int g = 0; g < f->n_groups; g++)
            to[g] = 0;
        for (int c = 0; c < cols; c++) {
            float size = fabsf(row[c]), *most = &to[group_of(f, c)];
            if (size > *most)
                *most = size;
        }
    }
}

static float scale_of(const struct input_form *f, float largest)
{
    float most = f->most > 0 && largest > f->most ? f->most : largest;
    float scale = f->scale > 0 ? f->scale : most / (f->codes == CODES_E4M3 ? 448.0f : 127.5f);
    return scale > 0 ? scale : 1; /* zeros, or subnormal numbers that round to zero */
}

/* The number of the code nearest to x. */
static float nearest(enum codes codes, float x)
{
    if (codes == CODES_E4M3)
        return code_value(CODES_E4M3, float_to_e4m3(x));
    float whole = rintf(x);
    return whole < -128 ? -128 : whole > 127 ? 127 : whole;
}

static void quantise(struct queue *q, void *out, const void *x, const float *largest, const struct input_form *f,
                     int n_rows, int cols)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_rows *cols)) schedule(static)
    for (int t = 0; t < n_rows; t++) {
        const float *row = (const float *)x + (size_t)t * (size_t)cols;
        float *to = (float *)out + (size_t)t * (size_t)cols;
        for (int c = 0; c < cols; c++) {
            float scale =
                scale_of(f, f->scale > 0 ? 0 : largest[(size_t)t * (size_t)f->n_groups + (size_t)group_of(f, c)]);
            to[c] = nearest(f->codes, row[c] / scale) * scale;
        }
    }
}

const struct input_ops input_ops_cpu = {.refusal = refusal, .find_largest = find_largest, .quantise = quantise};
