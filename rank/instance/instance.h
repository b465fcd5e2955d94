/* rank/instance/instance.h - a model ready to run on this rank: weights, KV cache, working memory, in the order they
 * are taken. */
#ifndef INSTANCE_INSTANCE_H
#define INSTANCE_INSTANCE_H

#include "base/progress.h"
#include "rank/load/load.h"
#include "rank/model/taps.h"
#include "rank/step/engine.h"
#include "rank/step/loop.h"

/* Equal on all ranks. Flat: rank 0 broadcasts it.
 *
 * Where several models are loaded, each is an instance; what a rank has once (its world, its device, its watch, the
 * collectives of the ranks that share models) belongs to an instance without a model, the ground, on which the others
 * stand (rank/instance/residents.h). */
struct instance_setup {
    struct limits limits;       /* n_blocks: wanted; instance_open reduces it to what fits */
    int64_t kv_bytes;           /* of a rank; -1: as fit_kv chooses; 0: they are in an arena */
    int32_t tokens_chosen;      /* nobody has asked for limits.max_batch_tokens: it may become less */
    int32_t per_unit[KV_KINDS]; /* blocks in a unit of the arena; 0: there is none, or none of the kind */
    int32_t kv_whole;           /* fewer blocks than wanted will not do: known before loading */
    int32_t threads;            /* of a rank; -1: its share of the cores */
    int32_t host_threads;       /* of rank 0, beside them: sockets or files, tokenizing */
    int32_t progress;           /* enum progress_mode */
    int32_t replica_size;       /* ranks that share a model; 0: all. It divides their number */
    int32_t dummy;              /* weights are random, there is no checkpoint */
    int32_t device;             /* enum device_choice */
    int32_t n_places;           /* of the ground: models that may stand on it at once */
    int32_t step;               /* enum step_choice */
    int32_t inputs;             /* enum inputs_choice, where the config says that activations are quantised */
    int32_t with_bus;           /* measure the way to the device before loading */
    struct load_setup load;
    uint64_t dummy_seed;
    double step_timeout; /* s; 0: steps have no deadline */
    uint64_t identity;   /* of a model's files, for what is kept from one load to the next; 0: nothing is */
};

struct instance {
    struct world world; /* the ranks that this one computes with */
    const struct ops *ops;
    struct queue q;
    struct kv_arena *arena; /* borrowed; NULL: the model has memory of its own for keys and values */
    struct network network;
    struct engine engine;
    struct load_report load;
    struct taps taps;    /* of a head that drafts: where it finds the states of the other model; zeroed: it is none */
    struct watch *watch; /* NULL: steps have no deadline, or another instance is the ground */
    const struct instance *ground; /* borrowed: the one whose world and device this one has; NULL: they are its own */
    struct persistent_sums sums;   /* of the ground: to be lent, as its engine's collectives are, */
    struct host_pool *host_pool;   /* and as this is, for devices */
    int place, n_places;           /* its number among those that stand on the ground; of the ground: their limit */
    double told_record;            /* s of recording decode steps that were reported already */
};

/* A small model that drafts for an instance, on the same ranks. Zeroed: not there. */
struct draft_model {
    struct model_config config; /* of rank 0, as is the checkpoint, until it is opened */
    struct checkpoint checkpoint;
    struct instance instance; /* on the other one as its ground; it is the one to be closed first */
};

/* Collective over the job; every replica loads the model. Rank 0 has *m and (unless dummy) *c; they are shared with
 * all ranks, and c is closed. A failure on any rank ends the job with one line. The instance must stay where it is
 * while it is open. */
void instance_open(struct instance *i, struct world *w, struct model_config *m, struct checkpoint *c,
                   struct instance_setup *setup, struct err *e);
/* The same, and beside it the draft model if setup->limits.draft_len says that there is one. Both are counted before
 * either is read, and have equally many blocks. */
void instance_open_drafted(struct instance *i, struct draft_model *d, struct world *w, struct model_config *m,
                           struct checkpoint *c, struct instance_setup *setup, struct err *e);
/* Run the loop on i and the draft model, if it is open; both have the observers that i has. Collective. */
void instance_run(struct instance *i, struct draft_model *d, const struct loop_client *client, struct err *e);
/* Collective; if the model was opened on the ground in parts, local and on any thread: no step of it is under way on
 * this rank, but those of others may go on. */
void instance_close(struct instance *i);

/* The ground alone: its engine has no network, but the observers that all engines on it share, and what
 * these are lent; it is closed after them. Collective over the job; a failure ends it. */
void instance_open_ground(struct instance *i, struct world *w, struct instance_setup *setup, struct err *e);

/* The parts of opening a model on the ground, at a place there that no other has. A failure is no end: each returns -1,
 * those that are collective on all ranks and with *e equal on all, and the instance is to be closed. First share setup,
 * config and headers, and see whether the model fits: collective. */
int instance_begin(struct instance *i, const struct instance *ground, int place, struct kv_arena *arena,
                   struct world *w, struct model_config *m, struct checkpoint *c, struct instance_setup *setup,
                   struct err *e);
/* Then, on any thread and beside steps, with a queue q of the thread's own: memory for weights; when they are there,
 * all else that a rank does by itself. Local. */
int instance_take_weights(struct instance *i, const struct model_config *m, const struct checkpoint *c, struct queue *q,
                          struct err *e);
int instance_prepare(struct instance *i, struct instance_setup *setup, struct queue *q, struct err *e);
/* Last, the ranks together. ways: as in engine_open. Collective. */
int instance_complete(struct instance *i, struct instance_setup *setup, struct step_ways *ways, struct err *e);

#endif
