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
/* All models that a request may name, with their backends' entries: an object by name; new reference. */
json_t *models_known(const struct exchange *x);
bool models_is_loaded(const json_t *model);

/* Does a job load and unload this model (NULL: any) on request? */
bool models_are_managed(const struct exchange *x, const char *name);
/* Requests "load" or "unload". answer: called when it is done. */
void models_manage(struct exchange *x, const char *op, const char *name, void (*answer)(struct exchange *x));

/* No backend serves a model of this name; with the names of a few that are served. */
struct fault models_unknown(const struct exchange *x, const char *name);

/* The reason why a model is not loaded, or unloaded, by this state ("loading"). */
struct fault models_refusal(const char *what);

#endif
