/* commands/bench/spread.c - see spread.h. */
#include "commands/bench/spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int spread_percentile[SPREAD_N_PERCENTILES] = {10, 25, 50, 75, 90, 99};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* x ascending */
static double quantile(const double *x, int n, double share)
{
    double place = share * (n - 1);
    int below = (int)place, above = below + 1 < n ? below + 1 : below;
    return x[below] + (place - below) * (x[above] - x[below]);
}

struct spread spread_of(const double *sample, int n)
{
    double x[SPREAD_MOST], squares = 0;
    struct spread s = {.n = n};
    memcpy(x, sample, (size_t)n * sizeof *x);
    qsort(x, (size_t)n, sizeof *x, ascending);
    for (int i = 0; i < n; i++)
        s.mean += x[i] / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
    s.median = quantile(x, n, 0.5);
    s.lowest = x[0];
    s.highest = x[n - 1];
    for (size_t i = 0; i < SPREAD_N_PERCENTILES; i++)
        s.at[i] = quantile(x, n, spread_percentile[i] / 100.0);
    return s;
}
