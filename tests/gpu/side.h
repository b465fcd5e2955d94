/* tests/gpu/side.h - one engine on the GPUs, driven plan by plan, whose decode steps can run either way: the tests of
 * the persistent step compare two such sides. Its sequences' KV blocks are scattered, and some blocks belong to no
 * sequence; blocks of windowed layers, where these have their own kind, are reused as soon as possible. */
#ifndef TESTS_GPU_SIDE_H
#define TESTS_GPU_SIDE_H

#include "rank/instance/instance.h"
#include "rank/step/graphs.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX_SEQS    16
#define SIDE_FREE_BLOCKS 3 /* the first blocks, which belong to no sequence */

struct side {
    struct instance instance;
    struct plan plan;
    int length[SIDE_MAX_SEQS]; /* tokens fed */
    float *logits;             /* [max_logit_rows, vocab] of the last plan */
    int n_rows;
};

/* Room for n_seqs sequences of max_len tokens. */
static inline struct instance_setup side_setup(int n_seqs, int max_len, enum step_choice step)
{
    int blocks = (max_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    return (struct instance_setup){.limits = {.max_seqs = n_seqs,
                                              .max_batch_tokens = 512,
                                              .max_len = max_len,
                                              .max_logit_rows = 64,
                                              .n_blocks = n_seqs * blocks + SIDE_FREE_BLOCKS},
                                   .kv_bytes = -1,
                                   .threads = -1,
                                   .progress = PROGRESS_NEVER,
                                   .device = DEVICE_CUDA,
                                   .step = step};
}

#define SIDE_POISON 0xFF /* every byte of an element of the cache: a NaN in all types */

static inline size_t side_element_bytes(const struct side *s)
{
    return s->instance.network.config.kv_fp8 ? 1 : dtype_bytes(s->instance.q.act);
}

/* Gives each KV head other scales. */
static inline void side_vary_kv_scales(struct side *s)
{
    struct network *n = &s->instance.network;
    int count = 2 * n->config.n_layers * range_length(n->shard.kv_heads);
    float *scale = malloc((size_t)count * sizeof *scale);
    size_t bytes = (size_t)count * sizeof *scale;
    for (int i = 0; i < count; i++)
        scale[i] = 0.02f + 0.003f * (float)(i % 7);
    s->instance.ops->upload(&s->instance.q, n->kv_scales, bytes, scale, bytes, bytes, 1);
    s->instance.ops->wait(&s->instance.q);
    free(scale);
}

/* Fills every KV block with NaNs, so that a read of an unwritten element shows in the result. */
static inline void side_poison_cache(struct side *s, int layer)
{
    const struct network *n = &s->instance.network;
    struct queue *q = &s->instance.q;
    struct heads h = network_heads(n, layer);
    int n_blocks = limits_blocks(&s->instance.engine.limits, network_kv_kind(n, layer));
    size_t bytes = (size_t)n_blocks * KV_BLOCK_TOKENS * (size_t)(h.n_kv_heads * h.head_dim) * side_element_bytes(s);
    unsigned char *nan = malloc(bytes + 1);
    memset(nan, SIDE_POISON, bytes);
    s->instance.ops->upload(q, n->k_cache[layer], bytes, nan, bytes, bytes, 1);
    s->instance.ops->upload(q, n->v_cache[layer], bytes, nan, bytes, bytes, 1);
    s->instance.ops->wait(q);
    free(nan);
}

/* m and c are as in instance_open. */
static inline void side_open(struct side *s, struct world *w, struct model_config *m, struct checkpoint *c,
                             struct instance_setup *setup)
{
    struct err e = {0};
    memset(s, 0, sizeof *s);
    instance_open(&s->instance, w, m, c, setup, &e);
    const struct limits *l = &s->instance.engine.limits;
    s->logits = calloc((size_t)l->max_logit_rows * (size_t)s->instance.network.config.vocab, sizeof *s->logits);
    if (s->logits == NULL || plan_open(&s->plan, l, &e) != 0)
        fatal(&e);
    plan_reset(&s->plan, 0);
    for (int layer = 0; layer < s->instance.network.config.n_layers; layer++)
        side_poison_cache(s, layer);
}

static inline void side_close(struct side *s)
{
    free(s->logits);
    plan_close(&s->plan);
    instance_close(&s->instance);
}

/* Returns the block of 16 positions of a sequence: scattered, so that code that ignores the table fails. */
static inline int side_block(const struct side *s, int seq, int index)
{
    const struct limits *l = &s->instance.engine.limits;
    return l->n_blocks - 1 - (index * l->max_seqs + seq);
}

/* Returns the number of blocks that a sequence has in windowed layers with blocks of their own; they are used in
 * turn. */
static inline int side_window_blocks(const struct limits *l)
{
    return l->n_window_blocks / l->max_seqs;
}

/* The same in a layer's kind of cache. */
static inline int side_block_of(const struct side *s, enum kv_kind kind, int seq, int index)
{
    const struct limits *l = &s->instance.engine.limits;
    if (kind == KV_MAIN)
        return side_block(s, seq, index);
    return l->n_window_blocks - 1 - (index % side_window_blocks(l) * l->max_seqs + seq);
}

/* Returns the number of tokens that a sequence may be fed at once without overwriting visible ones. */
static inline int side_most_tokens(const struct side *s)
{
    const struct limits *l = &s->instance.engine.limits;
    int most = l->max_batch_tokens,
        room = (side_window_blocks(l) - limits_window_blocks(l->window) + 1) * KV_BLOCK_TOKENS;
    return limits_kinds(l) > 1 && room < most ? room : most;
}

/* Adds the next n tokens of a sequence, whose prompt has n_prompt, to the plan, with the logits of the last n_logits,
 * of which the last `sample` are sampled from. Sampled sequences of one token each are a decode step. */
static inline void side_feed(struct side *s, int seq, const int32_t *token, int n, int prompt, int n_logits, int sample)
{
    struct plan *p = &s->plan;
    int pos = s->length[seq];
    if (pos == 0) {
        p->start[p->n_starts++] = (struct plan_start){.slot = seq, .sampling = {.top_p = 1, .repetition_penalty = 1}};
        for (int kind = 0; kind < limits_kinds(&p->limits); kind++)
            for (int i = 0; i < limits_blocks_per_slot(&p->limits); i++)
                p->block[p->n_blocks++] =
                    (struct plan_block){seq, i, side_block_of(s, (enum kv_kind)kind, seq, i), kind};
    }
    p->seq[p->n_seqs++] = (struct plan_seq){seq, n, pos, n > 1 ? prompt : pos + 1, n_logits, sample, 0};
    memcpy(p->token + p->n_tokens, token, (size_t)n * sizeof *token);
    p->n_tokens += n;
    s->length[seq] += n;
}

/* Runs the plan and stores its logits in s->logits. The plan is empty afterwards. */
static inline void side_run(struct side *s)
{
    struct step_result result;
    struct engine *g = &s->instance.engine;
    struct queue *q = &s->instance.q;
    size_t vocab = (size_t)s->instance.network.config.vocab, size = dtype_bytes(q->act);
    loop_share(&s->plan, g->world, (int)vocab);
    engine_step(g, &s->plan, &result);
    size_t n = (size_t)result.n_rows * vocab;
    unsigned char *in = malloc(n * size + 1);
    s->instance.ops->download(q, in, result.logits, n * size);
    s->instance.ops->wait(q);
    for (size_t i = 0; i < n; i++)
        s->logits[i] = dtype_load(in, q->act, i);
    s->n_rows = result.n_rows;
    free(in);
    plan_reset(&s->plan, 0);
}

#define SIDE_CODES \
    3 /* multiple of the rounding error allowed: where keys and values are codes, some become the next code, an
       * eighth away */

#define SIDE_SPREAD \
    8 /* multiple of an element's error allowed relative to those of its row: rounding stays below it, a wrong
       * element does not */

/* Returns the relative error of a row, or of its worst element in a SIDE_SPREADth, whichever is more; infinite if an
 * element is not a number or the row is zeros. */
static inline double side_difference(const struct side *a, const struct side *b, int row)
{
    size_t vocab = (size_t)a->instance.network.config.vocab;
    double error = 0, norm = 0, most = 0;
    for (size_t i = 0; i < vocab; i++) {
        double x = a->logits[(size_t)row * vocab + i], y = b->logits[(size_t)row * vocab + i];
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        error += (x - y) * (x - y);
        norm += x * x;
        most = fmax(most, fabs(x - y));
    }
    if (!(norm > 0)) /* the row was not written */
        return INFINITY;
    return fmax(sqrt(error / norm), most / sqrt(norm / (double)vocab) / SIDE_SPREAD);
}

#endif
