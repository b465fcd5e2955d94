/* kernels/cpu/rope.c - the rotary embedding's angles. */
#include "kernels/cpu/cpu.h"

#include <math.h>

/* The frequency of pair j in a sequence of n tokens. */
static float frequency(const struct rope *rope, int j, int n)
{
    if (rope->growth == ROPE_FIXED || n <= rope->long_from)
        return rope->inv_freq[j];
    if (rope->growth == ROPE_LONG)
        return rope->inv_freq_long[j];
    double dims = rope->dims, factor = rope->factor;
    double stretch = factor * n / rope->long_from - (factor - 1.0);
    double base = rope->theta * pow(stretch, dims / (dims - 2.0));
    return (float)pow(base, -2.0 * j / dims);
}

void cpu_rope_table(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                    const int32_t *rope_len, int n_tokens)
{
    int pairs = rope->dims / 2;
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *pairs * 20)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        float *row = cos_sin + (size_t)t * rope->dims;
        for (int j = 0; j < pairs; j++) {
            float angle = (float)pos[t] * frequency(rope, j, rope_len[t]);
            row[j] = (float)cos(angle) * rope->attention_scaling;
            row[pairs + j] = (float)sin(angle) * rope->attention_scaling;
        }
    }
}
