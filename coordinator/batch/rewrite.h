/* coordinator/batch/rewrite.h - rewrites the output as a new file that then replaces it: however the program ends
 * meanwhile, one of the two files is there. */
#ifndef BATCH_REWRITE_H
#define BATCH_REWRITE_H

#include "coordinator/batch/journal.h"

#include <stdio.h>

struct rewrite {
    const char *what; /* for messages: "the output cannot be <what>" */
    /* Writes the new output. from: the old one, to be read with pread. 0, or -1 and errno. */
    int (*write)(void *context, int from, FILE *out);
    void *context;
};

/* Afterwards the journal is the new file, synced and locked as before. On failure it is the old one (unless only the
 * folder could not be synced). */
int rewrite_run(struct journal *j, const struct rewrite *w, struct err *e);

#endif
