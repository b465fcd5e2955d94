/* coordinator/models/warmup.h - requests that a model answers before it counts as loaded: for nobody, so that the first
 * one of a client finds everything as the later ones do. */
#ifndef MODELS_WARMUP_H
#define MODELS_WARMUP_H

#include "coordinator/tasks/task.h"

#define WARMUP_TOKENS 4 /* that each generates: enough for a decode step to come for the second time */

/* Batches that are asked for one after the other. */
struct warmup {
    char name[40];
    int32_t n_tokens, batch, count; /* of each prompt; prompts at once; times */
};

/* Its batch number `turn`, with prompts of tokens that mean nothing, no two of them alike; cut to what the model can.
 * NULL and *e: it cannot be made. */
struct task *warmup_task(const struct warmup *w, int turn, const struct served *served, int max_len, int max_seqs,
                         struct err *e);

#endif
