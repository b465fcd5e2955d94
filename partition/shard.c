/* partition/shard.c - see shard.h. */
#include "partition/shard.h"

#define COLUMNS_UNIT 64 /* largest unit, unless a block of quantised weights is larger */
#define LARGEST_UNIT 256
#define CODES_UNIT   2 /* smallest unit of quantised weights, since two codes may share a byte */
#define UNITS_A_RANK 8 /* each rank has at least this many units, as long as the unit can be halved */

struct range shard_units(int n, int rank, int n_ranks)
{
    int share = n / n_ranks, more = n % n_ranks;
    int begin = rank * share + (rank < more ? rank : more);
    return (struct range){begin, begin + share + (rank < more ? 1 : 0)};
}

struct range shard_columns(int n, int rank, int n_ranks)
{
    return shard_blocks(n, COLUMNS_UNIT, 1, rank, n_ranks);
}

struct range shard_blocks(int n, int unit, int least, int rank, int n_ranks)
{
    while (unit > least && n / unit / UNITS_A_RANK < n_ranks)
        unit /= 2;
    struct range r = shard_units(n / unit, rank, n_ranks);
    r.begin *= unit;
    r.end *= unit;
    if (rank == n_ranks - 1)
        r.end = n; /* the remainder is less than a unit */
    return r;
}

/* Quantised columns in blocks with one scale each are cut into whole blocks as long as no rank has more than a third
 * above the mean, since the persistent step refuses columns that begin within a block
 * (decisions/persistent-step.md). */
static struct range shard_coded(int n, int block, int rank, int n_ranks)
{
    bool large = block > COLUMNS_UNIT && block <= LARGEST_UNIT;
    int blocks = n / block, most = (blocks + n_ranks - 1) / n_ranks;
    if (large && blocks >= n_ranks && (int64_t)3 * most * n_ranks * block <= (int64_t)4 * n)
        return shard_blocks(n, block, block, rank, n_ranks);
    return shard_blocks(n, large ? block : COLUMNS_UNIT, CODES_UNIT, rank, n_ranks);
}

/* Columns of an MLP of either kind. */
static struct range shard_mlp(int n, const struct quantization *z, int rank, int n_ranks)
{
    if (z->format == FORMAT_NONE)
        return shard_columns(n, rank, n_ranks);
    return shard_coded(n, quantization_unit(z), rank, n_ranks);
}

void shard_make(struct shard *s, const struct model_config *m, int rank, int n_ranks)
{
    int heads_per_kv = m->n_heads / m->n_kv_heads;
    *s = (struct shard){.rank = rank, .n_ranks = n_ranks};
    s->heads = shard_units(m->n_heads, rank, n_ranks);
    if (range_length(s->heads) > 0)
        s->kv_heads = (struct range){s->heads.begin / heads_per_kv, (s->heads.end - 1) / heads_per_kv + 1};
    s->ffn = shard_mlp(m->ffn, &m->quantization, rank, n_ranks);
    s->experts = (struct range){0, m->experts.routing.n_experts};
    s->expert_ffn = shard_mlp(m->experts.ffn, &m->quantization, rank, n_ranks);
    if (m->whole_experts) {
        s->experts = shard_units(m->experts.routing.n_experts, rank, n_ranks);
        s->expert_ffn = (struct range){0, m->experts.ffn};
    }
    s->shared_ffn = shard_mlp(m->experts.shared_ffn, &m->quantization, rank, n_ranks);
    s->vocab = shard_columns(m->vocab, rank, n_ranks);
    s->logits = shard_columns(model_logits(m), rank, n_ranks);
    if (m->drafting.n_taps > 0)
        s->states = shard_columns(m->hidden, rank, n_ranks);
}
