/* text/grammar/decimal.h - numbers between bounds, digit by digit. */
#ifndef GRAMMAR_DECIMAL_H
#define GRAMMAR_DECIMAL_H

#include "text/grammar/graph.h"

#include <jansson.h>

struct decimal_range { /* JSON numbers; NULL: no bound */
    const json_t *low, *high;
    bool low_open, high_open; /* the bound itself is outside */
};

/* A JSON number within the range, then next: without exponent, with at most DECIMAL_DIGITS digits before the point, and
 * after it as many as the bounds have, or up to 15 digits in all. Integers have no point. GRAPH_FAIL: no such number
 * exists. */
#define DECIMAL_DIGITS 18
int decimal_graph(struct graph *g, const struct decimal_range *range, bool integer, int next);

#endif
