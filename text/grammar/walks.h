/* text/grammar/walks.h - results that runs of equal grammars over one lexicon share: the machine, whose states each of
 * them would otherwise make again, and expensive masks. So only the first text of a form pays for a state. One thread
 * joins, walks and stores masks; any thread may leave. */
#ifndef GRAMMAR_WALKS_H
#define GRAMMAR_WALKS_H

#include "text/grammar/machine.h"
#include "text/grammar/masks.h"

#include <pthread.h>

#define WALKS_KEPT      16    /* the grammars joined last, even if they have no run */
#define WALKS_MAX_NODES 32768 /* largest kept grammar: the walk of a larger one ends with its last run */

struct walk {
    struct graph graph; /* a copy, since the grammar is its request's */
    int start;
    struct machine machine;
    struct err err;       /* out of memory */
    uint64_t number;      /* unique among the walks of a table; 0: in no table */
    uint64_t used;        /* when it was joined last */
    bool crowded;         /* full of its runs' states: no other run joins, and these separate */
    pthread_mutex_t lock; /* of the rest */
    int **state;          /* [n_states] where runs have the numbers of their states */
    int n_states, capacity;
    int n_users; /* runs, and the table */
};

struct walks {
    struct walk *walk[WALKS_KEPT];
    uint64_t clock, n_made;
    struct masks masks; /* all walks, including those made for separated runs or too large to be kept */
};

/* The walk of this grammar for a run, whose two states it renumbers from now on (machine_tidy): that of another run if
 * there is one in the table, which may be NULL. NULL: no memory. */
struct walk *walk_join(struct walks *all, const struct graph *graph, int start, int *const state[2], struct err *e);
void walk_leave(struct walk *w, int *const state[2]);
/* Safe on NULL; its walks stay with their runs. */
void walks_close(struct walks *all);

/* A walk of its own for a run that leaves a crowded one. Without memory it stays. */
struct walk *walk_part(struct walks *all, struct walk *w, int *const state[2]);

/* Forget results if they are too many or were made with too little room. This renumbers the machine's states. */
void walk_tidy(struct walk *w);

/* The mask of a state, if it is kept; else NULL. */
const uint32_t *walk_mask(struct walks *all, const struct walk *w, int state);
/* Without memory for it a mask is found anew each time, as without a table. */
void walk_keep(struct walks *all, const struct walk *w, int state, const uint32_t *mask, int n_words);

#endif
