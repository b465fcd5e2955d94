/* commands/bench/workload.h - the measurements of bench, as clients of the loop: repetitions and times. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "base/progress.h"
#include "commands/bench/spread.h"
#include "commands/bench/traffic.h"
#include "rank/instance/instance.h"
#include "rank/step/engine.h"

#define WORKLOAD_MAX_REPETITIONS SPREAD_MOST

/* PP: prompts of n_prompt tokens, up to their first token. TG: n_steps tokens of each sequence, one by one, after a
 * context of n_prompt tokens that is not timed; 0: from nothing. LATENCY: a whole batch, prompts and n_steps + 1 tokens
 * each. THROUGHPUT: n_requests of n_prompt tokens in and n_steps + 1 out, all queued at once. */
enum workload_kind { WORK_PP, WORK_TG, WORK_LATENCY, WORK_THROUGHPUT, N_WORKLOADS };

/* Flat: broadcast. */
struct workload {
    int32_t n_seqs; /* at once; 0: this kind is not measured */
    int32_t n_prompt, n_steps;
    int32_t n_requests; /* THROUGHPUT */
    int32_t n_shared;   /* of its n_prompt tokens, the same in all requests */
};

/* On rank 0: seconds of each repetition. */
struct repetitions {
    int n;
    double total[WORKLOAD_MAX_REPETITIONS];
    double decode[WORKLOAD_MAX_REPETITIONS]; /* LATENCY: of the total, what came after all first tokens */
    uint64_t n_steps;                        /* with tokens, of all repetitions together */
    int most_seqs;                           /* in one step */
    struct step_times steps;
    struct waits waits; /* THROUGHPUT */
};

/* The environment in which workloads run. */
struct bench_rig {
    struct engine *engine;
    struct instance *instance;       /* the instance that owns the engine */
    struct draft_model *draft_model; /* beside it, open or not */
    struct traffic *traffic;         /* open where it is wanted */
    struct progress bar; /* progress of repetitions, drawn between them: not while a clock runs. Zeroed: none */
    uint64_t n_done;     /* of these */
};

/* Runs a workload this many times. Collective; *s is valid on rank 0. */
void workload_run(struct bench_rig *rig, enum workload_kind kind, const struct workload *work, int repetitions,
                  struct repetitions *s, struct err *e);

#endif
