/* rank/model/kv_arena.h - memory for the keys and values of several models on a rank, in units of equal size. Rank 0
 * assigns units to models (coordinator/schedule/units.h); a rank learns of it from the block numbers in plans. */
#ifndef MODEL_KV_ARENA_H
#define MODEL_KV_ARENA_H

#include "kernels/ops.h"
#include "partition/model.h"

#define KV_ARENA_UNITS ((size_t)128)      /* at least, if they are not too small then */
#define KV_UNIT_LEAST  ((size_t)64 << 10) /* bytes */

/* Users of a unit other than models: none so far, one that is gone. */
enum { UNIT_BLANK = -1, UNIT_LEFT = -2 };

struct kv_arena {
    char *base; /* device */
    size_t unit_bytes;
    int n_units;
    int *user; /* [n_units] number of the model that used it last; UNIT_BLANK, UNIT_LEFT */
};

/* The part of an arena that a model's blocks of one kind have. */
struct kv_share {
    int per_unit;    /* blocks per unit; 0: the model has none of the kind */
    int least, most; /* units: for one sequence, for as many as it may have at once */
};

/* For an arena of this many bytes: the bytes of a unit, a power of two, and the number of units. */
size_t kv_arena_unit_bytes(size_t bytes);
int kv_arena_units(size_t bytes);

/* Take the memory. Local. */
int kv_arena_open(struct kv_arena *a, size_t bytes, const struct ops *ops, struct queue *q, struct err *e);
void kv_arena_close(struct kv_arena *a, const struct ops *ops, struct queue *q); /* safe on a zeroed struct */

/* Blocks of a kind per unit, on the rank of n_ranks with room for the fewest; 0: a unit is too small. window: as
 * in struct network. */
int kv_arena_per_unit(size_t unit_bytes, const struct model_config *m, int n_ranks, int window, enum kv_kind kind,
                      enum dtype act);

/* The first complete part of this many bytes in a unit, counted from the beginning of the arena. */
size_t kv_arena_first(const struct kv_arena *a, int unit, size_t part);

/* To be called before a model uses a unit: clears another model's data, which could be NaNs as this one's type; the
 * model's own data may stay, of either kind of blocks. Enqueued. */
void kv_arena_claim(struct kv_arena *a, int unit, int model, const struct ops *ops, struct queue *q);

/* The model with this number is gone; the number will be reused for another one. */
void kv_arena_forget(struct kv_arena *a, int model);

#endif
