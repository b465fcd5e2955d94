/* rank/instance/instance.h - a model ready to run on this rank: weights, KV cache, working memory, in the order of
 * allocation. */
#ifndef INSTANCE_INSTANCE_H
#define INSTANCE_INSTANCE_H

#include "base/progress.h"
#include "rank/load/load.h"
#include "rank/model/taps.h"
#include "rank/step/engine.h"
#include "rank/step/loop.h"

/* Equal on all ranks. Flat: rank 0 broadcasts it.
 *
 * With several models each one is an instance; objects that exist once per rank (world, device, watch, the collectives
 * of the ranks that share models) belong to an instance without a model, called the ground, which the others use
 * (rank/instance/residents.h). */
struct instance_setup {
    struct limits limits;       /* n_blocks: wanted; instance_open reduces it to what fits */
    int64_t kv_bytes;           /* of a rank; -1: chosen by fit_kv; 0: they are in an arena */
    int32_t tokens_chosen;      /* limits.max_batch_tokens was not given and may be reduced */
    int32_t per_unit[KV_KINDS]; /* blocks per unit of the arena; 0: no arena, or no blocks of the kind */
    int32_t kv_whole;           /* fewer blocks than wanted are an error, detected before loading */
    int32_t threads;            /* of a rank; -1: its share of the cores */
    int32_t host_threads;       /* rank 0's other threads: sockets or files, tokenizing */
    int32_t progress;           /* enum progress_mode */
    int32_t replica_size;       /* ranks that share a model; 0: all. It divides their number */
    int32_t dummy;              /* weights are random, there is no checkpoint */
    int32_t device;             /* enum device_choice */
    int32_t n_places;           /* of the ground: limit of models on it */
    int32_t step;               /* enum step_choice */
    int32_t batch_invariant;    /* see kernels/invariance.h */
    int32_t inputs;             /* enum inputs_choice, if the config declares quantised activations */
    int32_t with_bus;           /* measure the copy rate to the device before loading */
    struct load_setup load;
    uint64_t dummy_seed;
    double step_timeout; /* s; 0: steps have no deadline */
    uint64_t identity;   /* identity of a model's files, for data kept from one load to the next; 0: none is kept */
};

struct instance {
    struct world world; /* the ranks that this one computes with */
    const struct ops *ops;
    struct queue q;
    struct kv_arena *arena; /* borrowed; NULL: keys and values have their own memory */
    struct network network;
    struct engine engine;
    struct load_report load;
    struct taps taps;              /* of a head that drafts: the states of the main model; zeroed: not a head */
    struct watch *watch;           /* NULL: steps have no deadline, or another instance is the ground */
    const struct instance *ground; /* borrowed: the instance whose world and device this one uses; NULL: its own */
    struct persistent_sums sums;   /* of the ground: lent to models, like its engine's collectives */
    struct host_pool *host_pool;   /* likewise, for devices */
    int place, n_places;           /* its number among the instances on the ground; of the ground: their limit */
    double told_record;            /* s of recording decode steps reported so far */
};

/* A small model that drafts for an instance, on the same ranks or, as limits.draft_ranks says, the first of them.
 * Zeroed: not there. */
struct draft_model {
    struct model_config config; /* of rank 0, as is the checkpoint, until it is opened */
    struct checkpoint checkpoint;
    struct instance instance; /* uses the main instance as its ground, so it is closed first */
};

/* Collective over the job; every replica loads the model. Rank 0 has *m and (unless dummy) *c; they are shared with
 * all ranks, and c is closed. A failure on any rank ends the job with one line. The instance must stay where it is
 * while it is open. */
void instance_open(struct instance *i, struct world *w, struct model_config *m, struct checkpoint *c,
                   struct instance_setup *setup, struct err *e);
/* The same with a draft model if setup->limits.draft_len is set. The memory of both is checked before either is read,
 * and they have equal numbers of blocks. */
void instance_open_drafted(struct instance *i, struct draft_model *d, struct world *w, struct model_config *m,
                           struct checkpoint *c, struct instance_setup *setup, struct err *e);
/* Run the loop on i and the draft model, if open, with i's observers for both. Collective. */
void instance_run(struct instance *i, struct draft_model *d, const struct loop_client *client, struct err *e);
/* Collective; for a model opened on the ground in parts, local and on any thread. No step of it may be under way on
 * this rank, but steps of others may continue. */
void instance_close(struct instance *i);

/* Opens the ground alone: its engine has no network, but the observers that all engines on it share, and the objects
 * lent to them; it is closed last. Collective over the job; a failure ends it. */
void instance_open_ground(struct instance *i, struct world *w, struct instance_setup *setup, struct err *e);

/* The parts of opening a model on the ground, in a free slot. A failure does not end the job: each part returns -1
 * (collective ones on all ranks, with equal *e), and the caller closes the instance. First share setup, config and
 * headers, and check that the model fits: collective. */
int instance_begin(struct instance *i, const struct instance *ground, int place, struct kv_arena *arena,
                   struct world *w, struct model_config *m, struct checkpoint *c, struct instance_setup *setup,
                   struct err *e);
/* Then, on any thread and beside steps, with the thread's own queue q: allocate memory for weights; after loading, do
 * all remaining work that needs no other rank. Local. */
int instance_take_weights(struct instance *i, const struct model_config *m, const struct checkpoint *c, struct queue *q,
                          struct err *e);
int instance_prepare(struct instance *i, struct instance_setup *setup, struct queue *q, struct err *e);
/* Last, the ranks together. ways: as in engine_open. Collective. */
int instance_complete(struct instance *i, struct instance_setup *setup, struct step_ways *ways, struct err *e);

#endif
