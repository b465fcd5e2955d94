/* text/grammar/graph.h - the texts of a grammar, byte by byte: a graph of nodes that a machine walks with a stack of
 * calls and counters (machine.h). Built from the end: every function takes the node that follows and returns the one to
 * begin with. */
#ifndef GRAMMAR_GRAPH_H
#define GRAMMAR_GRAPH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_MAX_NODES 200000

enum graph_node_kind {
    GRAPH_FAIL,    /* nothing leads from here to the end */
    GRAPH_BYTES,   /* one byte of [low, high], then next */
    GRAPH_SPLIT,   /* next, or other (-1: only next) */
    GRAPH_CALL,    /* the rule that begins at other, then next */
    GRAPH_RETURN,  /* the end of a rule, or of the text */
    GRAPH_COUNT,   /* a counter of [min, max] (max -1: no limit) goes onto the stack */
    GRAPH_TICK,    /* the topmost counter counts one, unless it is at its max */
    GRAPH_UNCOUNT, /* the topmost counter, which has reached its min, leaves the stack */
    GRAPH_FREE     /* the head of a loop over the characters of a string; see lexicon.h. low: 1 if they are counted */
};

struct graph_node {
    uint8_t kind, low, high;
    int32_t next, other;
    int32_t min, max;
};

struct graph { /* zeroed = empty */
    struct graph_node *node;
    int n, capacity;
    int space;     /* the rule of white space between the parts of a JSON text; -1: not made yet */
    struct err *e; /* of the one who builds; once something has failed all functions return -1 and change nothing */
};

void graph_open(struct graph *g, struct err *e);
void graph_close(struct graph *g);

/* A node of this kind. -1: too many, or no memory. */
int graph_add(struct graph *g, struct graph_node node);

int graph_return(struct graph *g);
int graph_bytes(struct graph *g, int low, int high, int next);
/* Either a or b; a fallback of -1 (nothing yet) is none, so that alternatives can be collected in a loop. */
int graph_either(struct graph *g, int a, int b);
int graph_text(struct graph *g, const char *text, size_t bytes, int next);
int graph_call(struct graph *g, int rule, int next);
/* A node whose successor is set later, for loops and for rules that call themselves. */
int graph_ahead(struct graph *g);
void graph_lead(struct graph *g, int ahead, int to);

/* Between the parts of a JSON text: nothing, a space, or a line break and up to 32 spaces. */
int graph_space(struct graph *g, int next);

/* A graph of its own, to which nothing can be added. */
int graph_copy(struct graph *g, const struct graph *from, struct err *e);
bool graph_equals(const struct graph *a, const struct graph *b);

/* Whether the end of the text can be reached from `start`; nodes from which it cannot are GRAPH_FAIL then, so that a
 * machine never enters them. Counters are taken as satisfiable. */
bool graph_prune(struct graph *g, int start);

/* Equal nodes become one and those that only lead on none, so that a machine has fewer states to make: a graph that
 * has been pruned, and to which nothing is added from now on. Returns the node to begin with. */
int graph_share(struct graph *g, int start);

#endif
