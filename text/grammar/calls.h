/* text/grammar/calls.h - JSON values between fixed texts, one or several of them: calls of tools in a model's form. */
#ifndef GRAMMAR_CALLS_H
#define GRAMMAR_CALLS_H

#include "text/grammar/graph.h"

#include <jansson.h>

#define CALLS_MAX       1000 /* marks of one form */
#define CALLS_MAX_MARKS 8

/* {"begin", "between", "end": texts, "many": more than one call, "marks": [texts], "calls": [{"name", "before",
 * "schema", "after"}], "or"?: the schema of an answer without calls}, then next. A special token with the text of a
 * mark may take the mark's place. -1 and g->e: malformed, or a schema is not supported, which the message then
 * names. */
int calls_graph(struct graph *g, const json_t *asked, int next);

#endif
