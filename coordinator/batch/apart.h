/* coordinator/batch/apart.h - files that a batch writes must be neither each other nor an input: the one that is
 * replaced last would destroy the other. */
#ifndef BATCH_APART_H
#define BATCH_APART_H

#include "coordinator/batch/input.h"

struct apart_file {
    const char *option; /* for messages */
    const char *path;   /* NULL or "-": none */
};

#define APART_MAX 4

/* file: [n], n <= APART_MAX, what is to be written, existing or not. ERR_USAGE names the first two that are one
 * file. */
int apart_check(const struct apart_file *file, int n, const struct inputs *in, struct err *e);

#endif
