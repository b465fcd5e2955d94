/* coordinator/drafts/costs.c - see costs.h. */
#include "coordinator/drafts/costs.h"

#define LATE  2000 /* steps after which a time is measured anew */
#define SHARE 0.25 /* of a new measurement */

bool costs_known(const struct costs *c, int rows)
{
    return rows >= 1 && rows <= COSTS_ROWS && c->seconds[rows] > 0 && c->now - c->measured[rows] < LATE;
}

void costs_add(struct costs *c, int rows, double seconds)
{
    if (rows < 1 || rows > COSTS_ROWS || !(seconds > 0))
        return;
    double before = c->seconds[rows];
    c->seconds[rows] = costs_known(c, rows) ? before + SHARE * (seconds - before) : seconds;
    c->measured[rows] = ++c->now;
}

double costs_seconds(const struct costs *c, int rows)
{
    int low = rows < COSTS_ROWS ? rows : COSTS_ROWS, high = rows;
    while (low > 0 && !costs_known(c, low))
        low--;
    while (high <= COSTS_ROWS && !costs_known(c, high))
        high++;
    if (low == 0)
        return high <= COSTS_ROWS ? c->seconds[high] : 1;
    if (high > COSTS_ROWS || high == low)
        return c->seconds[low];
    return c->seconds[low] + (c->seconds[high] - c->seconds[low]) * (rows - low) / (high - low);
}
