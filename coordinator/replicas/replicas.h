/* coordinator/replicas/replicas.h - the replicas of a job (whole models, each on its own set of ranks, or different
 * models that share a set), as seen by the thread of rank 0 that hands out work (the server's I/O thread, the batch
 * thread): the choice of a replica for the next task, the tasks under way, the last reports. */
#ifndef REPLICAS_REPLICAS_H
#define REPLICAS_REPLICAS_H

#include "coordinator/tasks/steps.h"

struct replica_load { /* tasks handed over and not yet returned */
    int n_sequences;
    int64_t n_tokens; /* tokens of prompts, and the most of their outputs */
};

struct replicas {
    int n, n_ranks, n_sets; /* of the job; all sets have equal numbers of ranks */
    struct replica {
        int model;    /* number of the model that it runs; -1: none */
        void *end[2]; /* mailbox: of orders and reports; end[1] is the main thread's in set 0, else the hub's */
        struct replica_load load;
        bool loaded, ended;
        int64_t n_done;                  /* tasks that it has given back */
        int max_len, n_blocks, max_seqs; /* as in struct report; 0: it is not loaded yet */
        int n_units;                     /* likewise: now */
        struct scheduler_stats stats;    /* it has sent its last report */
        uint64_t n_steps;
        double step_seconds;
        struct replica_past { /* totals of the models that it no longer runs */
            struct scheduler_stats stats;
            uint64_t n_steps;
            double step_seconds;
        } past;
        bool has_ranks;                /* the ranks of the set with this number have reported figures */
    } * replica;                       /* [n] replicas of a set are adjacent */
    struct rank_stats *ranks, *recent; /* [n_ranks] since the start and of late */
};

/* Mailboxes in this ZeroMQ context, for n replicas: one for each of n_sets, which all run model 0 (replicas_clear:
 * not yet), or as many slots for models in each set. */
int replicas_open(struct replicas *set, void *zmq_context, int n, int n_sets, int n_ranks, struct err *err);
void replicas_close(struct replicas *set);

/* The replica that runs the model and has the fewest sequences under way; among equals the one with the fewest tokens,
 * then the first. spare: number of sequences that it may have beyond those that run at once (one without sequences may
 * get any number); negative: no limit. may: false excludes a replica; NULL: none is excluded. -1: all are full. */
int replicas_choose(const struct replicas *set, int model, int spare, bool (*may)(const void *context, int replica),
                    const void *context);

/* A replica without a model gets one, or no longer runs its model; totals are kept. */
void replicas_place(struct replicas *set, int replica, int model);
void replicas_clear(struct replicas *set, int replica);

/* Hand a prepared task to the replica. */
void replicas_submit(struct replicas *set, struct task *task, int replica);

/* End a task that a replica has. */
void replicas_cancel(struct replicas *set, const struct task *task, enum finish_reason why);

/* End it as FINISH_CANCELLED unless it has begun; task NULL: all such tasks of all replicas. */
void replicas_withdraw(struct replicas *set, const struct task *task);

/* Tell all to stop. */
void replicas_stop(struct replicas *set);

/* The next report of any replica, or NULL; tasks that it returns no longer count as load. */
struct report *replicas_take(struct replicas *set, int *replica);

/* Have all reported that they are loaded, that they have ended? */
bool replicas_loaded(const struct replicas *set);
bool replicas_ended(const struct replicas *set);

/* The sum over all; the number of those that run something; max_len: limit of each that has loaded the model, 0: none
 * has. */
int replicas_max_seqs(const struct replicas *set);
int replicas_running(const struct replicas *set);
int replicas_max_len(const struct replicas *set, int model);
struct scheduler_stats replicas_stats(const struct replicas *set);

/* The same of one: its present, and the totals of all models that it has run. */
struct scheduler_stats replica_stats(const struct replica *one);

/* Steps of all since the start, and their time. */
uint64_t replicas_steps(const struct replicas *set, double *seconds);
uint64_t replica_steps(const struct replica *one, double *seconds);

/* Energy used by all ranks' devices; NAN if that of one is unknown, or not reported yet. */
double replicas_joules(const struct replicas *set);

/* --verbose: what each replica has done, if there are several. */
void replicas_say(const struct replicas *set);

/* The rank of the job that recently computed longest outside of collectives; -1: unknown, or one rank. */
int replicas_slowest(const struct replicas *set);

#endif
