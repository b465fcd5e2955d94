/* rank/step/engine.h - a rank's working memory and the execution of plans. All memory is taken in engine_open; a
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

#define ENGINE_FLIGHTS 2 /* steps that may be under way on the device at once */
#define STEP_ARRAYS    8 /* of struct step_ints, that the host fills */

/* A decode step of n tokens, recorded once for each flight: when the engine is opened, or at its second run. */
struct decode_graph {
    int n_tokens;
    bool persistent;                             /* in which of the two ways */
    bool late;                                   /* without its last part, which is engine_choose's */
    double separate_seconds, persistent_seconds; /* of a step on the slowest rank, measured at start; 0: it was not */
    void *graph[ENGINE_FLIGHTS];                 /* with the memory of that flight; NULL: not yet */
    int n_runs[ENGINE_FLIGHTS];                  /* without the graph */
    uint64_t n_all_reduces;
};

/* Whole steps, the same with the clocks of a profile, steps whose tokens are chosen by engine_choose, and whole steps
 * of a sequence that is too long for the persistent operation (persistent_step.longest), as separate operations. */
enum decode_kind { DECODE_WHOLE, DECODE_PROFILED, DECODE_LATE, DECODE_LONG, DECODE_KINDS };

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
    void *host_slab;             /* the same of the host's memory that the device copies from and to, of host_pool */
    struct host_pool *host_pool; /* borrowed; NULL: there is no host_slab */
    size_t slab_used, host_used;
    size_t ints_pitch; /* entries of every index array: max_batch_tokens or max_logit_rows */
    int32_t *ints_dev; /* [STEP_ARRAYS + 1][ints_pitch]; the members of `dev` point into it */
    struct step_ints {
        int32_t *planned, *slot, *pos, *rope_len; /* of a token */
        int32_t *row, *row_slot, *row_len;        /* of a row of logits */
        int32_t *row_token;                       /* of a row that is scored: against this one */
        int32_t *token;                           /* filled by ops->feed; device only */
    } dev;
    struct
        step_flight { /* the host's side of a step that is under way: pinned memory where the device has a use for it */
        int32_t *ints; /* as ints_dev, without token; `host` points into it */
        struct step_ints host;
        int32_t *blocks;         /* [kinds * max_seqs * blocks per slot] on their way to the block table */
        struct sampling *params; /* [max_seqs] of sequences that begin, */
        int32_t *history;        /* [max_len] and their tokens, on their way to the sampler */
        uint32_t *masks;         /* [limits_sampled, mask_words] likewise */
        struct sampled *sampled; /* [max_logit_rows] the sampled ones, then the scored ones */
        uint64_t step;
        int n_rows, n_sampled, n_scored;
        bool spread; /* the rows of logits are the tokens', among them some that nothing is sampled from */
    } flight[ENGINE_FLIGHTS];
    struct persistent_step persistent;
    /* [DECODE_KINDS][n_decode] ascending; NULL: the device has no graphs. */
    struct decode_graph *decode;
    int n_decode;
    double choose_seconds, record_seconds; /* spent on measuring the two ways, and on recording */
    int32_t *block_table;                  /* device [kinds of KV blocks, max_seqs, blocks per slot] */
    struct prefixes *prefixes;             /* device; of the step under way, if its plan says that sequences share */
    void *rows;                            /* device [max_logit_rows, hidden], and projected */
    void *projected;                       /* device [max_batch_tokens or max_logit_rows, embed_dim], if it differs */
    void *logits_local, *logits_parts, *logits; /* device; the same memory on one rank */
    /* device [max_logit_rows, vocab] the same where a head drafts some tokens only, zeros for others; else `logits` */
    void *choices;
    size_t *gather_n;            /* [n_ranks] elements of each rank's logits */
    int *vocab_begin;            /* [n_ranks + 1] */
    struct sampled *sampled_dev; /* [max_logit_rows], as the flights' */

    struct observers observers;
    bool profiled; /* a profile times single operations: every step runs as separate ones */

    int n_flights;             /* of ENGINE_FLIGHTS, that are used: one where a step is done when it was submitted */
    uint64_t n_steps, n_taken; /* steps submitted, and those whose results were taken */
    uint64_t n_late, n_waited; /* of them, with late masks; and those in which the device had to wait for these */
    uint64_t shift;            /* step n has flight (n + shift) % ENGINE_FLIGHTS */
};

/* Take all working memory for these limits, open the collectives (peer memory and NCCL on GPUs), record decode
 * steps. The engine keeps references to w, n, ops and q. choice: of the two ways to run a decode step. ways: NULL, or
 * what is known of them, equal on all ranks: then nothing is recorded before it runs for the second time, and only what
 * is not known is measured, and added. Collective; -1 on all ranks if one has failed, with *e where it has: close the
 * engine then. */
int engine_open(struct engine *g, struct world *w, struct network *n, const struct limits *l, const struct ops *ops,
                struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e);
/* Things that engines on the same ranks share, and are lent. */
struct engine_loan {
    const struct comm *comm;
    struct persistent_place sums;
    struct host_pool *host; /* NULL where ops->async is */
};

/* The same in two parts, with a loan. A rank does engine_prepare by itself, beside steps of other engines: memory, in
 * few pieces and zeroed on q, which is the calling thread's own. Any thread; local; -1 and *e: close the engine. Once
 * it has succeeded on all ranks, they call engine_join together, on the queue that steps will have. */
int engine_prepare(struct engine *g, struct world *w, struct network *n, const struct limits *l,
                   const struct engine_loan *loan, enum step_choice choice, const struct ops *ops, struct queue *q,
                   struct err *e);
int engine_join(struct engine *g, struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e);

/* Collective. With a loan local, on any thread: steps of other engines may go on. */
void engine_close(struct engine *g);

/* Device memory that engine_open would take, but for the communicator's own, that of recorded steps and the
 * persistent step's words (a few MiB). n: config and shard are set. Local. */
size_t engine_bytes(struct network *n, const struct limits *l, const struct ops *ops, enum dtype act, struct err *e);

/* The number of steps that may be submitted before the first one's results are taken. */
int engine_flights(const struct engine *g);

/* No two of several engines that share a queue may have a step in the same flight. The next step has that of this
 * number of a plan, unless a step is under way, after whose flight it has the other one. */
void engine_align(struct engine *g, uint64_t step);

/* Start one PLAN_STEP; it may still be under way afterwards. If it has late masks engine_choose goes on with it; else
 * the plan may be reused. Collective. */
void engine_submit(struct engine *g, const struct plan *p);

/* Choose the tokens of the step submitted last, whose plan has late masks, which are there now: they come after the
 * results of the step before it. */
void engine_choose(struct engine *g, const struct plan *p);

/* Wait for the oldest step under way. result->logits are its logits only when no other step was submitted since. A
 * failure ends the job (see rank/world/fatal.h). */
void engine_take(struct engine *g, struct step_result *result);

/* Both. */
void engine_step(struct engine *g, const struct plan *p, struct step_result *result);

#endif
