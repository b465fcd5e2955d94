/* coordinator/schedule/units.h - assigns the units, of equal size, of one arena of KV memory to the models that share
 * it. A unit holds a number of whole blocks of one kind, which depends on the model and the kind; a model with two
 * kinds of blocks (docs/decisions/kv-windows.md) is two holders.
 *
 * A model gets a unit when it needs a block and none of its own is free. Sources, in this order:
 * - free units;
 * - models without requests, those idle longest first: their least recently used unit;
 * - models with requests that have unused units: more than one, or more units than their part;
 * - if the requester has less than its part: models that have more than theirs. The unit with the fewest held
 *   blocks is withdrawn: none of its free blocks are given out, and it is free when its last block is released. No
 *   block moves.
 * A model's part is the arena divided among those with requests, and never less than `least`: what one request of any
 * length needs. If there are two kinds, windowed layers have up to half of it. The `least` of all models together are
 * in the arena (coordinator/deploy/deploy.h sees to it), so each can run: no model has to go below its `least`, and
 * models below it have priority.
 *
 * A pure module on rank 0: no I/O, no clock. One thread. */
#ifndef SCHEDULE_UNITS_H
#define SCHEDULE_UNITS_H

#include "coordinator/schedule/blocks.h"
#include "plan/plan.h"

/* The part of the arena that a model's blocks of one kind have. */
struct unit_share {
    int per_unit;    /* blocks of the kind in a unit; 0: the model has none of it */
    int least, most; /* units */
};

struct units {
    int n, n_free;
    int *owner; /* [n] number of the holder; -1: none */
    struct unit_holder {
        struct units *all;
        struct blocks *blocks; /* borrowed; NULL: there is no such holder. Blocks of its unit k: k per_unit and on */
        struct unit_share share;
        int n_held, n_leaving;        /* of its units; of these, withdrawn */
        int *unit;                    /* [share.most] which of the arena; -1: none */
        bool *leaving;                /* [share.most] */
        int *count;                   /* [share.most] while they are searched */
        bool busy, wants;             /* it has requests; it has requested a unit in vain since units_note */
        uint64_t used;                /* when it was busy last, in calls of units_note */
        uint64_t n_taken;             /* units that it has lost to others */
    } holder[PLAN_MODELS * KV_KINDS]; /* of a model: its kinds of blocks, one after the other */
    uint64_t n_notes;
};

/* All are free. The units must stay where they are. */
int units_open(struct units *u, int n, struct err *e);
void units_close(struct units *u); /* safe on a zeroed struct */

/* Adds model i, without units. The caller opens blocks[kind] with source[kind] (blocks_open_shared), per_unit * most
 * blocks, for each kind of the model, at least KV_MAIN. blocks, share, source: [KV_KINDS]. And removes it, with all its
 * units. */
int units_join(struct units *u, int i, struct blocks *blocks, const struct unit_share *share,
               struct blocks_source *source, struct err *e);
void units_leave(struct units *u, int i);

/* To be called before each plan of model i: does it have requests? */
void units_note(struct units *u, int i, bool busy);

/* Translates the block numbers of model i's plan into the arena's: blocks of a unit are consecutive. */
void units_number(const struct units *u, int i, struct plan *p);

/* The number of units that model i holds. */
int units_held(const struct units *u, int i);

#endif
