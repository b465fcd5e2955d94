/* rank/step/step_inputs.h - a plan's arrays on their way to the device: first in the memory of a flight, from which
 * they are uploaded. */
#ifndef STEP_STEP_INPUTS_H
#define STEP_STEP_INPUTS_H

#include "rank/step/engine.h"

/* The flight's rows of logits: first those that are sampled from, then those that are scored, then the others. Sets
 * their numbers. */
void step_list_rows(struct step_flight *f, const struct plan *p);

/* The plan's tokens in the flight's memory, and on the device, enqueued, what lasts for more than a step: blocks,
 * sequences that begin, masks that are here. graph: the one that will run the step, or NULL. */
void step_prepare_flight(struct engine *g, struct step_flight *f, const struct plan *p,
                         const struct decode_graph *graph);

/* The masks of this step's sampled rows that are here, or late. */
void step_upload_masks(struct engine *g, struct step_flight *f, const struct plan *p, enum plan_mask which);

/* The first n entries of all index arrays. */
void step_upload_ints(struct engine *g, const struct step_flight *f, int n);

/* Index arrays of a decode step of n tokens that belong to no sequence, for every flight. The tokens differ, so that
 * routers choose different experts for them, as they do for those of sequences. */
void step_fill_empty(struct engine *g, int n);

#endif
