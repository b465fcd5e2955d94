/* rank/step/step_ways.h - the faster way to run a decode step for each number of sequences, as measured when a model
 * was opened first, kept for the next time. */
#ifndef STEP_STEP_WAYS_H
#define STEP_STEP_WAYS_H

#include "kernels/persistent.h"

#include <stdbool.h>
#include <stdint.h>

/* The ways of one model. */
struct step_ways {
    bool measured;
    struct step_way {
        bool persistent;
        double separate_seconds, persistent_seconds; /* 0: only one way */
    } way[PERSISTENT_MAX_TOKENS + 1];                /* by number of sequences */
};

#define STEP_WAYS_MODELS 256 /* models that are remembered; then the oldest is forgotten */

/* Default ways without measurements: the persistent operation where it exists, since it is rarely slower. */
struct step_ways step_ways_guess(void);

/* The ways of many models. The book depends on the order of calls alone, so it is equal on ranks that open and close
 * the same models. */
struct step_ways_book {
    struct {
        uint64_t identity;
        struct step_ways ways;
    } page[STEP_WAYS_MODELS];
    int n, next; /* pages in use, and the one to be written next */
};

/* The known ways of the model with this identity; none for a new one, or for identity 0. */
struct step_ways step_ways_find(const struct step_ways_book *b, uint64_t identity);
void step_ways_keep(struct step_ways_book *b, uint64_t identity, const struct step_ways *ways);

#endif
