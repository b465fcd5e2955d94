/* gateway/backend/residence.h - in which of several jobs a model is loaded, by their reports, which are some seconds
 * old, and the requests sent since. So each job has its own models, and none loads a model that another one has. */
#ifndef BACKEND_RESIDENCE_H
#define BACKEND_RESIDENCE_H

#include "gateway/backend/pool.h"

/* Is this model of the backend loaded or about to be? Always true if it has only one. */
bool residence_has(const struct backend *b, const char *model);

/* The number of its models that are loaded or about to be. */
int residence_count(const struct backend *b);

/* sent: a request for the model went there, so it counts as loaded until a list of models arrives that was requested
 * later. told: the model was loaded, unloaded or pinned, as the list shows. */
void residence_sent(struct backend *b, const char *model);
void residence_listed(struct backend *b, double asked);
void residence_told(struct backend *b, const char *model);

#endif
