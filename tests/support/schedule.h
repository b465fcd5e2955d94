/* tests/support/schedule.h - a run of coordinator/schedule/scheduler.c on a simulated device (paper.h), for cmocka
 * tests: every request must get exactly the tokens that it gets alone, and every plan is checked: its order, its
 * limits, its memory, and that no request starves. */
#ifndef TESTS_SUPPORT_SCHEDULE_H
#define TESTS_SUPPORT_SCHEDULE_H

#include "coordinator/schedule/scheduler.h"
#include "coordinator/schedule/units.h"
#include "tests/support/paper.h"

#define SCHEDULE_MAX_REQUESTS 40
#define SCHEDULE_MAX_OUTPUT   64
#define SCHEDULE_MAX_LEN      130
#define SCHEDULE_LONGEST      400 /* tokens of a request, if a test sets the limits itself */

/* The result of a request that runs alone. */
struct schedule_outcome {
    int32_t token[SCHEDULE_MAX_OUTPUT];
    int n;
    char *text;
    enum finish_reason finish;
};

struct schedule {
    struct scheduler s;
    struct paper device;
    struct paper draft_device; /* of the draft model, which is the same model; unused if limits.draft_len is 0 */
    struct plan plan;
    struct request *request[SCHEDULE_MAX_REQUESTS]; /* NULL once returned */
    struct request_rules rules[SCHEDULE_MAX_REQUESTS];
    struct schedule_outcome want[SCHEDULE_MAX_REQUESTS];
    int last_fed[SCHEDULE_MAX_REQUESTS]; /* tokens fed so far, of the running ones */
    int n, n_released, n_steps;
    int n_ended[FINISH_REASONS];
    double now;
    struct step_result queue[SCHEDULER_FLIGHTS];
    int n_queued;
    bool drafted[SCHEDULE_MAX_REQUESTS]; /* in the latest step of each request */
    uint64_t draft_seed;
    const struct units *units; /* owner of the device's blocks; NULL: the scheduler's own */
    int number;                /* of the scheduler in these units */
};

/* Opens the tokenizer that all runs share (tests/unit/letters.h): set-up and tear-down of a group of tests. */
int schedule_open_letters(void **state);
int schedule_close_letters(void **state);

/* Returns limits with max_len SCHEDULE_MAX_LEN, and the prefix cache. */
struct scheduler_setup schedule_setup(int max_seqs, int max_batch_tokens, int n_blocks);

/* 20 tokens at most, sampled without a penalty. */
extern const struct request_rules schedule_plain;

/* setup: without tokenizer and callbacks. */
void schedule_open(struct schedule *run, const struct scheduler_setup *setup);
void schedule_close(struct schedule *run);

/* Opens one of several schedulers in one arena: its device has the arena's memory, kv, which holds all blocks of u:
 * equally many of each kind in a unit. */
void schedule_open_shared(struct schedule *run, const struct scheduler_setup *setup, const struct units *u, int number,
                          uint64_t *kv);
void schedule_close_shared(struct schedule *run);

/* A draft_source (setup.drafts.propose): proposes the tokens that the request gets alone, of a random length, and in
 * half of all cases wrong from a random position on; also beyond its end. */
int schedule_propose(void *run, struct request *r, int n, int32_t *token);

/* Makes a request that the scheduler does not have yet; the run owns it. */
struct request *schedule_make(struct schedule *run, const struct request_rules *rules, const int32_t *prompt, int n);

/* Adds a request to the scheduler whose prompt is n letters that follow from the seed. */
struct request *schedule_add(struct schedule *run, const struct request_rules *rules, int n, uint64_t seed);

/* Plans the next step, checks the plan, executes it; its results wait until they are accepted, the oldest first. */
void schedule_plan(struct schedule *run);
void schedule_accept(struct schedule *run);

/* Advances by a second. depth: plans that are made before the results of an earlier one are known. */
void schedule_step(struct schedule *run, int depth);

/* Runs to the end of all requests, and checks that everything is free again. */
void schedule_drain(struct schedule *run, int depth);

/* Checks that blocks and slots have exactly the expected holders. */
void schedule_check_memory(struct schedule *run);

#endif
