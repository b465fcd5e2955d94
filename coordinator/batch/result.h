/* coordinator/batch/result.h - a finished job of a batch -> its line of the output. */
#ifndef BATCH_RESULT_H
#define BATCH_RESULT_H

#include "coordinator/batch/line.h"

/* malloc'ed, its newline included; NULL: out of memory. */
char *result_line(const struct line *l, bool plain, size_t *bytes);

#endif
