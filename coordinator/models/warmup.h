/* coordinator/models/warmup.h - requests that a model answers before it counts as loaded, so that the first request of
 * a client is as fast as later ones. */
#ifndef MODELS_WARMUP_H
#define MODELS_WARMUP_H

#include "coordinator/tasks/task.h"

#define WARMUP_TOKENS 4 /* tokens that each generates: enough for a decode step to occur for the second time */

/* Batches to run one after the other. */
struct warmup {
    char name[40];
    int32_t n_tokens, batch, count; /* of each prompt; prompts at once; times */
};

/* Batch number `turn`, with prompts of made-up tokens, no two alike, cut to the model's limits. NULL and *e on
 * failure. */
struct task *warmup_task(const struct warmup *w, int turn, const struct served *served, int max_len, int max_seqs,
                         struct err *e);

#endif
