/* rank/step/engine.h - a rank's working memory and the execution of plans. All memory is allocated in engine_open; a
 * step neither allocates nor decides anything. */
#ifndef STEP_ENGINE_H
#define STEP_ENGINE_H

#include "base/choices.h"
#include "plan/plan.h"
#include "rank/comm/comm.h"
#include "rank/model/layer.h"
#include "rank/model/network.h"
#include "rank/observe/observer.h"
#include "rank/step/host_pool.h"
#include "rank/step/persistent_step.h"
#include "rank/step/step_ways.h"
#include "rank/world/world.h"

#define ENGINE_FLIGHTS 2 /* steps that may be in flight on the device at once */
#define STEP_ARRAYS    8 /* of struct step_ints, that the host fills */

/* A decode step of n tokens, recorded once for each flight: when the engine is opened, or at its second run. */
struct decode_graph {
    int n_tokens;
    bool persistent;                             /* in which of the two ways */
    bool late;                                   /* without its last part, which engine_choose runs */
    bool mixed;                                  /* several tokens may belong to one sequence */
    int longest;                                 /* struct batch */
    double separate_seconds, persistent_seconds; /* time of a step on the slowest rank, measured at start; 0: not
                                                    measured */
    void *graph[ENGINE_FLIGHTS];                 /* per flight, with its memory; NULL: not recorded yet */
    int n_runs[ENGINE_FLIGHTS];                  /* number of runs without the graph */
    uint64_t n_all_reduces;
};

/* Whole steps, the same with the clocks of a profile, and steps whose tokens are chosen by engine_choose. As separate
 * operations: whole steps of a sequence that is too long for the persistent one (persistent_step.longest), those of
 * short sequences (engine.short_tokens), and small ones that verify drafts, with several tokens of a sequence. */
enum decode_kind { DECODE_WHOLE, DECODE_PROFILED, DECODE_LATE, DECODE_LONG, DECODE_SHORT, DECODE_MIXED, DECODE_KINDS };

struct engine {
    struct world *world;     /* borrowed */
    struct network *network; /* borrowed */
    const struct ops *ops;
    struct queue *q; /* borrowed */
    struct comm comm;
    struct limits limits;
    struct activations act;
    struct sampler sampler;

    void *slab;                  /* the device memory of all arrays; NULL: each has its own */
    void *host_slab;             /* the same for host memory that the device copies from and to, from host_pool */
    struct host_pool *host_pool; /* borrowed; NULL: there is no host_slab */
    size_t slab_used, host_used;
    size_t ints_pitch; /* entries of every index array: max_batch_tokens or max_logit_rows */
    int32_t *ints_dev; /* [STEP_ARRAYS + 1][ints_pitch]; the members of `dev` point into it */
    struct step_ints {
        int32_t *planned, *slot, *pos, *rope_len; /* arrays per token */
        int32_t *row, *row_slot, *row_len;        /* arrays per row of logits */
        int32_t *row_token;                       /* per scored row: the token to score */
        int32_t *token;                           /* filled by ops->feed; device only */
    } dev;
    struct step_flight { /* the host's side of a step in flight: pinned memory if the device benefits */
        int32_t *ints;   /* as ints_dev, without token; `host` points into it */
        struct step_ints host;
        int32_t *blocks;         /* [kinds * max_seqs * blocks per slot] entries in transit to the block table */
        struct sampling *params; /* [max_seqs] parameters of sequences that begin, */
        int32_t *history;        /* [max_len] and their tokens, in transit to the sampler */
        uint32_t *masks;         /* [limits_sampled, mask_words] likewise */
        struct sampled *sampled; /* [max_logit_rows] the sampled ones, then the scored ones */
        uint64_t step;
        int n_rows, n_sampled, n_scored;
        bool spread; /* one row of logits per token, including rows that are not sampled */
    } flight[ENGINE_FLIGHTS];
    struct persistent_step persistent;
    /* [DECODE_KINDS][n_decode] ascending; NULL: the device has no graphs. */
    struct decode_graph *decode;
    int n_decode;
    int short_tokens; /* separate operations are faster if they know that no sequence has more tokens; 0: not so */
    double choose_seconds, record_seconds; /* time spent on measuring the two ways, and on recording */
    int32_t *block_table;                  /* device [kinds of KV blocks, max_seqs, blocks per slot] */
    struct prefixes *prefixes;             /* device; of the current step, if its plan says that sequences share */
    void *rows;                            /* device [max_logit_rows, hidden], and projected */
    void *projected;                       /* device [max_batch_tokens or max_logit_rows, embed_dim], if it differs */
    void *logits_local, *logits_parts, *logits; /* device; the same memory on one rank */
    /* device [max_logit_rows, vocab] the same for a head that drafts only some tokens, with zeros for others; otherwise
     * `logits` */
    void *choices;
    size_t *gather_n;            /* [n_ranks] elements of each rank's logits */
    int *vocab_begin;            /* [n_ranks + 1] */
    struct sampled *sampled_dev; /* [max_logit_rows], as the flights' */

    struct observers observers;
    bool profiled; /* a profile times single operations, so every step runs as separate ones */

    int n_flights;             /* used ones of ENGINE_FLIGHTS: one if a step is done when submit returns */
    uint64_t n_steps, n_taken; /* steps submitted, and those whose results were taken */
    uint64_t n_late, n_waited; /* steps with late masks, and those in which the device had to wait for them */
    uint64_t shift;            /* step n has flight (n + shift) % ENGINE_FLIGHTS */
    bool elsewhere;            /* other ranks execute the steps: see engine_open_elsewhere */
};

/* Allocate all working memory for these limits, open the collectives (peer memory and NCCL on GPUs), record decode
 * steps. The engine keeps references to w, n, ops and q. choice: of the two ways to run a decode step. ways: NULL, or
 * earlier measurements, equal on all ranks: then steps are recorded when they run for the second time, and only missing
 * measurements are made, and added. Collective; -1 on all ranks if one has failed, with *e there; close the engine
 * then. */
int engine_open(struct engine *g, struct world *w, struct network *n, const struct limits *l, const struct ops *ops,
                struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e);
/* Objects that engines on the same ranks share. */
struct engine_loan {
    const struct comm *comm;
    struct persistent_place sums;
    struct host_pool *host; /* NULL where ops->async is */
};

/* An engine without memory, on a rank that does not hold the model: its steps do nothing and have no results. n: its
 * config must be set. Local. */
void engine_open_elsewhere(struct engine *g, struct world *w, struct network *n, const struct limits *l);

/* The same in two parts, with a loan. engine_prepare allocates memory, in few pieces and zeroed on the calling thread's
 * own queue q, beside steps of other engines. Any thread; local; -1 and *e: close the engine. Once it has succeeded on
 * all ranks, all ranks call engine_join, on the queue that steps will use. */
int engine_prepare(struct engine *g, struct world *w, struct network *n, const struct limits *l,
                   const struct engine_loan *loan, enum step_choice choice, const struct ops *ops, struct queue *q,
                   struct err *e);
int engine_join(struct engine *g, struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e);

/* Collective. With a loan local, on any thread: steps of other engines may continue. */
void engine_close(struct engine *g);

/* Device memory that engine_open would allocate, except for the communicator, recorded steps and the persistent step's
 * words (a few MiB). n: config and shard must be set. Local. */
size_t engine_bytes(struct network *n, const struct limits *l, const struct ops *ops, enum dtype act, struct err *e);

/* The number of steps that may be submitted before the first one's results are taken. */
int engine_flights(const struct engine *g);

/* Engines that share a queue must not have steps in the same flight. The next step gets the flight of this plan's
 * number, or, if a step is in flight, the other one. */
void engine_align(struct engine *g, uint64_t step);

/* Start one PLAN_STEP, which may still be in flight afterwards. If it has late masks, engine_choose continues it;
 * otherwise the plan may be reused. Collective. */
void engine_submit(struct engine *g, const struct plan *p);

/* Choose the tokens of the step submitted last, whose plan has late masks, once these have arrived, after the results
 * of the step before it. */
void engine_choose(struct engine *g, const struct plan *p);

/* Wait for the oldest step in flight. result->logits are its logits only if no other step was submitted since. A
 * failure ends the job (see rank/world/fatal.h). */
void engine_take(struct engine *g, struct step_result *result);

/* Both. */
void engine_step(struct engine *g, const struct plan *p, struct step_result *result);

#endif
