/* kernels/cpu/noise.c - weights without a checkpoint: uniform noise that depends on the seed and the element's index */
#include "kernels/code_noise.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

/* splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): output number i of
 * the generator that starts from the seed. Its four 16-bit parts serve the elements 4i .. 4i+3. */
static inline uint64_t splitmix64(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* float_to_bf16 for numbers, without the call: there may be billions of them. */
static inline uint16_t round_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

static inline void store(void *data, enum dtype type, size_t i, float x)
{
    if (type == DTYPE_BF16)
        ((uint16_t *)data)[i] = round_bf16(x);
    else
        dtype_store(data, type, i, x);
}

/* Random codes with one scale, and the natural zeros of the type. */
static void fill_codes(struct queue *q, struct weight *w, uint64_t seed, float range)
{
    uint8_t *data = w->data;
    const struct code_form *f = &w->form;
    size_t scales = code_scales_at(f, w->rows, w->cols), zeros = code_zeros_at(f, w->rows, w->cols);
    size_t n_scales = (size_t)w->rows * (size_t)code_groups(f, w->cols), n_words = scales / sizeof(uint64_t);
    float scale = code_noise_scale(f->codes, range);
#pragma omp parallel for num_threads(cpu_threads(q, scales)) schedule(static)
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = code_noise(f->codes, splitmix64(seed, i));
        memcpy(data + i * sizeof word, &word, sizeof word);
    }
    for (size_t i = 0; i < n_scales; i++)
        if (f->scale == SCALE_F32)
            memcpy(data + scales + i * sizeof scale, &scale, sizeof scale);
        else
            data[scales + i] = (uint8_t)(127 + ilogbf(scale));
    if (f->zeros)
        memset(data + zeros, code_zero(f->codes), n_scales);
}

void cpu_fill_noise(struct queue *q, struct weight *w, uint64_t seed, float center, float scale)
{
    if (weight_is_quantised(w)) {
        if (w->rows > 0 && w->cols > 0)
            fill_codes(q, w, seed, scale);
        return;
    }
    size_t n = (size_t)w->rows * (size_t)w->cols, n_words = (n + 3) / 4;
    void *data = w->data;
    enum dtype type = w->type;
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n_words; i++) {
        uint64_t word = splitmix64(seed, i);
        for (size_t k = 4 * i; k < 4 * i + 4 && k < n; k++, word >>= 16) {
            float unit = ((float)(word & 0xFFFF) - 32767.5f) * (1.0f / 32767.5f);
            store(data, type, k, center + scale * unit);
        }
    }
}
