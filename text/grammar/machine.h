/* text/grammar/machine.h - walks a graph byte by byte along all paths at once, each with its stack of calls and
 * counters. A state is a set of places in the graph, each with its stack. States and the steps between them are cached,
 * so that walking over a vocabulary costs one look-up per byte. Memory is bounded: when the cache is full, everything
 * but the current state is forgotten; a state with too many paths drops some, so it allows less than the graph. */
#ifndef GRAMMAR_MACHINE_H
#define GRAMMAR_MACHINE_H

#include "text/grammar/graph.h"

#define MACHINE_DEAD      -1
#define MACHINE_UNKNOWN   -2
#define MACHINE_NO_FRAME  -1
#define MACHINE_UNLIMITED INT32_MAX

struct machine_frame {
    int32_t below, node, count; /* the frame below; the node to return to, or the GRAPH_COUNT; the count */
    int32_t depth;
};

struct machine_place {
    int32_t node, frame; /* GRAPH_BYTES or GRAPH_FREE */
};

struct machine_state {
    int32_t first, n;   /* place[first, first + n) */
    int32_t free_chars; /* at the head of a string's loop: the number of further characters; -1: not there */
    bool complete;      /* the text may end here */
    bool only_free;     /* everything that may come belongs to the string of that loop */
    bool own_end;       /* and the string may end; no end or escape of another string may come */
    uint64_t live[4];   /* the bytes that lead to a state */
    int32_t n_steps;    /* that are remembered */
    int32_t row;        /* index in machine.row, once there are many steps; otherwise -1 */
    struct machine_alike {
        bool known, free_tried, wide;
        uint64_t ascii[2];
        int32_t to;
    } alike; /* see alike.h */
};

struct machine_table { /* open addressing: the index of the entry with this hash, -1: free */
    int32_t *slot;
    uint32_t mask;
};

struct machine_edge {
    int32_t state, byte, to;
};

struct machine_behind { /* the state of everything reachable from one place */
    struct machine_place place;
    int32_t state;
};

struct machine_seen { /* valid in this round of work */
    struct machine_place place;
    uint32_t round;
};

struct machine {
    const struct graph *graph; /* borrowed */
    struct machine_frame *frame;
    int n_frames, frame_capacity;
    struct machine_place *place;
    int n_places, place_capacity;
    struct machine_state *state;
    int n_states, state_capacity;
    struct machine_edge *step;
    int n_steps, step_capacity;
    int16_t (*row)[256]; /* the steps of states that have many, by byte; MACHINE_UNKNOWN: not made yet */
    int n_rows, row_capacity;
    struct machine_behind *behind;
    int n_behind, behind_capacity;
    struct machine_table frames, states, steps, behinds;
    struct machine_place *work; /* places of the state that is being made */
    int n_work, work_capacity;
    bool work_complete;
    struct machine_seen *seen; /* the places of the work, by hash */
    uint32_t seen_mask, round;
    uint64_t effort, effort_limit; /* places visited; beyond the limit no new states are made (see machine_tired) */
    int n_tidied;                  /* number of times that states were renumbered */
    bool lossy;                    /* paths were dropped for lack of room; they return after tidying */
    struct err *e;                 /* out of memory */
};

int machine_open(struct machine *m, const struct graph *graph, struct err *e);
void machine_close(struct machine *m);

/* The state at a node of the graph with an empty stack. */
int machine_begin(struct machine *m, int start);

/* May the byte come in a state (not MACHINE_DEAD)? */
static inline bool machine_may(const struct machine *m, int state, unsigned char byte)
{
    return m->state[state].live[byte / 64] >> byte % 64 & 1;
}

/* The state after one more byte if it is in a row; else MACHINE_UNKNOWN. */
static inline int machine_known(const struct machine *m, int state, unsigned char byte)
{
    int row = m->state[state].row;
    return row >= 0 ? m->row[row][byte] : MACHINE_UNKNOWN;
}

/* The same if it is cached at all. */
int machine_make_step(struct machine *m, int state, unsigned char byte);

/* The state after one more byte; MACHINE_DEAD: the byte may not come. */
static inline int machine_next(struct machine *m, int state, unsigned char byte)
{
    int known = state >= 0 ? machine_known(m, state, byte) : MACHINE_DEAD;
    return known != MACHINE_UNKNOWN ? known : machine_make_step(m, state, byte);
}

/* Allows this many places to be visited from now on; and whether they were exceeded. */
void machine_rest(struct machine *m, uint64_t effort);
bool machine_tired(const struct machine *m);

/* Is the cache nearly full, or were paths dropped? */
bool machine_wants_tidying(const struct machine *m);
/* Forget all states but these n, whose numbers change. Dead states stay dead; without memory (machine.e) all are. */
void machine_tidy(struct machine *m, int *const *state, int n);

/* To be called right after that: whether the states in use take so much room that the machine must soon be tidied
 * again. */
bool machine_is_crowded(const struct machine *m);
/* The state of another machine of the same graph, in this one. */
int machine_adopt(struct machine *m, const struct machine *old, int state);

/* Whether the text leads from the node to an end. */
bool machine_matches(const struct graph *graph, int start, const char *text, size_t bytes, struct err *e);

#endif
