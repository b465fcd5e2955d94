/* coordinator/batch/retry.h - removes errors from the output, so that their lines run again like any missing ones. */
#ifndef BATCH_RETRY_H
#define BATCH_RETRY_H

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"

/* Rewrite the journal, which journal_recover has read, without the results that are errors
 * (coordinator/batch/rewrite.h). Ids get the positions of the kept results, *n_kept of them; ids of errors have none
 * afterwards. */
int retry_take_out(struct journal *j, struct ids *ids, int64_t *n_kept, struct err *e);

#endif
