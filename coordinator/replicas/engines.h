/* coordinator/replicas/engines.h - the engines of a job, one a group, or one for each of several models that one group has loaded, as the thread of rank 0 that hands out work (the server's
 * I/O thread, the batch thread) sees them: to whom the next task goes, what each has under way, what each last said. */
#ifndef REPLICAS_ENGINES_H
#define REPLICAS_ENGINES_H

#include "coordinator/tasks/steps.h"

struct engine_load { /* jobs that were handed over and have not come back */
    int n_sequences;
    int64_t n_tokens; /* prompts, and the most that their outputs may have */
};

struct engines {
    int n, n_ranks, n_groups; /* of the job; each group has as many ranks as the others */
    struct engine_end {
        int model;    /* number of the one that it runs; -1: none */
        void *end[2]; /* mailbox: of orders and reports; end[1] is the main thread's for engine 0, else the hub's */
        struct engine_load load;
        bool loaded, ended;
        int64_t n_done;                  /* tasks that it has given back */
        int max_len, n_blocks, max_seqs; /* as in struct report; 0: it is not loaded yet */
        struct scheduler_stats stats;    /* its last word */
        uint64_t n_steps;
        double step_seconds;
        bool has_ranks;                /* its ranks have told something */
    } * engine;                        /* [n] */
    struct rank_stats *ranks, *recent; /* [n_ranks] since the start and of late */
    struct engines_past {              /* of models that engines have run and run no more */
        struct scheduler_stats stats;
        uint64_t n_steps;
        double step_seconds;
    } past;
};

/* Mailboxes in this ZeroMQ context, for n engines: one for each of n_groups, which all run model 0 (engines_clear: not yet), or
 * (n_groups 1) places for n models. */
int engines_open(struct engines *e, void *zmq_context, int n, int n_groups, int n_ranks, struct err *err);
void engines_close(struct engines *e);

/* Of the engines that run the model the one with the fewest sequences under way, among equals with the fewest tokens, then the first. spare: how many sequences
 * it may have beyond those that it runs at once, with any number allowed to one that has none; negative: no bound. -1: all
 * have as many as they may. */
int engines_choose(const struct engines *e, int model, int spare);

/* An engine that runs none gets a model, or runs it no more: what it has done is kept. */
void engines_place(struct engines *e, int engine, int model);
void engines_clear(struct engines *e, int engine);

/* Hand a task that is prepared to the engine. */
void engines_submit(struct engines *e, struct task *j, int engine);

/* End a task that an engine has. */
void engines_cancel(struct engines *e, const struct task *j, enum finish_reason why);

/* End it as FINISH_CANCELLED unless it has begun; j NULL: all such tasks of all engines. */
void engines_withdraw(struct engines *e, const struct task *j);

/* Tell all to stop. */
void engines_stop(struct engines *e);

/* The next report of any engine, NULL when there is none; what it gives back is no load any more. */
struct report *engines_take(struct engines *e, int *engine);

/* Have all said that they are loaded, that they have ended? */
bool engines_loaded(const struct engines *e);
bool engines_ended(const struct engines *e);

/* The sum over all; how many of them run something; max_len: that of each that runs the model, 0 if none does. */
int engines_max_seqs(const struct engines *e);
int engines_running(const struct engines *e);
int engines_max_len(const struct engines *e, int model);
struct scheduler_stats engines_stats(const struct engines *e);

/* Steps of all since the start, and their time. */
uint64_t engines_steps(const struct engines *e, double *seconds);

/* Used by all ranks' devices; NAN where one does not tell, or has not yet. */
double engines_joules(const struct engines *e);

/* --verbose: what each group has done, if there are several. */
void engines_say(const struct engines *e);

/* The rank of the job that computed longest of late, outside of collectives; -1: not known, or there is one rank. */
int engines_slowest(const struct engines *e);

#endif
