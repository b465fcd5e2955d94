/* gateway/api/models.h - management of models, by the paths of SageMaker's multi-model containers and of DJLServing:
 * /models, /models/{name}. What is served can be seen; loading and unloading are refused. */
#ifndef API_MODELS_H
#define API_MODELS_H

#include "gateway/exchange/exchange.h"

extern const struct dialect models_dialect;

void models_list(struct exchange *x);
void models_show(struct exchange *x);
void models_load(struct exchange *x);
void models_scale(struct exchange *x);
void models_unload(struct exchange *x);

/* The names of all models that are served, each once: a list of texts; new reference. */
json_t *models_names(const struct exchange *x);

/* Why a model is not loaded, or unloaded, by this word ("loading"). */
struct fault models_refusal(const char *what);

#endif
