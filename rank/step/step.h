/* rank/step/step.h - the device's part of a step, for those that run it (submit.c) or record it (graphs.c). */
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

/* The tokens, chosen from logits that are there, and on their way to the flight's memory; step_execute has done so
 * unless they are late. */
void step_choose(struct engine *g, const struct step_flight *f, int n_sampled, int n_scored);

#endif
