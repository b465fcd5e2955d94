/* rank/engine.h - a rank's working memory and the execution of plans. All memory is taken in engine_open; a step neither
 * allocates nor decides anything. */
#ifndef RANK_ENGINE_H
#define RANK_ENGINE_H

#include "rank/comm.h"
#include "rank/layer.h"
#include "rank/network.h"
#include "rank/plan.h"
#include "rank/world.h"

struct engine {
    struct world *world;     /* borrowed */
    struct network *network; /* borrowed */
    const struct ops *ops;
    struct queue *q; /* borrowed */
    struct comm comm;
    struct limits limits;
    struct activations act;
    struct sampler sampler;

    int32_t *ints_dev; /* the step's index arrays, one allocation; the members of `dev` point into it */
    struct step_ints {
        int32_t *planned, *slot, *pos, *rope_len; /* [max_batch_tokens] */
        int32_t *row, *row_slot, *row_len;        /* [max_logit_rows] */
        int32_t *token;                           /* [max_batch_tokens], filled by ops->feed; device only */
    } host, dev;
    int32_t *block_table; /* device [max_seqs, blocks per slot] */
    void *rows;           /* device [max_logit_rows, hidden], and projected */
    void *projected;      /* device [max_batch_tokens or max_logit_rows, embed_dim], if it differs */
    void *logits_local, *logits_parts, *logits; /* device; the same memory on one rank */
    size_t *gather_n;                           /* [n_ranks] elements of each rank's logits */
    int *vocab_begin;                           /* [n_ranks + 1] */
    struct sampled *sampled_dev, *sampled_host; /* [max_logit_rows] */

    uint64_t n_steps;
    double step_seconds; /* in engine_step, all steps */
};

/* Bytes of device memory that engine_open takes for these limits, without weights and KV cache. */
int engine_open(struct engine *g, struct world *w, struct network *n, const struct limits *l, const struct ops *ops,
                struct queue *q, struct err *e);
void engine_close(struct engine *g);

/* Execute one PLAN_STEP. Collective. A failure ends the job (see rank/fatal.h). */
void engine_step(struct engine *g, const struct plan *p, struct step_result *result);

#endif
