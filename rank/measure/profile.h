/* rank/measure/profile.h - measures the phases of a step on this rank's device. The profile wraps the engine's
 * operations: each belongs to a phase, and where the phase changes a clock is enqueued (also into graphs: a replayed
 * step is timed as it runs). Without a profile there is no overhead.
 *
 * The clocks keep neighbouring kernels from overlapping, so a profiled step is a little longer than others. */
#ifndef MEASURE_PROFILE_H
#define MEASURE_PROFILE_H

#include "rank/step/engine.h"

enum profile_phase {
    PHASE_MATMUL,
    PHASE_ATTENTION, /* including the rotation, and the writing of keys and values into the cache */
    PHASE_ALL_REDUCE,
    PHASE_ALL_GATHER, /* gathering the logits: decode graphs of all sizes have the same phases */
    PHASE_SAMPLING,
    PHASE_OTHER, /* norms, activations, embedding, rows */
    N_PHASES
};

struct profile_sums {
    double seconds[N_PHASES];
    uint64_t n_steps;
};

struct profile {
    struct observer observer;
    struct engine *engine; /* borrowed */
    const struct ops *inner;
    struct ops ops; /* the same with each operation of a step wrapped */
    const struct comm_ops *inner_comm;
    struct comm_ops comm_ops;

    int max_stamps;
    struct profile_trace { /* the phases of a step, in order; all steps of a kind of work have the same */
        int n;             /* clocks: the last one is the step's end */
        unsigned char *phase;
    } trace[ENGINE_FLIGHTS][N_STEP_KINDS];
    double *at[ENGINE_FLIGHTS];          /* [max_stamps] seconds_now() where operations are done when they return */
    double *between;                     /* [max_stamps] */
    enum step_kind kind[ENGINE_FLIGHTS]; /* of the steps under way */
    int flight;                          /* clocks of the step that is being enqueued */
    struct profile_sums sums[N_STEP_KINDS];
};

/* Allocate the clocks and wrap the engine's operations until profile_close; no step may be under way at either time.
 * All ranks call this, since graphs are recorded again. Returns -1 and *e. Local. */
int profile_open(struct profile *p, struct engine *g, struct err *e);
void profile_close(struct profile *p);

/* Reset the sums. */
void profile_reset(struct profile *p);

/* "matrix products" */
const char *profile_phase_name(enum profile_phase phase);

#endif
