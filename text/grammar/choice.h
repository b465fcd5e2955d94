/* text/grammar/choice.h - one of several texts. */
#ifndef GRAMMAR_CHOICE_H
#define GRAMMAR_CHOICE_H

#include "text/grammar/graph.h"

struct choice_text {
    const char *text;
    size_t bytes;
};

/* Nodes for one of the texts, then next; sorts them. Common prefixes share nodes. -1 if there are no texts. */
int choice_graph(struct graph *g, struct choice_text *text, size_t n, int next);

#endif
