/* rank/step.c - the execution of one plan: index arrays, embedding, layers, logits, sampling. */
#include "base/clock.h"
#include "rank/engine.h"
#include "rank/fatal.h"

static void upload(struct engine *g, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        g->ops->upload(g->q, dst, bytes, src, bytes, bytes, 1);
}

/* Neighbouring entries of the table travel in one copy: a new sequence's blocks come in order. */
static void update_block_table(struct engine *g, const struct plan *p)
{
    size_t width = (size_t)limits_blocks_per_slot(&g->limits);
    int32_t run[256];
    for (int i = 0; i < p->n_blocks;) {
        const struct plan_block *first = &p->block[i];
        size_t n = 0;
        for (; i < p->n_blocks && n < sizeof run / sizeof run[0]; i++) {
            if (p->block[i].slot != first->slot || p->block[i].index != first->index + (int)n)
                break;
            run[n++] = p->block[i].block;
        }
        upload(g, g->block_table + (size_t)first->slot * width + (size_t)first->index, run, n * sizeof run[0]);
        g->ops->wait(g->q);
    }
}

static void start_sequences(struct engine *g, const struct plan *p)
{
    for (int i = 0; i < p->n_starts; i++)
        upload(g, &g->sampler.params[p->start[i].slot], &p->start[i].sampling, sizeof p->start[i].sampling);
}

static void add_row(struct engine *g, int *n, int token, const struct plan_seq *s, int index_in_seq)
{
    g->host.row[*n] = token;
    g->host.row_slot[*n] = s->slot;
    g->host.row_len[*n] = s->pos + index_in_seq + 1;
    (*n)++;
}

/* Rows of logits: first those that are sampled from, then the others. Returns the number of all, *n_sampled of the first. */
static int list_rows(struct engine *g, const struct plan *p, int *n_sampled)
{
    int n = 0;
    for (int i = 0, first = 0; i < p->n_seqs; first += p->seq[i].n_tokens, i++)
        if (p->seq[i].sample != 0)
            add_row(g, &n, first + p->seq[i].n_tokens - 1, &p->seq[i], p->seq[i].n_tokens - 1);
    *n_sampled = n;
    for (int i = 0, first = 0; i < p->n_seqs; first += p->seq[i].n_tokens, i++) {
        const struct plan_seq *s = &p->seq[i];
        int end = s->sample != 0 ? s->n_tokens - 1 : s->n_tokens;
        for (int j = s->n_tokens - s->n_logits; j < end; j++)
            add_row(g, &n, first + j, s, j);
    }
    return n;
}

static struct batch prepare(struct engine *g, const struct plan *p, int *n_rows, int *n_sampled)
{
    size_t bytes = (size_t)p->n_tokens * sizeof(int32_t);
    for (int i = 0, t = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        for (int j = 0; j < s->n_tokens; j++, t++) {
            g->host.planned[t] = p->token[t];
            g->host.slot[t] = s->slot;
            g->host.pos[t] = s->pos + j;
            g->host.rope_len[t] = s->rope_len;
        }
    }
    *n_rows = list_rows(g, p, n_sampled);
    size_t row_bytes = (size_t)*n_rows * sizeof(int32_t);
    update_block_table(g, p);
    start_sequences(g, p);
    upload(g, g->dev.planned, g->host.planned, bytes);
    upload(g, g->dev.slot, g->host.slot, bytes);
    upload(g, g->dev.pos, g->host.pos, bytes);
    upload(g, g->dev.rope_len, g->host.rope_len, bytes);
    upload(g, g->dev.row, g->host.row, row_bytes);
    upload(g, g->dev.row_slot, g->host.row_slot, row_bytes);
    upload(g, g->dev.row_len, g->host.row_len, row_bytes);
    g->ops->feed(g->q, g->dev.token, g->dev.planned, g->dev.slot, g->dev.pos, &g->sampler, p->n_tokens);
    return (struct batch){p->n_tokens,
                          g->dev.token,
                          g->dev.slot,
                          g->dev.pos,
                          g->dev.rope_len,
                          g->block_table,
                          limits_blocks_per_slot(&g->limits)};
}

/* act.x = the embedded tokens, with learned positions and the embedding norm where the model has them. */
static void embed(struct engine *g, const struct batch *b)
{
    const struct network *n = g->network;
    const struct model_config *m = &n->config;
    void *wide = m->embed_dim != m->hidden ? g->projected : g->act.x;
    g->ops->embed(g->q, wide, b->token, n->once[WEIGHT_EMBED], n->shard.vocab.begin, b->n_tokens);
    comm_all_reduce(&g->comm, g->q, wide, (size_t)b->n_tokens * (size_t)m->embed_dim);
    if (wide != g->act.x)
        g->ops->matmul(g->q, g->act.x, wide, n->once[WEIGHT_PROJECT_IN], NULL, b->n_tokens, false);
    if (m->position == POSITION_LEARNED)
        g->ops->add_position(g->q, g->act.x, n->once[WEIGHT_POSITION], b->pos, m->position_offset, b->n_tokens);
    if (m->embed_norm)
        g->ops->norm(g->q, g->act.x, g->act.x, NULL, m->norm, n->once[WEIGHT_EMBED_NORM],
                     n->once[WEIGHT_EMBED_NORM_BIAS], b->n_tokens, m->hidden, m->norm_eps);
    if (m->position == POSITION_ROPE)
        g->ops->rope_table(g->q, g->act.cos_sin, &m->rope, b->pos, b->rope_len, b->n_tokens);
}

static void finish(struct engine *g, const struct batch *b, const void *pending)
{
    const struct network *n = g->network;
    const struct model_config *m = &n->config;
    if (m->final_norm)
        g->ops->norm(g->q, g->act.x, g->act.x, pending, m->norm, n->once[WEIGHT_FINAL_NORM],
                     n->once[WEIGHT_FINAL_NORM_BIAS], b->n_tokens, m->hidden, m->norm_eps);
    else if (pending != NULL)
        g->ops->add(g->q, g->act.x, pending, (size_t)b->n_tokens * (size_t)m->hidden);
}

/* g->logits = [n_rows, vocab], whole on every rank. */
static void compute_logits(struct engine *g, int n_rows)
{
    const struct network *n = g->network;
    const struct model_config *m = &n->config;
    const struct weight *head = n->once[m->tied_head ? WEIGHT_EMBED : WEIGHT_HEAD];
    void *in = g->rows;
    g->ops->gather_rows(g->q, g->rows, g->act.x, g->dev.row, n_rows, m->hidden);
    if (m->embed_dim != m->hidden) {
        in = g->projected;
        g->ops->matmul(g->q, in, g->rows, n->once[WEIGHT_PROJECT_OUT], NULL, n_rows, false);
    }
    g->ops->matmul(g->q, g->logits_local, in, head, n->once[WEIGHT_HEAD_BIAS], n_rows, false);
    if (g->comm.n_ranks == 1)
        return;
    for (int r = 0; r < g->comm.n_ranks; r++)
        g->gather_n[r] = (size_t)n_rows * (size_t)(g->vocab_begin[r + 1] - g->vocab_begin[r]);
    comm_all_gather(&g->comm, g->q, g->logits_parts, g->logits_local, g->gather_n);
    g->ops->join_columns(g->q, g->logits, g->logits_parts, g->vocab_begin, g->comm.n_ranks, n_rows);
}

void engine_step(struct engine *g, const struct plan *p, struct step_result *result)
{
    double started = seconds_now();
    int n_rows = 0, n_sampled = 0;
    struct batch batch = prepare(g, p, &n_rows, &n_sampled);
    struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, &batch};
    const void *pending = NULL;
    if (p->n_tokens > 0) {
        embed(g, &batch);
        for (int layer = 0; layer < g->network->config.n_layers; layer++)
            pending = layer_forward(&run, layer, pending);
    }
    if (n_rows > 0) {
        finish(g, &batch, pending);
        compute_logits(g, n_rows);
    }
    if (n_sampled > 0) {
        g->ops->sample(g->q, g->sampled_dev, g->logits, g->dev.row_slot, g->dev.row_len, &g->sampler, n_sampled);
        g->ops->download(g->q, g->sampled_host, g->sampled_dev, (size_t)n_sampled * sizeof *g->sampled_host);
    }
    g->ops->wait(g->q);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
    *result = (struct step_result){p->step, n_sampled, g->sampled_host, n_rows, g->logits};
    g->n_steps++;
    g->step_seconds += seconds_now() - started;
}
