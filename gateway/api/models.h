/* gateway/api/models.h - management of models, by the paths of SageMaker's multi-model containers and of DJLServing:
 * /models, /models/{name}. They list the loaded models; a job that has several models loads and unloads them. */
#ifndef API_MODELS_H
#define API_MODELS_H

#include "gateway/exchange/exchange.h"

extern const struct dialect models_dialect;

void models_list(struct exchange *x);
void models_show(struct exchange *x);
void models_load(struct exchange *x);
void models_scale(struct exchange *x);
void models_unload(struct exchange *x);

/* The names of all models that are loaded, each once: a list of texts; new reference. */
json_t *models_names(const struct exchange *x);
/* All that a request may name, and what their backends say of them: an object by name; new reference. */
json_t *models_known(const struct exchange *x);
bool models_is_loaded(const json_t *model);

/* Does a job load and unload this model (NULL: any) when it is told to? */
bool models_are_managed(const struct exchange *x, const char *name);
/* Tell it to: "load" or "unload". answer: when it has been done. */
void models_manage(struct exchange *x, const char *op, const char *name, void (*answer)(struct exchange *x));

/* Why a model is not loaded, or unloaded, by this word ("loading"). */
struct fault models_refusal(const char *what);

#endif
