/* coordinator/replicas/model_code.h - the messages between rank 0 and the leader of a set of ranks about loading and
 * unloading models (coordinator/tasks/model_orders.h), as bytes. */
#ifndef REPLICAS_MODEL_CODE_H
#define REPLICAS_MODEL_CODE_H

#include "coordinator/replicas/wire.h"
#include "coordinator/tasks/model_orders.h"

void model_order_encode(struct wire_out *w, const struct model_order *o);
/* For MODEL_READY, MODEL_FAILED, MODEL_GONE and MODEL_ENDED; others do not travel. */
void model_word_encode(struct wire_out *w, const struct model_word *m);

/* n_slots: models of a set. malloc'ed; NULL and *e if it does not fit. Any thread. */
struct model_order *model_order_decode(const void *data, size_t bytes, int n_slots, struct err *e);
struct model_word *model_word_decode(const void *data, size_t bytes, int n_slots, struct err *e);

#endif
