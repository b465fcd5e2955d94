/* rank/step/step.h - the device's part of a step, for those that run or record it: rank/step/step.c itself,
 * rank/step/graphs.c. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "rank/step/engine.h"

/* n_tokens tokens (the first n_alone alone of their sequences), logits of n_rows of them, n_sampled new tokens,
 * n_scored given ones scored. A decode step: the first four are equal, n_scored is 0. */
struct step_shape {
    int n_tokens, n_alone, n_rows, n_sampled, n_scored;
    bool late;   /* the last two are left to engine_choose */
    bool shares; /* sequences that begin with the same blocks are looked for */
};

/* The shape of a decode step of n sequences. */
static inline struct step_shape step_decode_shape(int n)
{
    return (struct step_shape){n, n, n, n, 0, false, false};
}

/* Enqueue everything that the device does by itself: from the index arrays of the flight, in the host's memory, to its
 * results there. persistent: a decode step as one operation. Collective. */
void step_execute(struct engine *g, const struct step_flight *f, const struct step_shape *shape, bool persistent);

/* Index arrays of a decode step of n tokens that belong to no sequence, for every flight. */
void step_fill_empty(struct engine *g, int n);

#endif
