/* text/grammar/product.h - a regular expression and a length at once. */
#ifndef GRAMMAR_PRODUCT_H
#define GRAMMAR_PRODUCT_H

#include "text/grammar/graph.h"

/* Between min and max (-1: any number) characters of a JSON string, a part of which matches the expression, then next.
 * Every state of the expression exists once per number of characters read, so that every text begun can be completed
 * within the limit. */
int product_graph(struct graph *g, const char *regex, size_t bytes, int64_t min, int64_t max, int next);

#endif
