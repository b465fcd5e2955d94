/* coordinator/replicas/replicas.h - the replicas of a job, whole models each on a set of ranks of its own, or
 * different models that share a set, as the thread of rank 0 that hands out work (the server's I/O thread, the batch
 * thread) sees them: to whom the next task goes, what each has under way, what each last said. */
#ifndef REPLICAS_REPLICAS_H
#define REPLICAS_REPLICAS_H

#include "coordinator/tasks/steps.h"

struct replica_load { /* tasks that were handed over and have not come back */
    int n_sequences;
    int64_t n_tokens; /* prompts, and the most that their outputs may have */
};

struct replicas {
    int n, n_ranks, n_sets; /* of the job; each set has as many ranks as the others */
    struct replica {
        int model;    /* number of the one that it runs; -1: none */
        void *end[2]; /* mailbox: of orders and reports; end[1] is the main thread's in set 0, else the hub's */
        struct replica_load load;
        bool loaded, ended;
        int64_t n_done;                  /* tasks that it has given back */
        int max_len, n_blocks, max_seqs; /* as in struct report; 0: it is not loaded yet */
        int n_units;                     /* likewise: now */
        struct scheduler_stats stats;    /* its last word */
        uint64_t n_steps;
        double step_seconds;
        bool has_ranks;                /* the ranks of the set with its number have told something */
    } * replica;                       /* [n] those of a set one behind the other */
    struct rank_stats *ranks, *recent; /* [n_ranks] since the start and of late */
    struct replicas_past {             /* of models that replicas have run and run no more */
        struct scheduler_stats stats;
        uint64_t n_steps;
        double step_seconds;
    } past;
};

/* Mailboxes in this ZeroMQ context, for n replicas: one for each of n_sets, which all run model 0 (replicas_clear:
 * not yet), or as many places for models in each set. */
int replicas_open(struct replicas *set, void *zmq_context, int n, int n_sets, int n_ranks, struct err *err);
void replicas_close(struct replicas *set);

/* The replica that runs the model and has the fewest sequences under way, among equals with the fewest
 * tokens, then the first. spare: how many sequences it may have beyond those that it runs at once, with any number
 * allowed to one that has none; negative: no bound. may: false excludes a replica; NULL: none is excluded. -1: all have
 * as many as they may. */
int replicas_choose(const struct replicas *set, int model, int spare, bool (*may)(const void *context, int replica),
                    const void *context);

/* A replica that runs none gets a model, or runs it no more: what it has done is kept. */
void replicas_place(struct replicas *set, int replica, int model);
void replicas_clear(struct replicas *set, int replica);

/* Hand a task that is prepared to the replica. */
void replicas_submit(struct replicas *set, struct task *j, int replica);

/* End a task that a replica has. */
void replicas_cancel(struct replicas *set, const struct task *j, enum finish_reason why);

/* End it as FINISH_CANCELLED unless it has begun; j NULL: all such tasks of all replicas. */
void replicas_withdraw(struct replicas *set, const struct task *j);

/* Tell all to stop. */
void replicas_stop(struct replicas *set);

/* The next report of any replica, NULL when there is none; what it gives back is no load any more. */
struct report *replicas_take(struct replicas *set, int *replica);

/* Have all said that they are loaded, that they have ended? */
bool replicas_loaded(const struct replicas *set);
bool replicas_ended(const struct replicas *set);

/* The sum over all; how many of them run something; max_len: what each that has loaded the model can, 0: none has. */
int replicas_max_seqs(const struct replicas *set);
int replicas_running(const struct replicas *set);
int replicas_max_len(const struct replicas *set, int model);
struct scheduler_stats replicas_stats(const struct replicas *set);

/* Steps of all since the start, and their time. */
uint64_t replicas_steps(const struct replicas *set, double *seconds);

/* Used by all ranks' devices; NAN where one does not tell, or has not yet. */
double replicas_joules(const struct replicas *set);

/* --verbose: what each replica has done, if there are several. */
void replicas_say(const struct replicas *set);

/* The rank of the job that computed longest of late, outside of collectives; -1: not known, or there is one rank. */
int replicas_slowest(const struct replicas *set);

#endif
