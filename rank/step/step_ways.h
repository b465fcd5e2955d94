/* rank/step/step_ways.h - which of the two ways to run a decode step is the faster one, for each number of sequences:
 * what a rank measured when it opened a model first, kept for the next time. */
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
        double separate_seconds, persistent_seconds; /* 0: there was one way only */
    } way[PERSISTENT_MAX_TOKENS + 1];                /* by number of sequences */
};

#define STEP_WAYS_MODELS 256 /* that are remembered; then the oldest is forgotten */

/* Ways that nobody has measured: one operation wherever there is one, which is rarely the slower way. */
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

/* The ways known of the model of this identity; none of one that is new, or 0. */
struct step_ways step_ways_find(const struct step_ways_book *b, uint64_t identity);
void step_ways_keep(struct step_ways_book *b, uint64_t identity, const struct step_ways *ways);

#endif
