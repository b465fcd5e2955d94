/* coordinator/batch/ordered.h - the output once more, in the order of the input. */
#ifndef BATCH_ORDERED_H
#define BATCH_ORDERED_H

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"

/* Write the lines of a synced journal to a file beside it, in the order of their places in the input, those of no place there
 * behind them in the order in which they came, and put it in its place; the journal is that file then, and
 * as locked as before. Memory: 16 bytes a result. */
int ordered_rewrite(struct journal *j, const struct ids *ids, struct err *e);

#endif
