/* tests/gpu/alone.h - the persistent step as a single operation, with arguments between guard bytes: checks what it
 * writes, and that everything else is unchanged. */
#ifndef TESTS_GPU_ALONE_H
#define TESTS_GPU_ALONE_H

#include "tests/gpu/side.h"

#define ALONE_GUARD_BYTES 256
#define ALONE_GUARD_BYTE  0xD7
#define ALONE_POISON      0x7FA5 /* of a logit: a NaN in both types */

/* An array on the device between guard bytes, and its former content. */
struct fenced {
    unsigned char *dev, *was;
    size_t bytes;
};

static inline struct fenced alone_fence(struct side *s, const void *data, size_t bytes)
{
    size_t all = bytes + 2 * (size_t)ALONE_GUARD_BYTES;
    struct fenced f = {s->instance.ops->alloc(&s->instance.q, all), malloc(all), bytes};
    memset(f.was, ALONE_GUARD_BYTE, all);
    memcpy(f.was + ALONE_GUARD_BYTES, data, bytes);
    s->instance.ops->upload(&s->instance.q, f.dev, all, f.was, all, all, 1);
    s->instance.ops->wait(&s->instance.q);
    return f;
}

/* Returns the number of changed bytes, the guards' first; *now: their current values. */
static inline size_t alone_unfence(struct side *s, struct fenced *f, unsigned char *now)
{
    size_t all = f->bytes + 2 * (size_t)ALONE_GUARD_BYTES, changed = 0;
    unsigned char *is = malloc(all);
    s->instance.ops->download(&s->instance.q, is, f->dev, all);
    s->instance.ops->wait(&s->instance.q);
    for (size_t i = 0; i < all; i++)
        if (now == NULL || i < ALONE_GUARD_BYTES || i >= ALONE_GUARD_BYTES + f->bytes)
            changed += is[i] != f->was[i];
    if (now != NULL)
        memcpy(now, is + ALONE_GUARD_BYTES, f->bytes);
    s->instance.ops->free(&s->instance.q, f->dev);
    free(f->was);
    free(is);
    return changed;
}

static inline void *alone_inside(const struct fenced *f)
{
    return f->dev + ALONE_GUARD_BYTES;
}

/* Returns the keys or values of a layer on this rank as bytes. */
static inline unsigned char *alone_read_cache(struct side *s, const void *cache, size_t bytes)
{
    unsigned char *copy = malloc(bytes + 1);
    s->instance.ops->download(&s->instance.q, copy, cache, bytes);
    s->instance.ops->wait(&s->instance.q);
    return copy;
}

static inline size_t alone_cache_elements(const struct side *s, int layer)
{
    struct heads h = network_heads(&s->instance.network, layer);
    int n_blocks = limits_blocks(&s->instance.engine.limits, network_kv_kind(&s->instance.network, layer));
    return (size_t)n_blocks * KV_BLOCK_TOKENS * (size_t)(h.n_kv_heads * h.head_dim);
}

/* All caches of the rank: [2 n_layers]. */
static inline unsigned char **alone_read_caches(struct side *s)
{
    const struct network *n = &s->instance.network;
    unsigned char **copy = calloc(2 * (size_t)n->config.n_layers, sizeof *copy);
    for (int i = 0; i < 2 * n->config.n_layers; i++)
        copy[i] = alone_read_cache(s, i % 2 == 0 ? n->k_cache[i / 2] : n->v_cache[i / 2],
                                   alone_cache_elements(s, i / 2) * side_element_bytes(s));
    return copy;
}

/* Counts wrong elements of a layer's cache after a step of these sequences, each at its next position: changed elements
 * elsewhere, and unwritten elements there. */
static inline size_t alone_wrong_in_cache(const struct side *s, int layer, const unsigned char *was,
                                          const unsigned char *is, const int *seq, int n)
{
    static const unsigned char poison[2] = {SIDE_POISON, SIDE_POISON};
    struct heads h = network_heads(&s->instance.network, layer);
    enum kv_kind kind = network_kv_kind(&s->instance.network, layer);
    size_t row = (size_t)h.head_dim, all = alone_cache_elements(s, layer), size = side_element_bytes(s), wrong = 0;
    char *mine = calloc(all / row + 1, 1);
    for (int i = 0; i < n; i++)
        for (int kv = 0; kv < h.n_kv_heads; kv++) {
            int pos = s->length[seq[i]], block = side_block_of(s, kind, seq[i], pos / KV_BLOCK_TOKENS);
            mine[(size_t)(block * h.n_kv_heads + kv) * KV_BLOCK_TOKENS + (size_t)(pos % KV_BLOCK_TOKENS)] = 1;
        }
    for (size_t i = 0; i < all; i++)
        wrong +=
            mine[i / row] ? memcmp(is + i * size, poison, size) == 0 : memcmp(is + i * size, was + i * size, size) != 0;
    free(mine);
    return wrong;
}

static inline size_t alone_wrong_in_caches(struct side *s, unsigned char **was, const int *seq, int n)
{
    unsigned char **is = alone_read_caches(s);
    size_t wrong = 0;
    for (int i = 0; i < 2 * s->instance.network.config.n_layers; i++) {
        wrong += alone_wrong_in_cache(s, i / 2, was[i], is[i], seq, n);
        free(was[i]);
        free(is[i]);
    }
    free(was);
    free(is);
    return wrong;
}

/* The arguments of a step of the operation alone. */
struct alone {
    struct fenced token, slot, pos, table, angles, window_angles, logits;
    int seq[SIDE_MAX_SEQS];
};

static inline void alone_make(struct side *s, struct alone *x, int n)
{
    const struct engine *g = &s->instance.engine;
    const struct limits *l = &g->limits;
    int blocks = limits_blocks_per_slot(l);
    int kinds = limits_kinds(l), entries = l->max_seqs * blocks;
    int32_t token[SIDE_MAX_SEQS], pos[SIDE_MAX_SEQS], *table = calloc((size_t)(kinds * entries), sizeof *table);
    size_t n_logits = (size_t)n * (size_t)range_length(s->instance.network.shard.vocab);
    uint16_t *poison = calloc(n_logits + 1, sizeof *poison);
    float *zero = calloc((size_t)n * 2 * ROPE_MAX_PAIRS, sizeof *zero);
    for (int i = 0; i < n; i++) {
        x->seq[i] = (i * 3 + n) % SIDE_MAX_SEQS;
        token[i] = (i * 37 + 5) % s->instance.network.config.vocab;
        pos[i] = s->length[x->seq[i]];
    }
    for (int i = 0; i < kinds * entries; i++)
        table[i] = side_block_of(s, (enum kv_kind)(i / entries), i % entries / blocks, i % blocks);
    for (size_t i = 0; i < n_logits; i++)
        poison[i] = ALONE_POISON;
    x->token = alone_fence(s, token, (size_t)n * sizeof *token);
    x->slot = alone_fence(s, x->seq, (size_t)n * sizeof *x->seq);
    x->pos = alone_fence(s, pos, (size_t)n * sizeof *pos);
    x->table = alone_fence(s, table, (size_t)(kinds * entries) * sizeof *table);
    x->angles = alone_fence(s, zero, (size_t)n * 2 * ROPE_MAX_PAIRS * sizeof *zero);
    x->window_angles = alone_fence(s, zero, (size_t)n * 2 * ROPE_MAX_PAIRS * sizeof *zero);
    x->logits = alone_fence(s, poison, n_logits * sizeof *poison);
    free(table);
    free(poison);
    free(zero);
}

static inline void alone_run(struct side *s, const struct alone *x, int n)
{
    struct engine *g = &s->instance.engine;
    const struct model_config *m = &s->instance.network.config;
    struct batch b = {.n_tokens = n,
                      .token = alone_inside(&x->token),
                      .slot = alone_inside(&x->slot),
                      .pos = alone_inside(&x->pos),
                      .rope_len = alone_inside(&x->pos), /* no model here has a rotation that depends on it */
                      .block_table = alone_inside(&x->table),
                      .blocks_per_slot = limits_blocks_per_slot(&g->limits),
                      .windowed_table = limits_kinds(&g->limits) > 1 ? (int)limits_table_entries(&g->limits) : 0};
    if (m->position == POSITION_ROPE)
        g->ops->rope_table(g->q, alone_inside(&x->angles), &m->rope, b.pos, b.rope_len, n);
    if (m->window_rope.dims > 0)
        g->ops->rope_table(g->q, alone_inside(&x->window_angles), &m->window_rope, b.pos, b.rope_len, n);
    g->ops->persistent->run(g->q, g->persistent.step, alone_inside(&x->logits), &b, alone_inside(&x->angles),
                            alone_inside(&x->window_angles));
    g->ops->wait(g->q);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
}

/* The operation writes all logits of this rank, the cache rows of its tokens, and nothing else. */
static inline void alone_check_memory(struct side *s, const char *name, int n)
{
    struct alone x = {0};
    char reason[160];
    int n_ranks = s->instance.engine.world->n_ranks;
    alone_make(s, &x, n);
    unsigned char **was = alone_read_caches(s);
    alone_run(s, &x, n);
    size_t in_cache = alone_wrong_in_caches(s, was, x.seq, n), n_logits = x.logits.bytes / 2, unwritten = 0;
    uint16_t *logits = malloc(x.logits.bytes + 1);
    float *angles = malloc(x.angles.bytes);
    size_t beside = alone_unfence(s, &x.logits, (unsigned char *)logits) +
                    alone_unfence(s, &x.angles, (unsigned char *)angles) +
                    alone_unfence(s, &x.window_angles, (unsigned char *)angles);
    size_t inputs = alone_unfence(s, &x.token, NULL) + alone_unfence(s, &x.slot, NULL) +
                    alone_unfence(s, &x.pos, NULL) + alone_unfence(s, &x.table, NULL);
    for (size_t i = 0; i < n_logits; i++)
        unwritten += logits[i] == ALONE_POISON;
    snprintf(reason, sizeof reason,
             "wrong: %zu elements of the cache, %zu logits unwritten, %zu guards, %zu of the inputs", in_cache,
             unwritten, beside, inputs);
    tap_all(in_cache + unwritten + beside + inputs == 0, reason, "%s: memory of %d on %d rank%s", name, n, n_ranks,
            n_ranks == 1 ? "" : "s");
    free(logits);
    free(angles);
}

#endif
