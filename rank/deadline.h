/* rank/deadline.h - a time limit for work outside of the loop (rank/watch.h has that of steps): a thread that ends the job when
 * a part of the work does not come to its end, e.g. since a device hangs in its driver. Local. */
#ifndef RANK_DEADLINE_H
#define RANK_DEADLINE_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct deadline {
    int rank;
    const char *what; /* borrowed, as `part` is */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t change;
    const char *part; /* NULL: no limit now */
    double seconds;
    struct timespec until;
    bool closing;
};

/* what: stands in front of the message. Returns -1 and *e. The struct must stay where it is. */
int deadline_open(struct deadline *d, int rank, const char *what, struct err *e);
/* Accepts a zeroed struct. */
void deadline_close(struct deadline *d);

/* From now on this part has so many seconds; when they are over the job ends with ERR_COMM and a line that names the part. */
void deadline_set(struct deadline *d, const char *part, double seconds);

#endif
