/* kernels/cpu/attention.c - attention over the paged cache. Online softmax, one block of keys after the other, needs no
 * scratch memory. Several queries of the same KV head share a pass over its blocks while these are in the L1 cache; the
 * order of a query's sums does not depend on its neighbours. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/widest_isa.h"

#include <math.h>

#define QUERIES 16 /* queries that share a pass */

#define WIDEST_CODES 1024 /* most elements of a head in an FP8 cache */

/* One query head of one token, and its sums so far. */
struct query {
    const float *q;
    float *out;
    int slot, first, last; /* positions of the keys it sees */
    float scale;           /* scale of its products with stored keys */
    float slope;
    float sink;
    float best, sum; /* the best score, and the sum of exp(score - best) */
};

static inline float capped(float score, float cap)
{
    return cap > 0 ? cap * tanhf(score / cap) : score;
}

#define ISA_CODE "kernels/cpu/attention_isa.h"
#include "kernels/cpu/each_isa.h"

/* For one instruction set. */
struct isa {
    void (*attend)(struct query *a, const struct heads *h, const float *k, const float *v, int n, int k_pos);
    void (*widen)(float *to, const uint8_t *codes, size_t n);
};

/* One call's arguments. */
struct pass {
    const float *qkv;
    const void *k_cache, *v_cache; /* floats, or codes */
    float *out;
    const struct heads *heads;
    const struct batch *batch;
    struct isa isa;
};

/* Local query heads [*begin, *end) read local KV head kv. */
static void query_heads(const struct heads *h, int kv, int *begin, int *end)
{
    int first = (h->first_kv_head + kv) * h->heads_per_kv - h->first_head, last = first + h->heads_per_kv;
    *begin = first < 0 ? 0 : first;
    *end = last > h->n_heads ? h->n_heads : last;
}

static void start_query(struct query *a, const struct pass *p, int t, int head)
{
    const struct heads *h = p->heads;
    int pos = p->batch->pos[t];
    a->q = p->qkv + ((size_t)t * (h->n_heads + 2 * h->n_kv_heads) + head) * h->head_dim;
    a->out = p->out + ((size_t)t * h->n_heads + head) * h->head_dim;
    a->slot = p->batch->slot[t];
    a->first = h->window > 0 && pos >= h->window ? pos - h->window + 1 : 0;
    if (h->chunk > 0)
        a->first = pos / h->chunk * h->chunk;
    /* only in an unchecked plan */
    a->last = a->slot >= 0 && pos / KV_BLOCK_TOKENS < p->batch->blocks_per_slot ? pos : -1;
    a->scale = h->scale;
    a->slope = h->alibi_slopes ? h->alibi_slopes[head] : 0.0f;
    a->sink = h->sinks ? dtype_load(h->sinks, h->sinks_type, (size_t)head) : -INFINITY;
    a->best = -INFINITY;
    a->sum = 0;
    for (int d = 0; d < h->head_dim; d++)
        a->out[d] = 0;
}

/* A sink far above all scores makes the sum infinite and the result 0, which is correct within float's range. v_scale:
 * of the sums. */
static void finish_query(struct query *a, const struct heads *h, float v_scale)
{
    float all = h->sinks ? a->sum + expf(a->sink - a->best) : a->sum;
    for (int d = 0; d < h->head_dim && a->sum > 0; d++)
        a->out[d] = a->out[d] / all * v_scale;
}

/* n elements of the cache as floats: the stored ones, or codes converted into `room`. */
static const float *floats_at(const struct pass *p, const void *cache, size_t at, size_t n, float *room)
{
    if (p->heads->kv_scales == NULL)
        return (const float *)cache + at;
    p->isa.widen(room, (const uint8_t *)cache + at, n);
    return room;
}

/* Queries of one slot and one KV head, over all blocks that any of them sees. */
static void run_queries(const struct pass *p, struct query *a, int n, int kv)
{
    const struct heads *h = p->heads;
    int first = a[0].first, last = a[0].last, dim = h->head_dim;
    float k_room[KV_BLOCK_TOKENS * WIDEST_CODES], v_room[KV_BLOCK_TOKENS * WIDEST_CODES];
    for (int i = 0; i < n; i++) {
        first = a[i].first < first ? a[i].first : first;
        last = a[i].last > last ? a[i].last : last;
        a[i].scale *= h->kv_scales != NULL ? h->kv_scales[kv] : 1;
    }
    const int32_t *table = p->batch->block_table + (ptrdiff_t)a[0].slot * p->batch->blocks_per_slot;
    for (int b = first / KV_BLOCK_TOKENS; b * KV_BLOCK_TOKENS <= last; b++) {
        int begin = b * KV_BLOCK_TOKENS, end = begin + KV_BLOCK_TOKENS - 1;
        if (table[b] < 0)
            continue;
        size_t at = ((size_t)table[b] * h->n_kv_heads + kv) * KV_BLOCK_TOKENS * dim;
        size_t seen = (size_t)((last < end ? last : end) - begin + 1) * dim; /* the other keys are undefined */
        const float *k = floats_at(p, p->k_cache, at, seen, k_room), *v = floats_at(p, p->v_cache, at, seen, v_room);
        for (int i = 0; i < n; i++) {
            int lo = a[i].first > begin ? a[i].first : begin, hi = a[i].last < end ? a[i].last : end;
            size_t skip = (size_t)(lo - begin) * dim;
            if (lo <= hi)
                p->isa.attend(&a[i], h, k + skip, v + skip, hi - lo + 1, lo);
        }
    }
    for (int i = 0; i < n; i++)
        finish_query(&a[i], h, h->kv_scales != NULL ? h->kv_scales[h->n_kv_heads + kv] : 1);
}

/* Queries [i0, i0 + QUERIES) of the list that reads KV head kv: all its heads of token 0, of token 1, .. */
static void run_unit(const struct pass *p, int kv, int i0)
{
    struct query list[QUERIES];
    int begin, end, n = 0;
    query_heads(p->heads, kv, &begin, &end);
    int n_list = end > begin ? (end - begin) * p->batch->n_tokens : 0;
    for (int i = i0; i < i0 + QUERIES && i < n_list; i++) {
        struct query next;
        start_query(&next, p, i / (end - begin), begin + i % (end - begin));
        if (n > 0 && next.slot != list[0].slot) {
            run_queries(p, list, n, kv);
            n = 0;
        }
        list[n++] = next;
    }
    if (n > 0)
        run_queries(p, list, n, kv);
}

void cpu_attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                   const struct heads *heads, const struct batch *batch)
{
    struct pass p = {.qkv = qkv,
                     .k_cache = k_cache,
                     .v_cache = v_cache,
                     .out = out,
                     .heads = heads,
                     .batch = batch,
                     .isa = {WIDEST(attend), WIDEST(widen)}};
    if (heads->kv_scales != NULL && heads->head_dim > WIDEST_CODES) {
        ERR(&q->err, ERR_UNSUPPORTED, "keys and values in FP8: heads of %d, expected at most %d", heads->head_dim,
            WIDEST_CODES);
        return;
    }
    int n_units = (batch->n_tokens * heads->heads_per_kv + QUERIES - 1) / QUERIES; /* most query heads of one KV head */
    size_t work = (size_t)batch->n_tokens * heads->n_heads * heads->head_dim;
    int n_threads = batch->n_tokens > 0 ? cpu_threads(q, work * (size_t)(batch->pos[batch->n_tokens - 1] + 1)) : 1;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int i = 0; i < n_units * heads->n_kv_heads; i++)
        run_unit(&p, i % heads->n_kv_heads, i / heads->n_kv_heads * QUERIES);
}
