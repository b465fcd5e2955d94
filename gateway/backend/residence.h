/* gateway/backend/residence.h - in which of several jobs a model is loaded: their word, which is some seconds old, and
 * what was asked of them since. So each of them has its own models, and none loads one that another one has. */
#ifndef BACKEND_RESIDENCE_H
#define BACKEND_RESIDENCE_H

#include "gateway/backend/pool.h"

/* Is this model, which the backend has, loaded or about to be? Always where there is one model. */
bool residence_has(const struct backend *b, const char *model);

/* The number of its models that are. */
int residence_count(const struct backend *b);

/* A request for the model is on its way there, so it counts as loaded until a list of models has come that was asked
 * for later; or until it was loaded, unloaded, pinned, and the list tells that. */
void residence_sent(struct backend *b, const char *model);
void residence_listed(struct backend *b, double asked);
void residence_told(struct backend *b, const char *model);

#endif
