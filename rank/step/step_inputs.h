/* rank/step/step_inputs.h - copies a plan's arrays to the device: first into the memory of a flight, from which they
 * are uploaded. */
#ifndef STEP_STEP_INPUTS_H
#define STEP_STEP_INPUTS_H

#include "rank/step/engine.h"

/* Enters the flight's rows of logits: first the sampled ones, then the scored ones, then the others. Sets their
 * numbers. */
void step_list_rows(struct step_flight *f, const struct plan *p);

/* Copies the plan's tokens to the flight's memory, and enqueues copies of longer-lived data to the device: blocks,
 * parameters of new sequences, masks in the plan. graph: the one that will run the step, or NULL. */
void step_prepare_flight(struct engine *g, struct step_flight *f, const struct plan *p,
                         const struct decode_graph *graph);

/* Enqueues copies of this step's masks, those in the plan or the late ones. */
void step_upload_masks(struct engine *g, struct step_flight *f, const struct plan *p, enum plan_mask which);

/* Copies the first n entries of all index arrays. */
void step_upload_ints(struct engine *g, const struct step_flight *f, int n);

/* Fills in a decode step of n tokens that belong to no sequence, for every flight. The tokens differ, so that routers
 * choose different experts, as in real steps. */
void step_fill_empty(struct engine *g, int n);

#endif
