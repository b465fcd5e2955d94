/* partition/shard.c - see shard.h. */
#include "partition/shard.h"

#define COLUMNS_UNIT 64 /* at most */
#define UNITS_A_RANK 8  /* at least, while the unit can still be halved */

struct range shard_units(int n, int rank, int n_ranks)
{
    int share = n / n_ranks, more = n % n_ranks;
    int begin = rank * share + (rank < more ? rank : more);
    return (struct range){begin, begin + share + (rank < more ? 1 : 0)};
}

struct range shard_columns(int n, int rank, int n_ranks)
{
    int unit = COLUMNS_UNIT;
    while (unit > 1 && n / unit / UNITS_A_RANK < n_ranks)
        unit /= 2;
    struct range r = shard_units(n / unit, rank, n_ranks);
    r.begin *= unit;
    r.end *= unit;
    if (rank == n_ranks - 1)
        r.end = n; /* unit > 1: every rank has some; unit == 1: no remainder */
    return r;
}

void shard_make(struct shard *s, const struct model_config *m, int rank, int n_ranks)
{
    int group = m->n_heads / m->n_kv_heads; /* query heads of one KV head */
    *s = (struct shard){.rank = rank, .n_ranks = n_ranks};
    s->heads = shard_units(m->n_heads, rank, n_ranks);
    if (range_length(s->heads) > 0)
        s->kv_heads = (struct range){s->heads.begin / group, (s->heads.end - 1) / group + 1};
    s->ffn = shard_columns(m->ffn, rank, n_ranks);
    s->expert_ffn = shard_columns(m->experts.ffn, rank, n_ranks);
    s->shared_ffn = shard_columns(m->experts.shared_ffn, rank, n_ranks);
    s->vocab = shard_columns(m->vocab, rank, n_ranks);
}
