/* coordinator/scheduler.h - which sequences run in which step. First come, first served; every step carries one token of
 * each running sequence and, in what is left of the token budget, chunks of new prompts. A request gets all its KV blocks
 * when it starts, so that a running one never has to wait for memory. Rank 0 only. */
#ifndef COORDINATOR_SCHEDULER_H
#define COORDINATOR_SCHEDULER_H

#include "coordinator/request.h"
#include "rank/plan.h"

#define SCHEDULER_FLIGHTS 2 /* plans whose results may be outstanding */

struct scheduler {
    struct limits limits;
    struct request **running; /* [n_running] in order of their start */
    int n_running;
    struct request *first_waiting, *last_waiting;
    int *free_block, n_free_blocks; /* stack */
    int *free_slot, n_free_slots;   /* stack */
    struct flight {                 /* who is sampled in an outstanding plan */
        uint64_t step;
        int n;
        struct request **request; /* [n], capacity max_seqs */
    } flight[SCHEDULER_FLIGHTS];
    /* Called after every token; the request's finish says whether it was the last. Its memory may be given back once
     * finish is set and n_in_flight is 0, not before. */
    void (*on_token)(void *context, struct request *r);
    void *context;
    const struct tokenizer *tokenizer; /* borrowed; NULL: requests get no text */
};

int scheduler_open(struct scheduler *s, const struct limits *l, const struct tokenizer *t, struct err *e);
void scheduler_close(struct scheduler *s);

/* Longest sequence (prompt and output) that can ever run under the limits. */
int scheduler_max_len(const struct scheduler *s);

/* Queue a request; borrowed until it is finished. Its prompt and max_tokens must fit scheduler_max_len. */
int scheduler_add(struct scheduler *s, struct request *r, struct err *e);

/* Anything waiting or running? */
bool scheduler_busy(const struct scheduler *s);

/* Fill a reset plan with the next step. It may have no sequences when all that run wait for results. */
void scheduler_plan(struct scheduler *s, struct plan *p);

/* Take the results of the oldest outstanding plan. */
int scheduler_accept(struct scheduler *s, const struct step_result *result, struct err *e);

#endif
