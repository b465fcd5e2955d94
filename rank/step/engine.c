/* rank/step/engine.c - see engine.h: allocating and freeing the working memory. submit.c runs steps. */
#include "rank/step/engine.h"
#include "base/log.h"
#include "rank/model/slab.h"
#include "rank/model/taps.h"
#include "rank/step/graphs.h"
#include "rank/world/agree.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void *take_device(struct engine *g, size_t n, size_t size)
{
    if (g->slab != NULL)
        return slab_take(g->slab, &g->slab_used, n * size);
    return n > 0 ? g->ops->alloc(g->q, n * size) : NULL;
}

/* Host memory that the device copies from and to. */
static void *take_host(struct engine *g, size_t n, size_t size, struct err *e)
{
    if (g->host_slab != NULL)
        return slab_take(g->host_slab, &g->host_used, n * size);
    if (g->ops->async != NULL)
        return g->ops->async->host_alloc(g->q, n * size);
    return err_calloc(e, n, size, "step arrays");
}

static void free_host(struct engine *g, void *p)
{
    if (g->ops->async != NULL)
        g->ops->async->host_free(g->q, p);
    else
        free(p);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The experts' memory, for the pairs of the largest step. */
static void open_routes(struct engine *g)
{
    const struct model_config *m = &g->network->config;
    const struct routing *how = &m->experts.routing;
    size_t tokens = (size_t)g->limits.max_batch_tokens, experts = (size_t)how->n_experts;
    size_t pairs = tokens * (size_t)how->n_chosen;
    struct routes *r = &g->act.routes;
    if (experts == 0)
        return;
    g->act.said = take_device(g, pairs * (size_t)m->hidden, dtype_bytes(g->q->act));
    r->logits = take_device(g, tokens * experts, sizeof *r->logits);
    r->expert = take_device(g, pairs, sizeof *r->expert);
    r->share = take_device(g, pairs, sizeof *r->share);
    r->begin = take_device(g, experts + 1, sizeof *r->begin);
    r->pair = take_device(g, pairs, sizeof *r->pair);
    r->first_held = g->network->shard.experts.begin;
    r->n_held = range_length(g->network->shard.experts);
}

/* Upper bound for the columns of the widest matrix with reordered inputs: each group of the whole matrix may be padded
 * on the rank (partition/weights_order.c). */
static size_t ordered_columns(const struct model_config *m, const struct shard *s)
{
    const size_t fill = 32, group = (size_t)m->quantization.group;
    const size_t whole[] = {(size_t)m->hidden, (size_t)m->n_heads * (size_t)model_value_dim(m), (size_t)m->ffn,
                            (size_t)m->experts.shared_ffn};
    const size_t mine[] = {whole[0], (size_t)range_length(s->heads) * (size_t)model_value_dim(m),
                           (size_t)range_length(s->ffn), (size_t)range_length(s->shared_ffn)};
    size_t most = 0;
    if (!m->quantization.reordered)
        return 0;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        most = larger(most, mine[i] + fill * ((whole[i] + group - 1) / group));
    return most;
}

/* Memory for the inputs of any product, quantised: all rows of the widest. */
static void open_coded(struct engine *g)
{
    const struct model_config *m = &g->network->config;
    const struct shard *s = &g->network->shard;
    size_t rows = larger((size_t)g->limits.max_batch_tokens, (size_t)g->limits.max_logit_rows);
    size_t pairs = rows * (size_t)m->experts.routing.n_chosen, group = (size_t)m->quantization.input_group;
    size_t heads = (size_t)m->n_heads * (size_t)model_value_dim(m);
    size_t mine = (size_t)range_length(s->heads) * (size_t)model_value_dim(m);
    mine = larger(larger(mine, (size_t)m->hidden), larger((size_t)m->embed_dim, (size_t)range_length(s->ffn)));
    mine = larger(mine, (size_t)range_length(s->shared_ffn));
    size_t all = larger(larger(heads, (size_t)m->hidden), larger((size_t)m->embed_dim, (size_t)m->ffn));
    all = larger(all, (size_t)m->experts.shared_ffn);
    if (!m->quantised_inputs || g->ops->inputs->quantise == NULL)
        return;
    size_t groups = group > 0 ? (all + group - 1) / group : 1;
    size_t expert_groups = group > 0 ? ((size_t)m->experts.ffn + group - 1) / group : 1;
    g->act.coded =
        take_device(g, larger(rows * mine, pairs * (size_t)range_length(s->expert_ffn)), dtype_bytes(g->q->act));
    g->act.largest = take_device(g, larger(rows * groups, pairs * expert_groups), sizeof(float));
}

static void open_activations(struct engine *g)
{
    const struct model_config *m = &g->network->config;
    const struct shard *s = &g->network->shard;
    struct activations *a = &g->act;
    size_t tokens = (size_t)g->limits.max_batch_tokens, size = dtype_bytes(g->q->act);
    size_t heads = (size_t)range_length(s->heads), kv = (size_t)range_length(s->kv_heads);
    size_t dim = (size_t)m->head_dim, hidden = (size_t)m->hidden;
    size_t pairs = tokens * (size_t)m->experts.routing.n_chosen;
    size_t ffn = larger(tokens * (size_t)range_length(s->ffn), tokens * (size_t)range_length(s->shared_ffn));
    ffn = larger(ffn, pairs * (size_t)range_length(s->expert_ffn));
    a->x = take_device(g, tokens * hidden, size);
    a->normed = take_device(g, tokens * hidden, size);
    a->qkv = take_device(g, tokens * (heads + 2 * kv) * dim, size);
    a->attended = take_device(g, tokens * heads * dim, size);
    a->mlp = take_device(g, ffn * (m->gated_mlp ? 2 : 1), size);
    a->activated = take_device(g, ffn, size);
    a->partial = take_device(g, tokens * hidden, size);
    if (m->position == POSITION_ROPE)
        a->cos_sin = take_device(g, tokens * (size_t)m->rope.dims, sizeof(float));
    if (m->window_rope.dims > 0)
        a->window_cos_sin = take_device(g, tokens * (size_t)m->window_rope.dims, sizeof(float));
    if (m->latent.rank > 0) {
        size_t widest = larger((size_t)m->latent.key + (size_t)m->latent.rotated, (size_t)m->latent.value);
        a->heads = take_device(g, tokens * heads * widest, size);
        a->latent = take_device(g, tokens * dim, size);
        a->query_latent = take_device(g, tokens * (size_t)m->latent.query_rank, size);
    }
    if (m->drafting.n_taps > 0)
        a->joined = take_device(g, tokens * hidden * 2, size);
    a->ordered = take_device(g, tokens * ordered_columns(m, s), size);
    if (m->qk_norm_row)
        a->squares = take_device(g, tokens * 2, sizeof(float));
}

/* The arrays of `t` inside one allocation. */
static void place_ints(struct step_ints *t, int32_t *base, size_t pitch)
{
    int32_t **const array[STEP_ARRAYS + 1] = {&t->planned,  &t->slot,    &t->pos,       &t->rope_len, &t->row,
                                              &t->row_slot, &t->row_len, &t->row_token, &t->token};
    for (size_t i = 0; base != NULL && i < sizeof array / sizeof array[0]; i++)
        *array[i] = base + i * pitch;
}

static void open_ints(struct engine *g, struct err *e)
{
    const struct limits *l = &g->limits;
    g->ints_pitch = (size_t)(l->max_batch_tokens > l->max_logit_rows ? l->max_batch_tokens : l->max_logit_rows);
    size_t n = (STEP_ARRAYS + 1) * g->ints_pitch, n_blocks = (size_t)limits_kinds(l) * (size_t)limits_table_entries(l);
    g->ints_dev = take_device(g, n, sizeof *g->ints_dev);
    for (int i = 0; i < ENGINE_FLIGHTS; i++) {
        g->flight[i].ints = take_host(g, n, sizeof *g->ints_dev, e);
        place_ints(&g->flight[i].host, g->flight[i].ints, g->ints_pitch);
        g->flight[i].blocks = take_host(g, n_blocks, sizeof *g->block_table, e);
        g->flight[i].params = take_host(g, (size_t)l->max_seqs, sizeof *g->flight[i].params, e);
        g->flight[i].history = take_host(g, (size_t)l->max_len, sizeof *g->flight[i].history, e);
        g->flight[i].masks =
            take_host(g, (size_t)limits_sampled(l) * (size_t)l->mask_words, sizeof *g->flight[i].masks, e);
        g->flight[i].sampled = take_host(g, (size_t)l->max_logit_rows, sizeof *g->sampled_dev, e);
    }
    place_ints(&g->dev, g->ints_dev, g->ints_pitch);
    g->block_table = take_device(g, n_blocks, sizeof *g->block_table);
    g->prefixes = take_device(g, 1, sizeof *g->prefixes);
}

static void open_logits(struct engine *g, struct err *e)
{
    const struct model_config *m = &g->network->config;
    size_t rows = (size_t)g->limits.max_logit_rows, tokens = (size_t)g->limits.max_batch_tokens;
    size_t size = dtype_bytes(g->q->act), vocab = (size_t)model_logits(m);
    int n_ranks = g->network->shard.n_ranks;
    g->rows = take_device(g, rows * (size_t)m->hidden, size);
    if (m->embed_dim != m->hidden)
        g->projected = take_device(g, (rows > tokens ? rows : tokens) * (size_t)m->embed_dim, size);
    g->logits_local =
        take_device(g, rows * (n_ranks > 1 ? (size_t)range_length(g->network->shard.logits) : vocab), size);
    g->logits_parts = n_ranks > 1 ? take_device(g, rows * vocab, size) : g->logits_local;
    g->logits = n_ranks > 1 ? take_device(g, rows * vocab, size) : g->logits_local;
    g->gather_n = err_calloc(e, (size_t)n_ranks, sizeof *g->gather_n, "logits table");
    g->vocab_begin = err_calloc(e, (size_t)n_ranks + 1, sizeof *g->vocab_begin, "logits table");
    for (int r = 0; g->vocab_begin != NULL && r < n_ranks; r++) {
        struct shard s;
        shard_make(&s, m, r, n_ranks);
        g->vocab_begin[r] = s.logits.begin;
        g->vocab_begin[r + 1] = s.logits.end;
    }
    g->choices = model_logits(m) < m->vocab ? take_device(g, rows * (size_t)m->vocab, size) : g->logits;
    g->sampled_dev = take_device(g, rows, sizeof *g->sampled_dev);
}

static void open_sampler(struct engine *g)
{
    const struct limits *l = &g->limits;
    struct sampler *s = &g->sampler;
    s->n_slots = l->max_seqs;
    s->max_len = l->max_len;
    s->vocab = g->network->config.vocab;
    s->history = take_device(g, (size_t)l->max_seqs * (size_t)l->max_len, sizeof *s->history);
    s->last_token = g->network->last_token;
    if (s->last_token == NULL)
        s->last_token = take_device(g, (size_t)l->max_seqs * (l->draft_len > 0 ? 2 : 1), sizeof *s->last_token);
    s->params = take_device(g, (size_t)l->max_seqs, sizeof *s->params);
    s->mask_words = model_logits(&g->network->config) < s->vocab ? (s->vocab + 31) / 32 : l->mask_words;
    s->mask = take_device(g, (size_t)limits_sampled(l) * (size_t)s->mask_words, sizeof *s->mask);
    s->scratch = take_device(g, (size_t)limits_sampled(l), g->ops->sample_scratch_bytes(s->vocab));
}

static void take_all(struct engine *g, struct err *e)
{
    open_activations(g);
    open_coded(g);
    open_routes(g);
    open_ints(g, e);
    open_logits(g, e);
    open_sampler(g);
}

/* For a head that drafts only some tokens: forbids the others in every row. */
static void forbid_others(struct engine *g, struct err *e)
{
    const int32_t *row = g->network->drafted;
    size_t words = (size_t)g->sampler.mask_words, bytes = words * sizeof(uint32_t);
    uint32_t *mask = row != NULL ? err_calloc(e, words, sizeof *mask, "tokens that are drafted") : NULL;
    for (int i = 0; mask != NULL && i < g->sampler.vocab; i++)
        mask[i / 32] |= (uint32_t)(row[i] >= 0) << i % 32;
    for (int i = 0; mask != NULL && i < limits_sampled(&g->limits); i++)
        g->ops->upload(g->q, g->sampler.mask + (size_t)i * words, bytes, mask, bytes, bytes, 1);
    g->ops->wait(g->q);
    free(mask);
}

/* Bytes of all arrays. */
struct engine_sizes {
    size_t device, host;
};

/* Stand in for ops->alloc and host_alloc: the queue's impl points to sizes. */
static void *add_up(struct queue *q, size_t bytes)
{
    ((struct engine_sizes *)q->impl)->device += slab_bytes(bytes);
    return NULL;
}

static void *add_up_host(struct queue *q, size_t bytes)
{
    ((struct engine_sizes *)q->impl)->host += slab_bytes(bytes);
    return NULL;
}

static struct engine_sizes foretell(struct network *n, const struct limits *l, const struct ops *ops, enum dtype act,
                                    struct err *e)
{
    const struct async_ops async = {.host_alloc = add_up_host};
    struct ops counting = *ops;
    struct engine_sizes sum = {0};
    struct queue q = {.act = act, .impl = &sum};
    struct engine g = {.network = n, .ops = &counting, .q = &q, .limits = *l};
    counting.alloc = add_up;
    counting.async = &async;
    take_all(&g, e);
    free(g.gather_n);
    free(g.vocab_begin);
    return sum;
}

size_t engine_bytes(struct network *n, const struct limits *l, const struct ops *ops, enum dtype act, struct err *e)
{
    return foretell(n, l, ops, act, e).device +
           taps_bytes(&n->config, &n->shard, l->max_seqs, l->max_batch_tokens, act);
}

/* All arrays in one piece of the device's memory, and one of the host's where the device has a use for it. */
static void open_slabs(struct engine *g, struct err *e)
{
    const struct engine_sizes sizes = foretell(g->network, &g->limits, g->ops, g->q->act, e);
    g->slab = g->ops->alloc(g->q, sizes.device);
    if (g->host_pool != NULL)
        g->host_slab = host_pool_take(g->host_pool, sizes.host, g->ops, g->q);
}

/* Sets borrowed members and allocates memory: with a loan in one piece, otherwise one piece per array. */
static int take_memory(struct engine *g, struct world *w, struct network *n, const struct limits *l,
                       const struct engine_loan *loan, const struct ops *ops, struct queue *q, struct err *e)
{
    memset(g, 0, sizeof *g);
    g->world = w;
    g->network = n;
    g->ops = ops;
    g->q = q;
    g->limits = *l;
    g->n_flights = ops->async != NULL ? ENGINE_FLIGHTS : 1;
    if (ops->async == NULL && w->n_ranks > 1 && (int64_t)l->max_logit_rows * model_logits(&n->config) > INT_MAX)
        return ERR(e, ERR_UNSUPPORTED, "%d rows of %d logits exceed MPI's int counts: lower --max-batch",
                   l->max_logit_rows, model_logits(&n->config));
    if (loan != NULL) {
        g->host_pool = loan->host;
        open_slabs(g, e);
    }
    if (e->code == ERR_NONE && q->err.code == ERR_NONE)
        take_all(g, e);
    if (e->code == ERR_NONE && q->err.code == ERR_NONE)
        forbid_others(g, e);
    if (e->code == ERR_NONE && q->err.code != ERR_NONE)
        ERR(e, q->err.code, "working memory for %d tokens per step, %d sequences of %d tokens: %s", l->max_batch_tokens,
            l->max_seqs, l->max_len, q->err.text);
    return e->code == ERR_NONE ? 0 : -1;
}

int engine_prepare(struct engine *g, struct world *w, struct network *n, const struct limits *l,
                   const struct engine_loan *loan, enum step_choice choice, const struct ops *ops, struct queue *q,
                   struct err *e)
{
    (void)take_memory(g, w, n, l, loan, ops, q, e);
    comm_lend(&g->comm, loan->comm);
    if (e->code == ERR_NONE && choice != STEP_SEPARATE)
        (void)persistent_step_prepare(&g->persistent, n, l, w, &loan->sums, ops, q, e);
    return e->code == ERR_NONE ? 0 : -1;
}

int engine_join(struct engine *g, struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e)
{
    const struct ops *ops = g->ops;
    g->q = q;
    g->comm.observers = &g->observers;
    if (choice != STEP_SEPARATE)
        persistent_step_join(&g->persistent, g->world, ops, q);
    if (choice == STEP_PERSISTENT && g->persistent.step == NULL)
        ERR(e, ERR_UNSUPPORTED, "--step persistent does not work with %s", g->persistent.why_not);
    if (agree_failed(g->world, e))
        return -1;
    if (choice == STEP_AUTO && ops->persistent != NULL && g->persistent.step == NULL)
        log_info("no persistent decode step: it does not work with %s", g->persistent.why_not);
    return graphs_open(g, choice, ways, e);
}

int engine_open(struct engine *g, struct world *w, struct network *n, const struct limits *l, const struct ops *ops,
                struct queue *q, enum step_choice choice, struct step_ways *ways, struct err *e)
{
    (void)take_memory(g, w, n, l, NULL, ops, q, e);
    if (agree_failed(w, e))
        return -1;
    (void)comm_open(&g->comm, w, ops, q, l->sum_pieces, e);
    if (agree_failed(w, e))
        return -1;
    if (choice != STEP_SEPARATE)
        (void)persistent_step_prepare(&g->persistent, n, l, w, NULL, ops, q, e);
    return agree_failed(w, e) ? -1 : engine_join(g, q, choice, ways, e);
}

void engine_open_elsewhere(struct engine *g, struct world *w, struct network *n, const struct limits *l)
{
    *g = (struct engine){.world = w, .network = n, .limits = *l, .elsewhere = true};
}

static void free_device(struct engine *g)
{
    void *const device[] = {g->act.x,
                            g->act.normed,
                            g->act.qkv,
                            g->act.attended,
                            g->act.mlp,
                            g->act.activated,
                            g->act.partial,
                            g->act.cos_sin,
                            g->act.window_cos_sin,
                            g->act.squares,
                            g->act.joined,
                            g->act.ordered,
                            g->act.coded,
                            g->act.largest,
                            g->act.heads,
                            g->act.latent,
                            g->act.query_latent,
                            g->act.said,
                            g->act.routes.logits,
                            g->act.routes.expert,
                            g->act.routes.share,
                            g->act.routes.begin,
                            g->act.routes.pair,
                            g->ints_dev,
                            g->block_table,
                            g->prefixes,
                            g->rows,
                            g->projected,
                            g->logits_local,
                            g->logits_parts != g->logits_local ? g->logits_parts : NULL,
                            g->logits != g->logits_local ? g->logits : NULL,
                            g->choices != g->logits ? g->choices : NULL,
                            g->sampled_dev,
                            g->sampler.history,
                            g->network->last_token == NULL ? g->sampler.last_token : NULL,
                            g->sampler.params,
                            g->sampler.mask,
                            g->sampler.scratch};
    for (size_t i = 0; i < sizeof device / sizeof device[0] && g->slab == NULL; i++)
        g->ops->free(g->q, device[i]);
    g->ops->free(g->q, g->slab);
}

void engine_close(struct engine *g)
{
    if (g->ops == NULL)
        return;
    graphs_close(g);
    persistent_step_close(&g->persistent, g->world, g->ops, g->q);
    comm_close(&g->comm);
    free_device(g);
    for (int i = 0; i < ENGINE_FLIGHTS && g->host_slab == NULL; i++) {
        free_host(g, g->flight[i].ints);
        free_host(g, g->flight[i].blocks);
        free_host(g, g->flight[i].params);
        free_host(g, g->flight[i].history);
        free_host(g, g->flight[i].masks);
        free_host(g, g->flight[i].sampled);
    }
    if (g->host_pool != NULL)
        host_pool_give(g->host_pool, g->host_slab);
    free(g->gather_n);
    free(g->vocab_begin);
    memset(g, 0, sizeof *g);
}
