/* text/grammar/product.h - a regular expression and a length at once. */
#ifndef GRAMMAR_PRODUCT_H
#define GRAMMAR_PRODUCT_H

#include "text/grammar/graph.h"

/* The characters of a JSON string of which a part matches the expression, at least min and at most max (-1: any
 * number) of them, then next. Every state of the expression exists once for each number of characters read, so no text
 * is begun that cannot be ended in time. */
int product_graph(struct graph *g, const char *regex, size_t bytes, int64_t min, int64_t max, int next);

#endif
