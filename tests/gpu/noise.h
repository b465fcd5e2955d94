/* tests/gpu/noise.h - random weights that reveal whatever a step forgets: they differ between ranks and between groups
 * of codes, biases are not negligible, and experts have different weights. */
#ifndef TESTS_GPU_NOISE_H
#define TESTS_GPU_NOISE_H

#include "tests/gpu/side.h"

/* Makes scales and zeros differ from group to group: random weights have one for all. Exponents differ by up to 2. */
static inline void noise_vary_groups(struct side *s, const struct weight *w, uint32_t seed)
{
    size_t at = code_scales_at(&w->form, w->rows, w->cols), bytes = code_bytes(&w->form, w->rows, w->cols) - at;
    size_t zeros = code_zeros_at(&w->form, w->rows, w->cols) - at;
    int n = w->rows * code_groups(&w->form, w->cols);
    unsigned char *data = malloc(bytes), *there = (unsigned char *)w->data + at;
    s->instance.ops->download(&s->instance.q, data, there, bytes);
    s->instance.ops->wait(&s->instance.q);
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (w->form.scale == SCALE_E8M0)
            data[i] = (unsigned char)(data[i] + (seed >> 8) % 3);
        else
            ((float *)data)[i] *= 0.75f + (float)(seed >> 8) / (1 << 25);
        if (w->form.zeros)
            data[zeros + (size_t)i] = (unsigned char)(5 + (seed >> 8) % 7);
    }
    s->instance.ops->upload(&s->instance.q, there, bytes, data, bytes, bytes, 1);
    s->instance.ops->wait(&s->instance.q);
    free(data);
}

/* The factor of a router's weights: experts' weights vary so much that those at the edge of the choice hardly
 * matter. */
#define NOISE_ROUTER_FACTOR 1.5f
#define NOISE_BIAS_RANGE    0.5f /* large enough that a forgotten bias fails */

/* Weights of which every rank has its own part; the dummy loader makes them the same on all ranks. Biases that are the
 * same on all ranks are excluded. */
static inline bool noise_is_sliced(enum weight_id id)
{
    static const enum weight_id ids[] = {WEIGHT_EMBED,
                                         WEIGHT_HEAD,
                                         WEIGHT_QKV,
                                         WEIGHT_QKV_BIAS,
                                         WEIGHT_QUERY,
                                         WEIGHT_KEY_UP,
                                         WEIGHT_VALUE_UP,
                                         WEIGHT_OUT,
                                         WEIGHT_SINKS,
                                         WEIGHT_MLP_IN,
                                         WEIGHT_MLP_IN_BIAS,
                                         WEIGHT_MLP_OUT,
                                         WEIGHT_EXPERTS_IN,
                                         WEIGHT_EXPERTS_OUT,
                                         WEIGHT_EXPERTS_IN_BIAS,
                                         WEIGHT_EXPERTS_OUT_BIAS,
                                         WEIGHT_SHARED_IN,
                                         WEIGHT_SHARED_OUT};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static inline bool noise_is_bias(enum weight_id id)
{
    return id == WEIGHT_QKV_BIAS || id == WEIGHT_OUT_BIAS || id == WEIGHT_MLP_IN_BIAS || id == WEIGHT_MLP_OUT_BIAS ||
           id == WEIGHT_ROUTER_BIAS || id == WEIGHT_EXPERTS_IN_BIAS || id == WEIGHT_EXPERTS_OUT_BIAS;
}

/* Refills, with noise like load_dummy's, the weights that it does not vary. */
static inline void noise_vary(struct side *s, int rank)
{
    struct network *n = &s->instance.network;
    for (int i = 0; i < n->map.n_slots; i++) {
        enum weight_id id = n->map.slot[i].id;
        struct weight *w = &n->weight[i];
        uint32_t seed = (uint32_t)(i + (noise_is_sliced(id) ? 1000 * (rank + 1) : 0));
        float range = sqrtf(3.0f / (float)(w->cols > 0 ? w->cols : 1));
        if (noise_is_bias(id))
            range = NOISE_BIAS_RANGE;
        if (id == WEIGHT_ROUTER)
            range *= NOISE_ROUTER_FACTOR;
        if (noise_is_sliced(id) || noise_is_bias(id) || id == WEIGHT_ROUTER)
            s->instance.ops->fill_noise(&s->instance.q, w, seed, 0, range);
        if (weight_is_quantised(w))
            noise_vary_groups(s, w, seed);
    }
    s->instance.ops->wait(&s->instance.q);
}

#endif
