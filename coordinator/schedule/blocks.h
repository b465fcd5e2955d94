/* coordinator/schedule/blocks.h - the owners of KV blocks, and the contents of those without an owner: the prefix
 * cache.
 *
 * A full block's keys and values follow from its own tokens and all before them. So a block in the cache has a name, a
 * number that is given once, and is found by the name of the block before it and its own tokens, all of them compared:
 * by induction two sequences that find the same block begin with the same tokens, whatever their hashes are. 0 is the
 * name of the beginning; sequences that are to share among themselves only begin with a name of their own
 * (blocks_name).
 *
 * A block that nobody holds is free. Its contents stay until the block is taken for something else: blocks with nothing
 * to keep first, then those given back longest ago.
 *
 * Where several models share memory (coordinator/schedule/units.h) the blocks of a list come and go: those that are
 * there are counted in n, of all that there may be. A block that is to go while somebody holds it goes when it is given
 * back, and is not found again meanwhile. Rank 0 only. */
#ifndef SCHEDULE_BLOCKS_H
#define SCHEDULE_BLOCKS_H

#include "base/err.h"
#include "base/sampling.h"

#include <stdbool.h>
#include <stddef.h>

/* The source of more blocks, when too few are free. more: some have been added (blocks_add); false: there are none to
 * be had. urgent: none is free; else the next one that is free has contents worth keeping. */
struct blocks_source {
    void *context;
    bool (*more)(void *context, bool urgent);
};

struct blocks {
    int n, n_free, most; /* that are there, of these free; that there may be */
    struct blocks_source source;
    struct block {
        int n_holders;
        int32_t token[KV_BLOCK_TOKENS]; /* of a block in the cache */
        uint64_t name, before;          /* name 0: not in the cache */
        uint64_t step;      /* the last step that writes into it was planned as this one or an earlier one */
        int next_in_bucket; /* -1: none */
        int older, newer;   /* neighbours among the free ones; -1: none */
        bool away;          /* not there; with holders: not there any more when they have given it back */
        bool given_up;      /* by its last holder: it will hardly be found again */
    } * block;              /* [most] */
    int *bucket;            /* [n_buckets] first block of a hash, or -1 */
    int n_buckets;          /* a power of two */
    int oldest, newest;     /* of the free ones; the oldest is taken first */
    uint64_t n_names;
};

int blocks_open(struct blocks *b, int n, struct err *e);
/* None is there, up to `most` may come. */
int blocks_open_shared(struct blocks *b, int most, const struct blocks_source *source, struct err *e);
void blocks_close(struct blocks *b);

/* A free block, held once and out of the cache; -1: none is free. */
int blocks_take(struct blocks *b);

/* Are n blocks free, or can the source make them so? */
bool blocks_have(struct blocks *b, int n);

/* Blocks [first, first + n) come, free and with nothing to keep; or go, those that are held when they are given
 * back. */
void blocks_add(struct blocks *b, int first, int n);
void blocks_withdraw(struct blocks *b, int first, int n);

/* One holder more, one holder less. A sequence gives its last block back first: a block is of no use without those
 * before. */
void blocks_hold(struct blocks *b, int block);
void blocks_give_back(struct blocks *b, int block);

/* One holder less of a block that will hardly be found again: it is taken for something else before all others. */
void blocks_give_up(struct blocks *b, int block);

/* A name that no block has. */
uint64_t blocks_name(struct blocks *b);

/* The block with these KV_BLOCK_TOKENS tokens after the block named `before`, if it was filled by a step before `step`;
 * -1: there is none. It is not held yet. */
int blocks_find(const struct blocks *b, uint64_t before, const int32_t *token, uint64_t step);

/* Put a held block into the cache, filled by `step` at the latest. Returns its name, or that of another block that is
 * the same and was there before; then this one stays outside. */
uint64_t blocks_share(struct blocks *b, int block, uint64_t before, const int32_t *token, uint64_t step);

#endif
