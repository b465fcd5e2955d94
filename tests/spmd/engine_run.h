/* tests/spmd/engine_run.h - an engine of a test and its plans: prompts in chunks, then decode, all made by rank 0 of
 * the test itself. */
#ifndef TESTS_SPMD_ENGINE_RUN_H
#define TESTS_SPMD_ENGINE_RUN_H

#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/step/step.h"
#include "rank/world/fatal.h"

#include <string.h>

#define N_SEQS 4
#define PROMPT 20
#define CHUNK  10

/* A chunk of every sequence in each step. */
static const struct limits whole_batches = {.max_seqs = N_SEQS,
                                            .max_batch_tokens = N_SEQS * CHUNK,
                                            .max_len = 64,
                                            .max_logit_rows = N_SEQS,
                                            .n_blocks = 4 * N_SEQS};

struct run {
    struct instance instance;
    struct plan plan;
    struct world *w;
    uint64_t step;
};

static inline void start_sequence(struct run *r, int slot)
{
    struct plan *p = &r->plan;
    p->start[p->n_starts++] = (struct plan_start){.slot = slot,
                                                  .sampling = {.top_p = 0.9f,
                                                               .temperature = slot % 2 == 0 ? 0 : 1,
                                                               .repetition_penalty = 1.1f,
                                                               .n_top = 3,
                                                               .prompt_len = PROMPT}};
    for (int i = 0; i < limits_blocks_per_slot(&p->limits); i++)
        p->block[p->n_blocks++] = (struct plan_block){slot, i, i * N_SEQS + slot, KV_MAIN};
}

static inline void go(struct run *r, struct step_result *result)
{
    loop_share(&r->plan, r->w, r->instance.network.config.vocab);
    engine_step(&r->instance.engine, &r->plan, result);
}

/* Runs a step: `n` tokens of every sequence from position pos on. */
static inline void step(struct run *r, int pos, int n, struct step_result *result)
{
    struct plan *p = &r->plan;
    plan_reset(p, r->step++);
    for (int slot = 0; slot < N_SEQS && r->w->rank == 0; slot++) {
        bool prompt = pos < PROMPT;
        if (pos == 0)
            start_sequence(r, slot);
        int sample = pos + n >= PROMPT;
        p->seq[p->n_seqs++] = (struct plan_seq){slot, n, pos, prompt ? PROMPT : pos + 1, sample, sample, 0};
        for (int i = 0; i < n; i++)
            p->token[p->n_tokens++] = prompt ? (pos + i + slot) % 50 : -1;
    }
    go(r, result);
}

static inline void open_run(struct run *r, struct world *w, struct model_config *m, const char *dir,
                            struct limits limits)
{
    struct err e = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {
        .limits = limits, .kv_bytes = -1, .threads = 1, .progress = PROGRESS_NEVER, .dummy = dir == NULL};
    memset(r, 0, sizeof *r);
    r->w = w;
    if (w->rank == 0 && dir != NULL && model_config_read(m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(&r->instance, w, m, &c, &setup, &e);
    if (plan_open(&r->plan, &setup.limits, &e) != 0)
        fatal(&e);
}

static inline void close_run(struct run *r)
{
    plan_close(&r->plan);
    instance_close(&r->instance);
}

#endif
