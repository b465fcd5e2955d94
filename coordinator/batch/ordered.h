/* coordinator/batch/ordered.h - rewrites the output in the order of the input. */
#ifndef BATCH_ORDERED_H
#define BATCH_ORDERED_H

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"

/* Rewrite a synced journal (coordinator/batch/rewrite.h): lines in the order of their positions in the input, then
 * those without a position in their present order. Takes 16 bytes of memory per result. */
int ordered_rewrite(struct journal *j, const struct ids *ids, struct err *e);

#endif
