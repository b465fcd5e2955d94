/* rank/step.h - the device's part of a step, for those that run or record it: rank/step.c itself, rank/graphs.c. */
#ifndef RANK_STEP_H
#define RANK_STEP_H

#include "rank/engine.h"

/* Enqueue everything that the device does by itself, with the index arrays that are on it: n_tokens tokens (the first n_alone
 * alone of their sequences), logits of n_rows of them, n_sampled new tokens, n_scored given ones scored. persistent: a decode
 * step (the first four are equal, n_scored is 0) as one operation. Collective. */
void step_execute(struct engine *g, int n_tokens, int n_alone, int n_rows, int n_sampled, int n_scored,
                  bool persistent);

/* Index arrays of a decode step of n tokens that belong to no sequence, onto the device. Waits. */
void step_fill_empty(struct engine *g, int n);

#endif
