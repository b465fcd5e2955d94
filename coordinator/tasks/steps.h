/* coordinator/tasks/steps.h - the main thread's part: tasks arrive by a mailbox, plans go to the ranks, deltas of text
 * and finished tasks return to the I/O thread of a server or to the batch thread. It sleeps while there is no work. */
#ifndef TASKS_STEPS_H
#define TASKS_STEPS_H

#include "base/signals.h"
#include "coordinator/tasks/histogram.h"
#include "coordinator/tasks/task.h"
#include "plan/plan.h"
#include "plan/rank_stats.h"

/* I/O thread to main thread; the main thread frees it. */
struct order {
    enum order_kind {
        ORDER_SUBMIT,
        ORDER_CANCEL,
        ORDER_WITHDRAW, /* the same as FINISH_CANCELLED, unless a part of it has been in a step */
        ORDER_STOP
    } kind;
    struct task *task; /* SUBMIT: owned by the main thread from now on */
    uint64_t number;   /* CANCEL, WITHDRAW: number of a task, which may have ended meanwhile; WITHDRAW 0: all tasks */
    enum finish_reason why; /* CANCEL */
};

/* Main thread to I/O thread, which frees it (steps_report_free). */
struct report {
    bool loaded;                /* the first one: the model is there, max_len is set */
    enum signal_wish wish;      /* a signal that another rank has received */
    bool ended;                 /* the last one: the main thread takes no more orders */
    int max_len;                /* tokens of prompt and output together, at most */
    int n_blocks, max_seqs;     /* of the KV cache; sequences that run at once */
    int n_units;                /* units of KV memory that it holds now; 0: memory is not shared */
    struct delta *first, *last; /* of streams, in order */
    struct task *done;          /* finished, linked by replica_next, with their results */
    struct scheduler_stats stats;
    struct histogram between_tokens, iteration; /* since the last report: seconds; tokens of a step */
    uint64_t n_steps;                           /* so far */
    double step_seconds;                        /* of these, submitted to taken */
    struct rank_stats *ranks,
        *recent; /* [n_ranks] of the replica, since the start and of late; owned. NULL: as before */
    int n_ranks;
};

struct steps {
    void *mailbox; /* borrowed: the main thread's end */
    struct scheduler scheduler;
    struct choices_events events;
    struct task *tasks;    /* under way, linked by replica_previous and replica_next */
    struct report *report; /* being filled; NULL: out of memory */
    double reported;       /* when the last one was sent */
    bool stopping, idle;
    int n_units;       /* of KV memory that it holds, where several models share that: for reports */
    int n_outstanding; /* plans with sequences, results not taken */
    struct histogram between_tokens, iteration;
    uint64_t n_steps;
    double step_seconds, submitted[SCHEDULER_FLIGHTS]; /* when, by step % SCHEDULER_FLIGHTS; 0: an empty plan */
};

/* To be called after the model is loaded; reports this to the I/O thread. setup: its callbacks are filled in here. */
int steps_open(struct steps *s, void *mailbox, const struct scheduler_setup *setup, struct err *e);

/* No step is under way. Open tasks return to the I/O thread unfinished, in the last report. Safe on zeroed *s. */
void steps_close(struct steps *s);

/* The measurements of all ranks, for the next report. */
void steps_ranks(struct steps *s, const struct rank_report *report);

/* A signal that another rank has received, passed on to the I/O thread as if it were this rank's. */
void steps_signal(struct steps *s, enum signal_wish wish);

/* The parts of steps_next: take the orders that have come (true: the end is one of them); the last plan; the next
 * one, which may have no sequences, and then s->idle says whether it need not be sent. */
bool steps_hear(struct steps *s);
int steps_stop(struct steps *s, struct plan *plan, struct err *e);
int steps_plan(struct steps *s, struct plan *plan, struct err *e);

#define STEPS_IDLE_MS 100 /* longest sleep of the main thread, after which it checks for the ranks' signals */

/* The two functions of struct loop_client. PLAN_IDLE: no work for some time, call again. */
int steps_next(struct steps *s, struct plan *plan, struct err *e);
int steps_accept(struct steps *s, const struct step_result *result, struct err *e);

void steps_report_free(struct report *r);

#endif
