/* commands/models/outpost.h - a job of many models on the first rank of every set but rank 0's: its crew, the link over
 * which rank 0 gives it orders, and a thread that opens models here, by their folders. */
#ifndef MODELS_OUTPOST_H
#define MODELS_OUTPOST_H

#include "commands/models/crew.h"
#include "coordinator/replicas/leader_link.h"

#define OUTPOST_TEXT_BYTES 4096 /* of --speculative-config */

struct outpost { /* zeroed at first */
    struct crew crew;
    struct leader_link link;
    struct opener opener;
    struct shelf shelf;
    struct service_options service;         /* rank 0's, as far as opening a model needs them */
    char speculative[OUTPOST_TEXT_BYTES];   /* text of one of these */
    const struct ops *ops;                  /* of the ranks' devices */
    int n_ranks;                            /* of a set */
    size_t kv_bytes;                        /* of a rank, which models share */
    struct model_order wanted[PLAN_MODELS]; /* by slot: what is being opened there */
    bool open;
};

/* Broadcasts rank 0's options for opening models; failures are rank 0's. Collective over the job. */
void outpost_share_options(struct outpost *o, const struct service_options *mine, const struct world *w, struct err *e);

/* Connect to rank 0, whose hub is open. set: of ranks, its number and size. The outpost must stay where it is. */
int outpost_open(struct outpost *o, const struct link_card *card, const struct world *set, const struct ops *ops,
                 size_t kv_bytes, struct err *e);

/* After the loop. Safe on a zeroed struct. */
void outpost_close(struct outpost *o);

#endif
