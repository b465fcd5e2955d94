/* tests/ops/attention_setup.h - a batch over a paged cache, for tests of attention and of storing keys and values. */
#ifndef TESTS_OPS_ATTENTION_SETUP_H
#define TESTS_OPS_ATTENTION_SETUP_H

#include "tests/ops/check.h"

enum { SLOTS = 3, BLOCKS_PER_SLOT = 5, CACHED = BLOCKS_PER_SLOT * 16 };
enum { MANY_SLOTS = 24, MANY_BLOCKS = 68, MANY_CACHED = MANY_BLOCKS * 16 }; /* for large batches */

/* A step as the engine runs it, with all its arrays. */
struct setup {
    struct heads heads;
    struct batch batch;
    int n_slots;
    int32_t slot[200], pos[200], rope_len[200], table[MANY_SLOTS * MANY_BLOCKS];
    struct guarded qkv, k_cache, v_cache, out;
    uint64_t state;
};

static inline void setup_sized(struct setup *s, struct heads heads, int n_slots, int blocks_per_slot, const int *len,
                               const int *n_new)
{
    *s = (struct setup){.heads = heads, .n_slots = n_slots, .state = 31};
    int n_blocks = n_slots * blocks_per_slot + 1, order[MANY_SLOTS * MANY_BLOCKS + 1], n = 0;
    backend_n_blocks = n_blocks;
    backend_n_slots = n_slots;
    for (int i = 0; i < n_blocks; i++)
        order[i] = i;
    for (int i = 0; i < n_slots * blocks_per_slot; i++) { /* blocks in random order */
        int other = i + random_int(&s->state, n_blocks - i), block = order[other];
        order[other] = order[i];
        order[i] = block;
        s->table[i] = block;
    }
    for (int slot = 0; slot < n_slots; slot++) {
        for (int i = len[slot] - n_new[slot]; i < len[slot]; i++, n++) {
            s->slot[n] = slot;
            s->pos[n] = i;
            s->rope_len[n] = len[slot];
        }
    }
    s->batch = (struct batch){.n_tokens = n,
                              .slot = s->slot,
                              .pos = s->pos,
                              .rope_len = s->rope_len,
                              .block_table = s->table,
                              .blocks_per_slot = blocks_per_slot};
    size_t cache = (size_t)n_blocks * 16 * (size_t)(heads.n_kv_heads * heads.head_dim);
    s->qkv = guarded_open((size_t)n * (size_t)((heads.n_heads + 2 * heads.n_kv_heads) * heads.head_dim));
    s->out = guarded_open((size_t)n * (size_t)(heads.n_heads * heads.head_dim));
    s->k_cache = guarded_open(cache);
    s->v_cache = guarded_open(cache);
    random_fill(s->qkv.data, s->qkv.n, &s->state, 2);
}

static inline void setup_open(struct setup *s, struct heads heads, const int *len, const int *n_new)
{
    setup_sized(s, heads, SLOTS, BLOCKS_PER_SLOT, len, n_new);
}

static inline void setup_close(struct setup *s)
{
    guarded_close(&s->qkv);
    guarded_close(&s->out);
    guarded_close(&s->k_cache);
    guarded_close(&s->v_cache);
}

static inline size_t cache_at(const struct setup *s, int slot, int pos, int kv)
{
    int block = s->table[slot * s->batch.blocks_per_slot + pos / 16];
    return (((size_t)block * s->heads.n_kv_heads + kv) * 16 + pos % 16) * s->heads.head_dim;
}

#endif
