/* coordinator/drafts/costs.h - the measured time of a step by its number of tokens, from which the cost of another
 * draft follows. Pure. */
#ifndef DRAFTS_COSTS_H
#define DRAFTS_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#define COSTS_ROWS 256 /* steps of up to this many tokens are measured */

struct costs {
    double seconds[COSTS_ROWS + 1]; /* time by number of tokens; 0: not measured */
    uint64_t measured[COSTS_ROWS + 1];
    uint64_t now; /* steps that have been measured */
};

void costs_add(struct costs *c, int rows, double seconds);

/* Was it measured recently? The speed of the machine may have changed since an old measurement. */
bool costs_known(const struct costs *c, int rows);

/* Interpolated between known times; above the largest known one equal to it, so that more drafts are tried; 1 if none
 * is known. */
double costs_seconds(const struct costs *c, int rows);

#endif
