/* client/top_models.h - the models of a job that has several, as `top` shows them. */
#ifndef CLIENT_TOP_MODELS_H
#define CLIENT_TOP_MODELS_H

#include "client/samples.h"

#include <jansson.h>

#define TOP_MODELS 16 /* shown, at most */

/* One row per model, for those in use or used last, and a line that counts the others. list: from the reply to
 * `models`. */
void top_print_models(const json_t *list, const struct samples *now);

#endif
