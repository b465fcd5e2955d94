/* text/grammar/charset.h - sets of code points, and the nodes that read one character of a set. */
#ifndef GRAMMAR_CHARSET_H
#define GRAMMAR_CHARSET_H

#include "text/grammar/graph.h"

#define CHARSET_RANGES 256

struct charset { /* zeroed = empty. Ranges ascend and do not touch once charset_sort has been called */
    int n;
    int32_t first[CHARSET_RANGES], last[CHARSET_RANGES];
};

/* Surrogates are left out. -1: too many ranges. */
int charset_add(struct charset *s, int32_t first, int32_t last, struct err *e);
int charset_join(struct charset *s, const struct charset *other, struct err *e);
void charset_sort(struct charset *s);
/* The code points up to `limit` that are not in s. */
int charset_invert(struct charset *s, int32_t limit, struct err *e);

/* Nodes for one character of s, which must be sorted: in UTF-8, or as within a JSON string, where quotes, backslashes
 * and control characters are escaped and all others are not. GRAPH_FAIL if s is empty. */
int charset_utf8(struct graph *g, const struct charset *s, int next);
int charset_json(struct graph *g, const struct charset *s, int next);

#endif
