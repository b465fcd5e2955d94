/* rank/step/step.h - the device's part of a step, which submit.c runs and graphs.c records. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "rank/step/engine.h"

/* n_tokens tokens (the first n_alone are the only ones of their sequences), logits of n_rows of them, n_sampled new
 * tokens, n_scored given tokens to score. In a decode step of n sequences all but n_alone and n_scored are n. */
struct step_shape {
    int n_tokens, n_alone, n_rows, n_sampled, n_scored;
    bool late;   /* sampling and scoring are left to engine_choose */
    bool shares; /* search for sequences that begin with the same blocks */
    int longest; /* struct batch */
};

/* The shape of the step that a graph runs. */
static inline struct step_shape step_shape_of(const struct decode_graph *graph)
{
    int n = graph->n_tokens;
    return (struct step_shape){n, graph->mixed ? 0 : n, n, n, 0, graph->late, false, graph->longest};
}

/* Enqueue all of the device's work: from the flight's index arrays in host memory to its results there. persistent: a
 * decode step as one operation. Collective. */
void step_execute(struct engine *g, const struct step_flight *f, const struct step_shape *shape, bool persistent);

/* Choose the tokens from the existing logits and copy them to the flight's memory; step_execute does this itself unless
 * masks are late. */
void step_choose(struct engine *g, const struct step_flight *f, int n_sampled, int n_scored);

#endif
