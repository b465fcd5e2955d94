/* coordinator/drafts/costs.h - how long a step of so many tokens takes, by those that were measured: what a draft more
 * costs. Pure. */
#ifndef DRAFTS_COSTS_H
#define DRAFTS_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#define COSTS_ROWS 256 /* tokens of a step up to which it is measured */

struct costs {
    double seconds[COSTS_ROWS + 1]; /* of a step of so many tokens; 0: it was not measured */
    uint64_t measured[COSTS_ROWS + 1];
    uint64_t now; /* steps that have been measured */
};

void costs_add(struct costs *c, int rows, double seconds);

/* Was it measured of late? What was measured long ago may be another machine's by now. */
bool costs_known(const struct costs *c, int rows);

/* Between those that are known; beyond the largest one that, so that more is tried; 1 where none is. */
double costs_seconds(const struct costs *c, int rows);

#endif
