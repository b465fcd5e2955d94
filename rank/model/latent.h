/* rank/model/latent.h - latent attention on one rank. */
#ifndef MODEL_LATENT_H
#define MODEL_LATENT_H

#include "rank/model/layer.h"

/* act->heads = the outputs of this rank's heads over `in`, [tokens, heads value], of a model with latent attention.
 * Enqueued. */
void latent_attention(const struct layer_run *r, int layer, const void *in);

#endif
