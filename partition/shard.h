/* partition/shard.h - THE split rule: the heads, columns and vocabulary rows of a rank. No other code decides this. */
#ifndef PARTITION_SHARD_H
#define PARTITION_SHARD_H

#include "partition/model.h"

/* Half open. */
struct range {
    int begin, end;
};

struct shard {
    int rank, n_ranks;
    struct range heads;                  /* query heads */
    struct range kv_heads;               /* every KV head that these query heads read; ranks may share one */
    struct range ffn;                    /* columns of the MLP */
    struct range experts;                /* experts whose weights the rank has: all, or some whole ones */
    struct range expert_ffn, shared_ffn; /* columns of these, and of the shared expert */
    struct range vocab;                  /* rows of the embedding */
    struct range logits;                 /* rows of the head: `vocab`, unless it drafts fewer tokens than there are */
    struct range states;                 /* columns of the states that a drafting head is fed */
};

static inline int range_length(struct range r)
{
    return r.end - r.begin;
}

/* n units over n_ranks as evenly as possible; the first ranks have one more. */
struct range shard_units(int n, int rank, int n_ranks);

/* n columns in units of the largest power of two <= 64 that leaves every rank at least 8 units (so that products stay
 * friendly to wide loads where the size allows), the remainder with the last rank. */
struct range shard_columns(int n, int rank, int n_ranks);

/* The same in units of `unit` columns, or a half, a quarter, ... of that, but at least `least`. */
struct range shard_blocks(int n, int unit, int least, int rank, int n_ranks);

void shard_make(struct shard *s, const struct model_config *m, int rank, int n_ranks);

#endif
