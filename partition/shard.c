/* partition/shard.c - see shard.h. */
#include "partition/shard.h"

#define COLUMNS_UNIT 64 /* at most, or a block of quantised weights */
#define LARGEST_UNIT 256
#define CODES_UNIT   2 /* at least, of quantised weights: two codes may share a byte */
#define UNITS_A_RANK 8 /* at least, while the unit can still be halved */

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
        r.end = n; /* what is less than a unit */
    return r;
}

void shard_make(struct shard *s, const struct model_config *m, int rank, int n_ranks)
{
    int group = m->n_heads / m->n_kv_heads; /* query heads of one KV head */
    *s = (struct shard){.rank = rank, .n_ranks = n_ranks};
    s->heads = shard_units(m->n_heads, rank, n_ranks);
    if (range_length(s->heads) > 0)
        s->kv_heads = (struct range){s->heads.begin / group, (s->heads.end - 1) / group + 1};
    int block = quantization_unit(&m->quantization), least = m->quantization.format != FORMAT_NONE ? CODES_UNIT : 1;
    int unit = block > COLUMNS_UNIT && block <= LARGEST_UNIT ? block : COLUMNS_UNIT;
    s->ffn = shard_blocks(m->ffn, unit, least, rank, n_ranks);
    s->experts = (struct range){0, m->experts.routing.n_experts};
    s->expert_ffn = shard_blocks(m->experts.ffn, unit, least, rank, n_ranks);
    if (m->whole_experts) {
        s->experts = shard_units(m->experts.routing.n_experts, rank, n_ranks);
        s->expert_ffn = (struct range){0, m->experts.ffn};
    }
    s->shared_ffn = shard_blocks(m->experts.shared_ffn, unit, least, rank, n_ranks);
    s->vocab = shard_columns(m->vocab, rank, n_ranks);
    s->logits = shard_columns(model_logits(m), rank, n_ranks);
    if (m->drafting.n_taps > 0)
        s->states = shard_columns(m->hidden, rank, n_ranks);
}
