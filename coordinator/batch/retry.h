/* coordinator/batch/retry.h - errors are taken out of the output, so that their lines are run again like any that is
 * missing. */
#ifndef BATCH_RETRY_H
#define BATCH_RETRY_H

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"

/* Rewrite the journal, which journal_recover has read, without the results that are errors
 * (coordinator/batch/rewrite.h). Ids get the places of the others, *n_kept of them; those of errors have none. */
int retry_take_out(struct journal *j, struct ids *ids, int64_t *n_kept, struct err *e);

#endif
