/* coordinator/batch/ordered.h - the output once more, in the order of the input. */
#ifndef BATCH_ORDERED_H
#define BATCH_ORDERED_H

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"

/* Rewrite a synced journal (coordinator/batch/rewrite.h): its lines in the order of their places in the input, those of
 * no place there behind them in the order in which they came. Memory: 16 bytes a result. */
int ordered_rewrite(struct journal *j, const struct ids *ids, struct err *e);

#endif
