/* coordinator/schedule/blocks.h - the holders of KV blocks, and the contents of blocks without holders: the prefix
 * cache. A full block's keys and values are determined by its own tokens and all tokens before them. So a block in the
 * cache has a name, a number that is never reused, and is found by the name of the block before it and its own tokens,
 * all of which are compared: by induction two sequences that find the same block begin with the same tokens, whatever
 * their hashes are. 0 is the name of the beginning; sequences that are to share among themselves only begin with a name
 * of their own (blocks_name).
 *
 * A block without holders is free. Its contents stay until the block is reused: blocks without contents first, then the
 * least recently released ones.
 *
 * Where several models share memory (coordinator/schedule/units.h) blocks are added and removed: n counts the present
 * ones. A block that is to be removed while it has holders is removed when it is released, and is not found meanwhile.
 * Rank 0 only. */
#ifndef SCHEDULE_BLOCKS_H
#define SCHEDULE_BLOCKS_H

#include "base/err.h"
#include "base/sampling.h"

#include <stdbool.h>
#include <stddef.h>

/* The source of more blocks if too few are free. more: some have been added (blocks_add); false: none are available.
 * urgent: no block is free; else the next free one has contents worth keeping. */
struct blocks_source {
    void *context;
    bool (*more)(void *context, bool urgent);
};

struct blocks {
    int n, n_free, most; /* present blocks, free ones among them; the most that may exist */
    struct blocks_source source;
    struct block {
        int n_holders;
        int32_t token[KV_BLOCK_TOKENS]; /* of a block in the cache */
        uint64_t name, before;          /* name 0: not in the cache */
        uint64_t step;                  /* no step after this one writes into it */
        int next_in_bucket;             /* -1: none */
        int older, newer;               /* neighbours among the free ones; -1: none */
        bool away;                      /* absent; with holders: to be removed when they have released it */
        bool given_up;                  /* its last holder expects that it will hardly be found again */
    } * block;                          /* [most] */
    int *bucket;                        /* [n_buckets] first block of a hash, or -1 */
    int n_buckets;                      /* a power of two */
    int oldest, newest;                 /* list of free blocks; the oldest is taken first */
    uint64_t n_names;
};

int blocks_open(struct blocks *b, int n, struct err *e);
/* Without blocks; up to `most` may be added. */
int blocks_open_shared(struct blocks *b, int most, const struct blocks_source *source, struct err *e);
void blocks_close(struct blocks *b);

/* A free block, held once and out of the cache; -1: none is free. */
int blocks_take(struct blocks *b);

/* Are n blocks free, or can the source provide them? */
bool blocks_have(struct blocks *b, int n);

/* Add blocks [first, first + n), free and without contents; or remove them, held ones when they are released. */
void blocks_add(struct blocks *b, int first, int n);
void blocks_withdraw(struct blocks *b, int first, int n);

/* Add or remove a holder. A sequence releases its last block first, since a block is useless without those before
 * it. */
void blocks_hold(struct blocks *b, int block);
void blocks_give_back(struct blocks *b, int block);

/* Remove a holder of a block that will hardly be found again: it is reused before all others. */
void blocks_give_up(struct blocks *b, int block);

/* A name that no block has. */
uint64_t blocks_name(struct blocks *b);

/* The block with these KV_BLOCK_TOKENS tokens after the block named `before`, if it was filled by a step before `step`;
 * -1: there is none. It is not held yet. */
int blocks_find(const struct blocks *b, uint64_t before, const int32_t *token, uint64_t step);

/* Put a held block, filled by `step` at the latest, into the cache. Returns its name, or that of an equal block in the
 * cache, in which case this one stays outside. */
uint64_t blocks_share(struct blocks *b, int block, uint64_t before, const int32_t *token, uint64_t step);

#endif
