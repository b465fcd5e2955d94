/* coordinator/batch/apart.h - checks that the files a batch writes differ from each other and from its inputs:
 * otherwise one would overwrite another. */
#ifndef BATCH_APART_H
#define BATCH_APART_H

#include "coordinator/batch/input.h"

struct apart_file {
    const char *option; /* for messages */
    const char *path;   /* NULL or "-": none */
};

#define APART_MAX 4

/* file: [n], n <= APART_MAX, the files to be written, existing or not. ERR_USAGE names the first two that are the same
 * file. */
int apart_check(const struct apart_file *file, int n, const struct inputs *in, struct err *e);

#endif
