/* text/grammar/graph.h - the texts of a grammar, byte by byte: a graph of nodes that a machine walks with a stack of
 * calls and counters (machine.h). Built from the end: every function takes the node that follows and returns the first
 * node. */
#ifndef GRAMMAR_GRAPH_H
#define GRAMMAR_GRAPH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_MAX_NODES 200000

enum graph_node_kind {
    GRAPH_FAIL,    /* the end cannot be reached from here */
    GRAPH_BYTES,   /* one byte of [low, high], then next */
    GRAPH_SPLIT,   /* next, or other (-1: only next) */
    GRAPH_CALL,    /* the rule that begins at other, then next */
    GRAPH_RETURN,  /* the end of a rule, or of the text */
    GRAPH_COUNT,   /* a counter of [min, max] (max -1: no limit) goes onto the stack */
    GRAPH_TICK,    /* the topmost counter advances by one, unless it is at its max */
    GRAPH_UNCOUNT, /* the topmost counter leaves the stack if it has reached its min */
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
    struct err *e; /* the builder's; after a failure all functions return -1 and change nothing */
};

void graph_open(struct graph *g, struct err *e);
void graph_close(struct graph *g);

/* A node of this kind. -1: too many, or no memory. */
int graph_add(struct graph *g, struct graph_node node);

int graph_return(struct graph *g);
int graph_bytes(struct graph *g, int low, int high, int next);
/* Either a or b; -1 for b (nothing yet) gives a, so that alternatives can be collected in a loop. */
int graph_either(struct graph *g, int a, int b);
int graph_text(struct graph *g, const char *text, size_t bytes, int next);
int graph_call(struct graph *g, int rule, int next);
/* A node whose successor is set later, for loops and for rules that call themselves. */
int graph_ahead(struct graph *g);
void graph_lead(struct graph *g, int ahead, int to);

/* White space between tokens of JSON: none, a space, or a line break and up to 32 spaces. */
int graph_space(struct graph *g, int next);

/* A copy, to which nothing can be added. */
int graph_copy(struct graph *g, const struct graph *from, struct err *e);
bool graph_equals(const struct graph *a, const struct graph *b);

/* Whether the end of the text can be reached from `start`; nodes from which it cannot become GRAPH_FAIL, so that a
 * machine never enters them. Counters are assumed to be satisfiable. */
bool graph_prune(struct graph *g, int start);

/* Merges equal nodes and removes those that only lead on, so that a machine has fewer states to make. The graph must
 * have been pruned, and nothing may be added afterwards. Returns the first node. */
int graph_share(struct graph *g, int start);

#endif
