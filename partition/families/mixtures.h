/* partition/families/mixtures.h - keys of configs that families with DeepSeek's mixtures of experts share: routed
 * experts beside shared ones, and layers that have neither. */
#ifndef PARTITION_FAMILIES_MIXTURES_H
#define PARTITION_FAMILIES_MIXTURES_H

#include "partition/families/llama.h"

/* Class defaults. A 0 in routing.n_experts, routing.n_chosen or n_shared means that the key must be there. */
struct mixture_defaults {
    struct routing routing;
    int ffn, n_shared;
};

/* m->experts; with sigmoids the router has a correction. */
void mixture_read(struct model_config *m, const struct config *c, const struct mixture_defaults *missing);

/* The layers from "first_k_dense_replace" on, by class default `missing`, have mixtures. */
void mixture_read_first_dense(struct model_config *m, const struct config *c, int missing);

/* Layers that "mlp_layer_types" calls sparse have mixtures; without the key, those from `n_dense` on. */
void mixture_read_layer_types(struct model_config *m, const struct config *c, int n_dense);

/* Llama's attention, with norms of q and k; MLPs and mixtures; layers that predict further tokens. */
extern const struct weight_source mixture_source[];

#endif
