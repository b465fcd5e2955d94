/* tests/support/backend.c - see backend.h. */
#include "kernels/invariance.h" /* before the global `ops` */

#include "tests/support/arguments.h"
#include "tests/support/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int backend_n_blocks, backend_n_slots;

static const struct ops *real = &ops_cpu; /* owner of the memory */
static const struct ops *table;           /* the operations to call: real's, except after backend_try */
static struct queue queue = {.n_threads = 2};
static bool trying;
static char fault[200];

bool backend_is_device(void)
{
    return real->async != NULL;
}

bool backend_is_invariant(void)
{
    return is_batch_invariant(real, &queue);
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

/* Returns the queue of the operation: a device has its own; on the CPU the test's queue sets the number of threads. */
static struct queue *on(struct queue *q)
{
    return backend_is_device() ? &queue : q;
}

/* Puts results and failures of an operation where the test expects them. */
static void finish(struct queue *q)
{
    const char *wrong = arguments_return();
    if (queue.err.code != ERR_NONE && q->err.code == ERR_NONE)
        q->err = queue.err;
    queue.err = (struct err){0};
    if (wrong != NULL && !trying)
        fail_msg("%s", wrong);
    if (wrong != NULL && fault[0] == '\0')
        (void)snprintf(fault, sizeof fault, "%s", wrong);
}

static void *ints(const char *name, const int32_t *x, size_t n)
{
    return argument_data(argument(name, x, n, sizeof *x, ARGUMENT_READ));
}

static void *act(const char *name, const void *x, size_t n, enum argument_use use)
{
    return argument_data(argument_act(name, x, n, use));
}

/* Returns memory for quantised weights as network_open allocates it: none on the CPU. */
static void *wide_memory(void)
{
    static void *memory;
    if (memory == NULL && !real->shares_host_memory)
        memory = real->alloc(&queue, WIDE_BYTES);
    return real->shares_host_memory ? NULL : memory;
}

static const struct weight *weight(const char *name, struct weight *copy, const struct weight *w)
{
    if (w == NULL)
        return NULL;
    *copy = *w;
    size_t n = (size_t)w->rows * (size_t)w->cols, size = dtype_bytes(w->type);
    if (weight_is_quantised(w)) {
        n = code_bytes(&w->form, w->rows, w->cols);
        size = 1;
        copy->wide = wide_memory();
    }
    copy->data = argument_data(argument(name, w->data, n, size, ARGUMENT_READ));
    return copy;
}

static void feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                 const struct sampler *s, int n_tokens)
{
    size_t n = (size_t)n_tokens, of_models = 1;
    struct sampler d = *s;
    struct argument *history =
        argument("history", s->history, (size_t)s->n_slots * (size_t)s->max_len, sizeof *s->history, ARGUMENT_PARTLY);
    for (size_t t = 0; t < n; t++) {
        if (slot[t] >= 0 && slot[t] < s->n_slots && pos[t] >= 0 && pos[t] < s->max_len)
            argument_may_change(history, (size_t)slot[t] * (size_t)s->max_len + (size_t)pos[t], 1);
        of_models = planned[t] < -1 ? 2 : of_models;
    }
    d.history = argument_data(history);
    d.last_token = ints("last tokens", s->last_token, of_models * (size_t)s->n_slots);
    table->feed(on(q), argument_data(argument("tokens", token, n, sizeof *token, ARGUMENT_MADE)),
                ints("planned tokens", planned, n), ints("slots", slot, n), ints("positions", pos, n), &d, n_tokens);
    finish(q);
}

static void embed(struct queue *q, void *out, const int32_t *token, const struct weight *rows, int first_id,
                  int n_tokens)
{
    struct weight w;
    size_t n = (size_t)n_tokens;
    table->embed(on(q), act("result", out, n * (size_t)rows->cols, ARGUMENT_MADE), ints("tokens", token, n),
                 weight("table", &w, rows), first_id, n_tokens);
    finish(q);
}

static void add_position(struct queue *q, void *x, const struct weight *rows, const int32_t *pos, int offset,
                         int n_tokens)
{
    struct weight w;
    size_t n = (size_t)n_tokens;
    table->add_position(on(q), act("x", x, n * (size_t)rows->cols, ARGUMENT_CHANGED), weight("table", &w, rows),
                        ints("positions", pos, n), offset, n_tokens);
    finish(q);
}

static void add(struct queue *q, void *x, const void *y, size_t n)
{
    table->add(on(q), act("x", x, n, ARGUMENT_CHANGED), act("y", y, n, ARGUMENT_READ), n);
    finish(q);
}

static void scale(struct queue *q, void *x, float factor, float cap, size_t n)
{
    table->scale(on(q), act("x", x, n, ARGUMENT_CHANGED), factor, cap, n);
    finish(q);
}

static void norm(struct queue *q, void *out, void *x, const void *more, enum norm_kind kind, const struct weight *w,
                 const struct weight *b, int n_tokens, int dim, float eps)
{
    struct weight dw, db;
    size_t n = (size_t)n_tokens * (size_t)dim;
    void *dx = act("x", x, n, out == x || more != NULL ? ARGUMENT_CHANGED : ARGUMENT_READ);
    void *dout = out == x ? dx : act("result", out, n, ARGUMENT_MADE);
    table->norm(on(q), dout, dx, act("summand", more, n, ARGUMENT_READ), kind, weight("weights", &dw, w),
                weight("bias", &db, b), n_tokens, dim, eps);
    finish(q);
}

static void matmul(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate)
{
    struct weight dw, db;
    size_t n = (size_t)n_tokens;
    void *dout = act("result", out, n * (size_t)w->rows, accumulate ? ARGUMENT_CHANGED : ARGUMENT_MADE);
    table->matmul(on(q), dout, act("x", x, n * (size_t)w->cols, ARGUMENT_READ), weight("weights", &dw, w),
                  weight("bias", &db, bias), n_tokens, accumulate);
    finish(q);
}

static void rope_table(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                       const int32_t *rope_len, int n_tokens)
{
    size_t n = (size_t)n_tokens;
    struct argument *made = argument("angles", cos_sin, n * (size_t)rope->dims, sizeof *cos_sin, ARGUMENT_MADE);
    table->rope_table(on(q), argument_data(made), rope, ints("positions", pos, n), ints("lengths", rope_len, n),
                      n_tokens);
    finish(q);
}

/* Only the rows of the step's tokens may change in a KV cache; tokens that no plan could contain write nothing. */
static void *cache(const char *name, const void *data, const struct heads *h, const struct batch *b, bool stored)
{
    size_t row = (size_t)h->head_dim, n = (size_t)backend_n_blocks * KV_BLOCK_TOKENS * (size_t)h->n_kv_heads * row;
    enum argument_use use = stored ? ARGUMENT_PARTLY : ARGUMENT_READ;
    struct argument *a = h->kv_scales != NULL ? argument(name, data, n, 1, use) : argument_act(name, data, n, use);
    for (int t = 0; stored && t < b->n_tokens; t++) {
        int slot = b->slot[t], pos = b->pos[t];
        if (slot < 0 || slot >= backend_n_slots || pos < 0 || pos / KV_BLOCK_TOKENS >= b->blocks_per_slot)
            continue;
        int block = b->block_table[slot * b->blocks_per_slot + pos / KV_BLOCK_TOKENS];
        for (int kv = 0; kv < h->n_kv_heads; kv++)
            argument_may_change(
                a, ((size_t)(block * h->n_kv_heads + kv) * KV_BLOCK_TOKENS + (size_t)(pos % KV_BLOCK_TOKENS)) * row,
                row);
    }
    return argument_data(a);
}

static struct heads of_codes(const struct heads *h)
{
    struct heads d = *h;
    size_t n = 2 * (size_t)h->n_kv_heads;
    d.kv_scales = argument_data(argument("scales of k and v", h->kv_scales, n, sizeof *h->kv_scales, ARGUMENT_READ));
    return d;
}

/* All its members are int32_t. */
static struct prefixes *prefixes(const struct prefixes *p, enum argument_use use)
{
    return argument_data(argument("prefixes", p, sizeof *p / sizeof(int32_t), sizeof(int32_t), use));
}

static struct batch batch(const struct batch *b)
{
    struct batch d = *b;
    size_t n = (size_t)b->n_tokens;
    d.token = ints("tokens", b->token, n);
    d.slot = ints("slots", b->slot, n);
    d.pos = ints("positions", b->pos, n);
    d.rope_len = ints("lengths", b->rope_len, n);
    d.block_table = ints("block table", b->block_table, (size_t)backend_n_slots * (size_t)b->blocks_per_slot);
    if (b->prefixes != NULL)
        d.prefixes = prefixes(b->prefixes, ARGUMENT_READ);
    return d;
}

static size_t qkv_row(const struct heads *h)
{
    return (size_t)((h->n_heads + 2 * h->n_kv_heads) * h->head_dim);
}

static void head_squares(struct queue *q, float *squares, const void *qkv, const struct heads *h, struct kv_range kv,
                         int n_tokens)
{
    size_t n = (size_t)n_tokens;
    struct argument *made = argument("squares", squares, 2 * n, sizeof *squares, ARGUMENT_MADE);
    table->head_squares(on(q), argument_data(made), act("qkv", qkv, n * qkv_row(h), ARGUMENT_READ), h, kv, n_tokens);
    finish(q);
}

static void qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *h,
                      const struct batch *b, const struct rope *rope, const float *cos_sin,
                      const struct head_norms *norms)
{
    struct weight dq, dk;
    struct batch db = batch(b);
    struct heads dh = of_codes(h);
    struct head_norms dn = *norms;
    size_t n = (size_t)b->n_tokens, angles = rope != NULL ? n * (size_t)rope->dims : 0;
    struct argument *rows = argument_act("qkv", qkv, n * qkv_row(h), ARGUMENT_PARTLY);
    for (size_t t = 0; t < n; t++) /* except v */
        argument_may_change(rows, t * qkv_row(h), (size_t)((h->n_heads + h->n_kv_heads) * h->head_dim));
    struct argument *given = rope != NULL ? argument("angles", cos_sin, angles, sizeof *cos_sin, ARGUMENT_READ) : NULL;
    void *k = cache("k cache", k_cache, h, b, true), *v = cache("v cache", v_cache, h, b, true);
    dn.q = weight("q norm", &dq, norms->q);
    dn.k = weight("k norm", &dk, norms->k);
    dn.squares = argument_data(argument("squares", norms->squares, 2 * n, sizeof *norms->squares, ARGUMENT_READ));
    table->qkv_store(on(q), argument_data(rows), k, v, &dh, &db, rope, argument_data(given), &dn);
    finish(q);
}

static void attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                      const struct heads *heads, const struct batch *b)
{
    struct batch db = batch(b);
    struct heads h = of_codes(heads);
    size_t n = (size_t)b->n_tokens;
    h.alibi_slopes = argument_data(
        argument("slopes", heads->alibi_slopes, (size_t)h.n_heads, sizeof *h.alibi_slopes, ARGUMENT_READ));
    h.sinks = argument_data(
        argument("sinks", heads->sinks, (size_t)h.n_heads, dtype_bytes(heads->sinks_type), ARGUMENT_READ));
    table->attention(on(q), act("result", out, n * (size_t)(h.n_heads * h.head_dim), ARGUMENT_MADE),
                     act("qkv", qkv, n * qkv_row(&h), ARGUMENT_READ), cache("k cache", k_cache, &h, b, false),
                     cache("v cache", v_cache, &h, b, false), &h, &db);
    finish(q);
}

static bool store_and_attend(struct queue *q, void *out, const void *qkv, void *k_cache, void *v_cache,
                             const struct heads *heads, const struct batch *b, const struct rope *rope,
                             const float *cos_sin, const struct head_norms *norms)
{
    struct batch db = batch(b);
    struct heads h = of_codes(heads);
    size_t n = (size_t)b->n_tokens, angles = rope != NULL ? n * (size_t)rope->dims : 0;
    struct argument *given = rope != NULL ? argument("angles", cos_sin, angles, sizeof *cos_sin, ARGUMENT_READ) : NULL;
    h.sinks = argument_data(
        argument("sinks", heads->sinks, (size_t)h.n_heads, dtype_bytes(heads->sinks_type), ARGUMENT_READ));
    bool done =
        table->store_and_attend(on(q), act("result", out, n * (size_t)(h.n_heads * h.head_dim), ARGUMENT_CHANGED),
                                act("qkv", qkv, n * qkv_row(&h), ARGUMENT_READ), cache("k cache", k_cache, &h, b, true),
                                cache("v cache", v_cache, &h, b, true), &h, &db, rope, argument_data(given), norms);
    finish(q);
    return done;
}

static void latent_store(struct queue *q, void *qkv, const void *query, int query_dim, const void *latent, void *data,
                         const struct heads *h, const struct batch *b, const struct rope *rope, const float *cos_sin,
                         const struct weight *w, float eps)
{
    struct weight dw;
    struct batch db = batch(b);
    size_t n = (size_t)b->n_tokens, turned = (size_t)rope->dims, dim = (size_t)h->head_dim;
    struct argument *rows = argument_act("qkv", qkv, n * qkv_row(h), ARGUMENT_PARTLY);
    for (size_t t = 0; t < n; t++)
        for (size_t head = 0; head < (size_t)h->n_heads; head++)
            argument_may_change(rows, t * qkv_row(h) + (head + 1) * dim - turned, turned);
    struct argument *given = argument("angles", cos_sin, n * turned, sizeof *cos_sin, ARGUMENT_READ);
    void *to = cache("cache", data, h, b, true);
    table->latent_store(on(q), argument_data(rows),
                        act("query", query, n * (size_t)h->n_heads * (size_t)query_dim, ARGUMENT_READ), query_dim,
                        act("latent", latent, n * dim, ARGUMENT_READ), to, h, &db, rope, argument_data(given),
                        weight("norm", &dw, w), eps);
    finish(q);
}

/* A result with gaps between its rows is part of a larger array, the rest of which stays unchanged. */
static void matmul_heads(struct queue *q, struct head_rows out, struct head_rows x, const struct weight *w, int n_heads,
                         int n_tokens)
{
    struct weight dw;
    size_t n = (size_t)n_tokens, heads = (size_t)n_heads, rows = n_heads > 0 ? (size_t)(w->rows / n_heads) : 0;
    struct argument *made = argument_act("result", out.data, n * (size_t)out.per_token, ARGUMENT_PARTLY);
    for (size_t t = 0; t < n; t++)
        for (size_t h = 0; h < heads; h++)
            argument_may_change(made, t * (size_t)out.per_token + h * (size_t)out.per_head, rows);
    out.data = argument_data(made);
    x.data = act("x", x.data, n * (size_t)x.per_token, ARGUMENT_READ);
    table->matmul_heads(on(q), out, x, weight("weights", &dw, w), n_heads, n_tokens);
    finish(q);
}

static void activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens,
                     int cols)
{
    size_t n = (size_t)n_tokens * (size_t)cols;
    void *dout = act("result", out, n, out == x ? ARGUMENT_CHANGED : ARGUMENT_MADE);
    void *dx = out == x ? dout : act("x", x, gated ? 2 * n : n, ARGUMENT_READ);
    table->activate(on(q), dout, dx, kind, gated, n_tokens, cols);
    finish(q);
}

static void xielu(struct queue *q, void *out, const void *x, struct xielu constants, int n_tokens, int cols)
{
    size_t n = (size_t)n_tokens * (size_t)cols;
    void *dout = act("result", out, n, out == x ? ARGUMENT_CHANGED : ARGUMENT_MADE);
    table->xielu(on(q), dout, out == x ? dout : act("x", x, n, ARGUMENT_READ), constants, n_tokens, cols);
    finish(q);
}

static bool gated_product(struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                          int n_tokens)
{
    struct weight dw;
    size_t n = (size_t)n_tokens;
    bool done = table->gated_product(on(q), act("result", out, n * (size_t)(w->rows / 2), ARGUMENT_CHANGED),
                                     act("x", x, n * (size_t)w->cols, ARGUMENT_READ), weight("weights", &dw, w), kind,
                                     n_tokens);
    finish(q);
    return done;
}

/* Makes all arrays results of route, or inputs of the others. */
static struct routes routes(const struct routes *r, const struct routing *how, int n_tokens, enum argument_use use)
{
    size_t n = (size_t)n_tokens, experts = (size_t)how->n_experts, pairs = n * (size_t)how->n_chosen;
    return (struct routes){
        .logits = argument_data(argument("logits", r->logits, n * experts, sizeof *r->logits, use)),
        .expert = argument_data(argument("experts", r->expert, pairs, sizeof *r->expert, use)),
        .share = argument_data(argument("shares", r->share, pairs, sizeof *r->share, use)),
        .begin = argument_data(argument("beginnings", r->begin, experts + 1, sizeof *r->begin, use)),
        .pair = argument_data(argument("pairs", r->pair, pairs, sizeof *r->pair, use)),
        .first_held = r->first_held,
        .n_held = r->n_held,
    };
}

static void route(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
                  const struct weight *bias, const struct routing *how, int n_tokens)
{
    struct weight w, db;
    struct routes d = routes(r, how, n_tokens, ARGUMENT_MADE);
    table->route(on(q), &d, act("x", x, (size_t)n_tokens * (size_t)router->cols, ARGUMENT_READ),
                 weight("router", &w, router), weight("bias", &db, bias), how, n_tokens);
    finish(q);
}

static void experts_first(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                          const struct routes *r, const struct routing *how, enum activation kind, void *work,
                          int n_tokens)
{
    struct weight dw, db;
    struct routes d = routes(r, how, n_tokens, ARGUMENT_READ);
    size_t n = (size_t)n_tokens, both = n * (size_t)how->n_chosen * (size_t)(w->rows / (r->n_held > 0 ? r->n_held : 1));
    bool some = r->n_held < how->n_experts; /* then rows of other pairs do not matter */
    void *dout = act("result", out, both / 2, some ? ARGUMENT_CHANGED : ARGUMENT_MADE),
         *dwork = act("work", work, both, ARGUMENT_SCRATCH);
    table->experts_first(on(q), dout, act("x", x, n * (size_t)w->cols, ARGUMENT_READ), weight("weights", &dw, w),
                         weight("bias", &db, bias), &d, how, kind, dwork, n_tokens);
    finish(q);
}

static void experts_second(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                           const struct routes *r, const struct routing *how, void *work, int n_tokens, int dim,
                           bool accumulate)
{
    struct weight dw, db;
    struct routes d = routes(r, how, n_tokens, ARGUMENT_READ);
    size_t n = (size_t)n_tokens, rows = (size_t)dim, pairs = n * (size_t)how->n_chosen;
    void *dout = act("result", out, n * rows, accumulate ? ARGUMENT_CHANGED : ARGUMENT_MADE);
    void *dwork = act("work", work, pairs * rows, ARGUMENT_SCRATCH);
    table->experts_second(on(q), dout, act("x", x, pairs * (size_t)w->cols, ARGUMENT_READ), weight("weights", &dw, w),
                          weight("bias", &db, bias), &d, how, dwork, n_tokens, dim, accumulate);
    finish(q);
}

static void weigh_input(struct queue *q, void *out, const void *x, const struct routes *r, int n_tokens, int dim)
{
    size_t n = (size_t)n_tokens;
    struct routes d = {.share = argument_data(argument("shares", r->share, n, sizeof *r->share, ARGUMENT_CHANGED))};
    table->weigh_input(on(q), act("result", out, n * (size_t)dim, ARGUMENT_MADE),
                       act("x", x, n * (size_t)dim, ARGUMENT_READ), &d, n_tokens, dim);
    finish(q);
}

static void gate(struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim)
{
    struct weight dw;
    size_t n = (size_t)n_tokens;
    void *dx = act("x", x, n * (size_t)dim, ARGUMENT_CHANGED);
    table->gate(on(q), dx, act("in", in, n * (size_t)w->cols, ARGUMENT_READ), weight("weights", &dw, w), n_tokens, dim);
    finish(q);
}

static void find_prefixes(struct queue *q, struct prefixes *p, const struct batch *b)
{
    struct batch db = batch(b);
    table->find_prefixes(on(q), prefixes(p, ARGUMENT_MADE), &db);
    finish(q);
}

static void gather_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    int last = -1;
    for (int i = 0; i < n_rows; i++)
        last = row[i] > last ? row[i] : last;
    table->gather_rows(on(q), act("result", out, (size_t)n_rows * (size_t)dim, ARGUMENT_MADE),
                       act("x", x, (size_t)(last + 1) * (size_t)dim, ARGUMENT_READ), ints("rows", row, (size_t)n_rows),
                       n_rows, dim);
    finish(q);
}

static void gather_columns(struct queue *q, void *out, const void *x, const int32_t *order, int n_tokens, int dim,
                           int cols)
{
    table->gather_columns(on(q), act("result", out, (size_t)n_tokens * (size_t)cols, ARGUMENT_MADE),
                          act("x", x, (size_t)n_tokens * (size_t)dim, ARGUMENT_READ),
                          ints("order", order, (size_t)cols), n_tokens, dim, cols);
    finish(q);
}

static void join_columns(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows)
{
    size_t n = (size_t)n_rows * (size_t)begin[n_ranks];
    table->join_columns(on(q), act("result", out, n, ARGUMENT_MADE), act("columns", in, n, ARGUMENT_READ), begin,
                        n_ranks, n_rows);
    finish(q);
}

/* A sampler as scoring needs it: nothing in it changes, and it has no scratch memory. masked: the number of rows with
 * masks. */
static struct sampler sampler(const struct sampler *s, int masked)
{
    struct sampler d = *s;
    size_t slots = (size_t)s->n_slots;
    d.history = ints("history", s->history, slots * (size_t)s->max_len);
    d.params = argument_data(argument("parameters", s->params, slots, sizeof *s->params, ARGUMENT_READ));
    d.mask = argument_data(
        argument("masks", s->mask, (size_t)masked * (size_t)s->mask_words, sizeof *s->mask, ARGUMENT_READ));
    d.scratch = NULL;
    return d;
}

static void sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                   const int32_t *row_len, const struct sampler *s, int n_rows)
{
    size_t n = (size_t)n_rows;
    struct sampler d = sampler(s, n_rows);
    struct argument *last =
        argument("last tokens", s->last_token, (size_t)s->n_slots, sizeof *s->last_token, ARGUMENT_PARTLY);
    for (size_t i = 0; i < n; i++)
        if (row_slot[i] >= 0)
            argument_may_change(last, (size_t)row_slot[i], 1);
    d.last_token = argument_data(last);
    d.scratch =
        argument_data(argument("scratch", s->scratch, n * table->sample_scratch_bytes(s->vocab), 1, ARGUMENT_SCRATCH));
    table->sample(on(q), argument_data(argument("result", out, n, sizeof *out, ARGUMENT_MADE)),
                  act("logits", logits, n * (size_t)s->vocab, ARGUMENT_READ), ints("slots", row_slot, n),
                  ints("lengths", row_len, n), &d, n_rows);
    finish(q);
}

static void score(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                  const int32_t *row_token, const struct sampler *s, int n_rows)
{
    size_t n = (size_t)n_rows;
    struct sampler d = sampler(s, 0);
    d.last_token = ints("last tokens", s->last_token, (size_t)s->n_slots);
    table->score(on(q), argument_data(argument("result", out, n, sizeof *out, ARGUMENT_MADE)),
                 act("logits", logits, n * (size_t)s->vocab, ARGUMENT_READ), ints("slots", row_slot, n),
                 ints("tokens", row_token, n), &d, n_rows);
    finish(q);
}

static size_t sample_scratch_bytes(int vocab)
{
    return table->sample_scratch_bytes(vocab);
}

static const struct ops shell = {
    .name = "shell",
    .sample_scratch_bytes = sample_scratch_bytes,
#define STEP(phase, name, parameters, arguments)     .name = name,
#define OPTIONAL(phase, name, parameters, arguments) .name = name,
#include "kernels/op_list.h"
};

const struct ops *ops = &shell;

void backend_try(const struct ops *other)
{
    arguments_close();
    arguments_open(real, &queue, false);
    trying = true;
    table = other;
    fault[0] = '\0';
}

const char *backend_fault(void)
{
    static char taken[sizeof fault];
    memcpy(taken, fault, sizeof fault);
    fault[0] = '\0';
    return taken;
}

static void deselect(void)
{
    if (table == NULL) /* no backend is open */
        return;
    arguments_close();
    real->close(&queue);
    table = NULL;
    trying = false;
}

const char *backend_select(int i)
{
    static const char *const name[] = {"cpu",
                                       "cuda f32",
                                       "cuda f16",
                                       "cuda bf16",
                                       "cuda f32, invariant",
                                       "cuda f16, invariant",
                                       "cuda bf16, invariant"};
    struct err e = {0};
    deselect();
    real = &ops_cpu;
#ifdef LOCKSTEP_CUDA
    if (i > 0 && i <= 2 * DTYPE_COUNT && ops_cuda.n_devices() > 0)
        real = &ops_cuda;
#endif
    if (i > 0 && real == &ops_cpu)
        return NULL;
    queue = (struct queue){0};
    if (real->open(&queue, 0, i == 0 ? DTYPE_F32 : (enum dtype)((i - 1) % DTYPE_COUNT), 2, &e) != 0) {
        printf("not ok - %s: %s\n", name[i], e.text);
        exit(1);
    }
    if (i > DTYPE_COUNT)
        make_batch_invariant(real, &queue);
    table = real;
    arguments_open(real, &queue, true);
    return name[i];
}
