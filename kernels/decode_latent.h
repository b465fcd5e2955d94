/* kernels/decode_latent.h - additional parameters of the persistent step (kernels/persistent.h) for a model with latent
 * attention, as op_list.h's matmul_heads, latent_store and attention define it: the cache has one array, of latents
 * with their rotated keys, that all heads share. */
#ifndef KERNELS_DECODE_LATENT_H
#define KERNELS_DECODE_LATENT_H

#include "kernels/decode_mixture.h"

struct decode_latent_layer {
    const struct weight *latent;   /* [rank + rotated, hidden]; the projection of the queries is decode_layer.qkv */
    const struct weight *norm;     /* [1, rank] */
    const struct weight *key_up;   /* [n_heads rank, key] */
    const struct weight *value_up; /* [n_heads value, rank] */
};

/* The record around the decode_mixture of a model whose key cache is also its value cache. */
struct decode_latent {
    struct decode_mixture mixture;
    int rank, key, rotated, value; /* elements, see struct model_latent */
    float norm_eps;
    const struct decode_latent_layer *layer; /* [n_layers] */
};

static inline bool decode_layer_is_latent(const struct decode_layer *l)
{
    return l->k_cache == l->v_cache;
}

/* NULL: the model has no latent attention. */
static inline const struct decode_latent *decode_latent_of(const struct decode_model *m)
{
    return decode_layer_is_latent(&m->layer[0]) ? (const struct decode_latent *)m : NULL;
}

#endif
