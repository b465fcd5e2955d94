/* coordinator/batch/rewrite.h - the output once more, as another file that takes its place as a whole: whatever ends
 * the program meanwhile, the one or the other is there. */
#ifndef BATCH_REWRITE_H
#define BATCH_REWRITE_H

#include "coordinator/batch/journal.h"

#include <stdio.h>

struct rewrite {
    const char *what; /* for messages: "the output cannot be <what>" */
    /* Write all of the new output. from: of the old one, to be read with pread. 0, or -1 and errno. */
    int (*write)(void *context, int from, FILE *out);
    void *context;
};

/* The journal, a file, is the new one then, with all of it on disk, and as locked as before. On failure it is what it
 * was (unless the folder could not be synced: then it is the new one, too). */
int rewrite_run(struct journal *j, const struct rewrite *w, struct err *e);

#endif
