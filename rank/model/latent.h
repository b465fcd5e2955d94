/* rank/model/latent.h - latent attention on one rank. */
#ifndef MODEL_LATENT_H
#define MODEL_LATENT_H

#include "rank/model/layer.h"

/* to = this rank's share of attention over `in`, of a model with latent attention; to act->x, the
 * residual, it is added. Enqueued. */
void latent_attention(const struct layer_run *r, int layer, const void *in, void *to);

#endif
