/* tests/support/backend.c - see backend.h. */
#include "tests/support/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ops *ops = &ops_cpu;
int backend_n_blocks, backend_n_slots;

static const struct ops *real = &ops_cpu;
static struct queue queue = {.n_threads = 2};

bool backend_is_device(void)
{
    return real->async != NULL;
}

enum dtype backend_act(void)
{
    return queue.act;
}

const struct ops *backend_real_ops(void)
{
    return real;
}

struct queue *backend_real_queue(void)
{
    return &queue;
}

float as_act(float x)
{
    float stored[1];
    dtype_store(stored, queue.act, 0, x);
    return dtype_load(stored, queue.act, 0);
}

struct queue test_queue(int n_threads)
{
    return (struct queue){.act = queue.act, .n_threads = n_threads};
}

#ifndef LOCKSTEP_CUDA

const char *backend_select(int i)
{
    return i == 0 ? "cpu" : NULL;
}

#else

#define GUARD_BYTES 256
#define GUARD_BYTE  0xD7
#define ARENA_BYTES ((size_t)512 << 20)
#define MAX_MAPPED  16

enum { WRITTEN = 1, ACT = 2 };

/* The arguments of one operation: host arrays and their copies on the device, each between guard bytes. */
static struct mapped {
    void *host;
    char *dev;
    size_t n, size; /* elements, and their size on the host */
    int how;
} mapped[MAX_MAPPED];
static int n_mapped;
static char *arena;
static size_t used;

static size_t dev_bytes(const struct mapped *m)
{
    return m->n * ((m->how & ACT) != 0 ? dtype_bytes(queue.act) : m->size);
}

static void up(char *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        real->upload(&queue, dst, bytes, src, bytes, bytes, 1);
    real->wait(&queue);
}

static void down(void *dst, const char *src, size_t bytes)
{
    real->download(&queue, dst, src, bytes);
    real->wait(&queue);
}

static void *to_device(const void *host, size_t n, size_t size, int how)
{
    if (host == NULL)
        return NULL;
    for (int i = 0; i < n_mapped; i++)
        if (mapped[i].host == host && mapped[i].n == n && n > 0) {
            mapped[i].how |= how;
            return mapped[i].dev;
        }
    struct mapped *m = &mapped[n_mapped++];
    *m = (struct mapped){(void *)host, arena + used + GUARD_BYTES, n, size, how};
    size_t bytes = dev_bytes(m), rounded = (bytes + 255) / 256 * 256;
    used += rounded + 2 * (size_t)GUARD_BYTES;
    if (n_mapped == MAX_MAPPED || used > ARENA_BYTES)
        abort();
    char *image = malloc(bytes + 2 * (size_t)GUARD_BYTES);
    memset(image, GUARD_BYTE, bytes + 2 * (size_t)GUARD_BYTES);
    if ((how & ACT) == 0 && bytes > 0)
        memcpy(image + GUARD_BYTES, host, bytes);
    for (size_t i = 0; (how & ACT) != 0 && i < n; i++)
        dtype_store(image + GUARD_BYTES, queue.act, i, ((const float *)host)[i]);
    up(m->dev - GUARD_BYTES, image, bytes + 2 * (size_t)GUARD_BYTES);
    free(image);
    return m->dev;
}

static void from_device(const struct mapped *m)
{
    size_t bytes = dev_bytes(m);
    unsigned char *image = malloc(bytes + 2 * (size_t)GUARD_BYTES);
    down(image, m->dev - GUARD_BYTES, bytes + 2 * (size_t)GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (image[i] != GUARD_BYTE || image[GUARD_BYTES + bytes + i] != GUARD_BYTE) {
            printf("not ok - device memory beside an argument of %zu bytes was overwritten\n", bytes);
            abort();
        }
    if ((m->how & WRITTEN) != 0 && (m->how & ACT) == 0 && bytes > 0)
        memcpy(m->host, image + GUARD_BYTES, bytes);
    for (size_t i = 0; (m->how & WRITTEN) != 0 && (m->how & ACT) != 0 && i < m->n; i++)
        ((float *)m->host)[i] = dtype_load(image + GUARD_BYTES, queue.act, i);
    free(image);
}

/* After an operation: results and failures to where the test looks for them. */
static void finish(struct queue *q)
{
    real->wait(&queue);
    for (int i = 0; i < n_mapped; i++)
        from_device(&mapped[i]);
    if (queue.err.code != ERR_NONE && q->err.code == ERR_NONE)
        q->err = queue.err;
    queue.err = (struct err){0};
    n_mapped = 0;
    used = 0;
}

static void *ints(const int32_t *x, size_t n)
{
    return to_device(x, n, sizeof *x, 0);
}

static void *act(const void *x, size_t n, int how)
{
    return to_device(x, n, sizeof(float), how | ACT);
}

static const struct weight *weight(struct weight *copy, const struct weight *w)
{
    if (w == NULL)
        return NULL;
    *copy = *w;
    copy->data = to_device(w->data, (size_t)w->rows * (size_t)w->cols, dtype_bytes(w->type), 0);
    return copy;
}

static struct sampler sampler(const struct sampler *s)
{
    struct sampler d = *s;
    size_t slots = (size_t)s->n_slots;
    d.history = to_device(s->history, slots * (size_t)s->max_len, sizeof *s->history, WRITTEN);
    d.last_token = to_device(s->last_token, slots, sizeof *s->last_token, WRITTEN);
    d.params = to_device(s->params, slots, sizeof *s->params, 0);
    return d;
}

static void feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                 const struct sampler *s, int n_tokens)
{
    size_t n = (size_t)n_tokens;
    struct sampler d = sampler(s);
    real->feed(&queue, to_device(token, n, sizeof *token, WRITTEN), ints(planned, n), ints(slot, n), ints(pos, n), &d,
               n_tokens);
    finish(q);
}

static void embed(struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
                  int n_tokens)
{
    struct weight w;
    size_t n = (size_t)n_tokens;
    real->embed(&queue, act(out, n * (size_t)table->cols, WRITTEN), ints(token, n), weight(&w, table), first_id,
                n_tokens);
    finish(q);
}

static void add_position(struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                         int n_tokens)
{
    struct weight w;
    size_t n = (size_t)n_tokens;
    real->add_position(&queue, act(x, n * (size_t)table->cols, WRITTEN), weight(&w, table), ints(pos, n), offset,
                       n_tokens);
    finish(q);
}

static void add(struct queue *q, void *x, const void *y, size_t n)
{
    real->add(&queue, act(x, n, WRITTEN), act(y, n, 0), n);
    finish(q);
}

static void norm(struct queue *q, void *out, void *x, const void *more, enum norm_kind kind, const struct weight *w,
                 const struct weight *b, int n_tokens, int dim, float eps)
{
    struct weight dw, db;
    size_t n = (size_t)n_tokens * (size_t)dim;
    void *dx = act(x, n, WRITTEN), *dout = out == x ? dx : act(out, n, WRITTEN);
    real->norm(&queue, dout, dx, act(more, n, 0), kind, weight(&dw, w), weight(&db, b), n_tokens, dim, eps);
    finish(q);
}

static void matmul(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate)
{
    struct weight dw, db;
    size_t n = (size_t)n_tokens;
    real->matmul(&queue, act(out, n * (size_t)w->rows, WRITTEN), act(x, n * (size_t)w->cols, 0), weight(&dw, w),
                 weight(&db, bias), n_tokens, accumulate);
    finish(q);
}

static void rope_table(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                       const int32_t *rope_len, int n_tokens)
{
    size_t n = (size_t)n_tokens;
    real->rope_table(&queue, to_device(cos_sin, n * (size_t)rope->dims, sizeof(float), WRITTEN), rope, ints(pos, n),
                     ints(rope_len, n), n_tokens);
    finish(q);
}

static size_t cache_elements(const struct heads *h)
{
    return (size_t)backend_n_blocks * KV_BLOCK_TOKENS * (size_t)(h->n_kv_heads * h->head_dim);
}

static struct batch batch(const struct batch *b)
{
    struct batch d = *b;
    size_t n = (size_t)b->n_tokens;
    d.token = ints(b->token, n);
    d.slot = ints(b->slot, n);
    d.pos = ints(b->pos, n);
    d.rope_len = ints(b->rope_len, n);
    d.block_table = ints(b->block_table, (size_t)backend_n_slots * (size_t)b->blocks_per_slot);
    return d;
}

static size_t qkv_elements(const struct heads *h, const struct batch *b)
{
    return (size_t)b->n_tokens * (size_t)((h->n_heads + 2 * h->n_kv_heads) * h->head_dim);
}

static void qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                      const struct batch *b, const struct rope *rope, const float *cos_sin, const struct weight *q_norm,
                      const struct weight *k_norm, float eps)
{
    struct weight dq, dk;
    struct batch db = batch(b);
    void *table = rope != NULL ? to_device(cos_sin, (size_t)b->n_tokens * (size_t)rope->dims, sizeof(float), 0) : NULL;
    real->qkv_store(&queue, act(qkv, qkv_elements(heads, b), WRITTEN), act(k_cache, cache_elements(heads), WRITTEN),
                    act(v_cache, cache_elements(heads), WRITTEN), heads, &db, rope, table, weight(&dq, q_norm),
                    weight(&dk, k_norm), eps);
    finish(q);
}

static void attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                      const struct heads *heads, const struct batch *b)
{
    struct batch db = batch(b);
    struct heads h = *heads;
    h.alibi_slopes = to_device(heads->alibi_slopes, (size_t)heads->n_heads, sizeof(float), 0);
    real->attention(&queue, act(out, (size_t)b->n_tokens * (size_t)(h.n_heads * h.head_dim), WRITTEN),
                    act(qkv, qkv_elements(heads, b), 0), act(k_cache, cache_elements(heads), 0),
                    act(v_cache, cache_elements(heads), 0), &h, &db);
    finish(q);
}

static void activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens,
                     int cols)
{
    size_t n = (size_t)n_tokens * (size_t)cols;
    void *dout = act(out, n, WRITTEN), *dx = out == x ? dout : act(x, gated ? 2 * n : n, 0);
    real->activate(&queue, dout, dx, kind, gated, n_tokens, cols);
    finish(q);
}

static void gather_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    int last = -1;
    for (int i = 0; i < n_rows; i++)
        last = row[i] > last ? row[i] : last;
    real->gather_rows(&queue, act(out, (size_t)n_rows * (size_t)dim, WRITTEN),
                      act(x, (size_t)(last + 1) * (size_t)dim, 0), ints(row, (size_t)n_rows), n_rows, dim);
    finish(q);
}

static void join_columns(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows)
{
    size_t n = (size_t)n_rows * (size_t)begin[n_ranks];
    real->join_columns(&queue, act(out, n, WRITTEN), act(in, n, 0), begin, n_ranks, n_rows);
    finish(q);
}

static void sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                   const int32_t *row_len, const struct sampler *s, int n_rows)
{
    size_t n = (size_t)n_rows;
    struct sampler d = sampler(s);
    d.scratch = to_device(s->scratch, n * real->sample_scratch_bytes(s->vocab), 1, 0);
    real->sample(&queue, to_device(out, n, sizeof *out, WRITTEN), act(logits, n * (size_t)s->vocab, 0),
                 ints(row_slot, n), ints(row_len, n), &d, n_rows);
    finish(q);
}

static void score(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                  const int32_t *row_token, const struct sampler *s, int n_rows)
{
    size_t n = (size_t)n_rows;
    struct sampler d = sampler(s);
    d.scratch = NULL; /* it needs none */
    real->score(&queue, to_device(out, n, sizeof *out, WRITTEN), act(logits, n * (size_t)s->vocab, 0),
                ints(row_slot, n), ints(row_token, n), &d, n_rows);
    finish(q);
}

static struct ops shell = {
    .feed = feed,
    .embed = embed,
    .add_position = add_position,
    .add = add,
    .norm = norm,
    .matmul = matmul,
    .rope_table = rope_table,
    .qkv_store = qkv_store,
    .attention = attention,
    .activate = activate,
    .gather_rows = gather_rows,
    .join_columns = join_columns,
    .sample = sample,
    .score = score,
};

const char *backend_select(int i)
{
    static const char *const name[] = {"cpu", "cuda f32", "cuda f16", "cuda bf16"};
    struct err e = {0};
    if (real->async != NULL) {
        real->free(&queue, arena);
        real->close(&queue);
    }
    real = &ops_cpu;
    ops = &ops_cpu;
    queue = (struct queue){.n_threads = 2};
    if (i == 0)
        return name[0];
    if (i > DTYPE_COUNT || ops_cuda.n_devices() == 0)
        return NULL;
    if (ops_cuda.open(&queue, 0, (enum dtype)(i - 1), 2, &e) != 0) {
        printf("not ok - %s: %s\n", name[i], e.text);
        exit(1);
    }
    real = &ops_cuda;
    shell.name = real->name;
    shell.sample_scratch_bytes = real->sample_scratch_bytes;
    ops = &shell;
    arena = real->alloc(&queue, ARENA_BYTES);
    return name[i];
}

#endif
