/* rank/step/step.c - the computation of one step: embedding, layers, logits, sampling. See step.h. */
#include "rank/step/step.h"
#include "rank/model/taps.h"
#include "rank/step/step_inputs.h"

static void make_rotations(struct engine *g, const struct batch *b)
{
    const struct model_config *m = &g->network->config;
    if (m->position == POSITION_ROPE)
        g->ops->rope_table(g->q, g->act.cos_sin, &m->rope, b->pos, b->rope_len, b->n_tokens);
    if (m->window_rope.dims > 0)
        g->ops->rope_table(g->q, g->act.window_cos_sin, &m->window_rope, b->pos, b->rope_len, b->n_tokens);
}

static void scale_embedding(struct engine *g, int n_tokens)
{
    const struct model_config *m = &g->network->config;
    float factor = model_embed_scale(m, g->q->act);
    if (factor > 0)
        g->ops->scale(g->q, g->act.x, factor, 0, (size_t)n_tokens * (size_t)m->hidden);
}

/* act.x = the embedded tokens, with learned positions, embedding norm and factor if the model has them. */
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
    scale_embedding(g, b->n_tokens);
    make_rotations(g, b);
}

/* The inputs of a drafting head: act.x = the residual stream, which begins with the states, act.joined = the embedded
 * tokens and the states, normalised. */
static void embed_states(const struct layer_run *r, const int32_t *planned)
{
    const struct model_config *m = &r->network->config;
    const struct state_ops *ops = r->network->taps->ops;
    const struct network *embeds = m->drafting.embeds ? r->network : r->network->taps->model;
    const struct weight *const *w = r->network->layer[0];
    void *x = r->act->x, *normed = r->act->normed;
    int n = r->batch->n_tokens, hidden = m->hidden;
    r->ops->embed(r->q, normed, r->batch->token, embeds->once[WEIGHT_EMBED], embeds->shard.vocab.begin, n);
    comm_all_reduce(r->comm, r->q, normed, (size_t)n * (size_t)hidden);
    r->ops->norm(r->q, normed, normed, NULL, m->norm, w[WEIGHT_TOKEN_NORM], NULL, n, hidden, m->norm_eps);
    ops->copy_columns(r->q, r->act->joined, 2 * hidden, 0, normed, hidden, 0, NULL, n, hidden);
    taps_fetch(r, planned);
    r->ops->norm(r->q, normed, x, NULL, m->norm, w[WEIGHT_STATE_NORM], NULL, n, hidden, m->norm_eps);
    ops->copy_columns(r->q, r->act->joined, 2 * hidden, hidden, normed, hidden, 0, NULL, n, hidden);
    if (m->drafting.predicts)
        taps_join(r, w[WEIGHT_JOIN]);
    if (m->drafting.normed_stream)
        ops->copy_columns(r->q, x, hidden, 0, normed, hidden, 0, NULL, n, hidden);
}

/* act.x for the logits. A drafting head's stream is a state, too, and is normalised only for the logits. */
static void finish_logits(struct engine *g, const struct batch *b, const void *pending)
{
    const struct network *n = g->network;
    const struct model_config *m = &n->config;
    if (m->final_norm && m->drafting.n_taps == 0)
        g->ops->norm(g->q, g->act.x, g->act.x, pending, m->norm, n->once[WEIGHT_FINAL_NORM],
                     n->once[WEIGHT_FINAL_NORM_BIAS], b->n_tokens, m->hidden, m->norm_eps);
    else if (pending != NULL)
        g->ops->add(g->q, g->act.x, pending, (size_t)b->n_tokens * (size_t)m->hidden);
}

/* Normalises a drafting head's g->rows; the first n_sampled become the states of the drafts that they choose, from
 * before the norm, or, for a layer that predicts, from after it, like the model's states. */
static void hold_states(const struct layer_run *r, void *rows, const int32_t *slot, int n_rows, int n_sampled)
{
    const struct network *n = r->network;
    const struct model_config *m = &n->config;
    bool behind = m->drafting.predicts;
    const struct weight *w = behind ? n->layer[0][WEIGHT_PREDICT_NORM] : n->once[WEIGHT_FINAL_NORM];
    if (!behind)
        taps_hold(r, rows, slot, n_sampled);
    r->ops->norm(r->q, rows, rows, NULL, m->norm, w, NULL, n_rows, m->hidden, m->norm_eps);
    if (behind)
        taps_hold(r, rows, slot, n_sampled);
}

/* g->logits_local = [n_rows, this rank's vocabulary] */
static void compute_logits(struct engine *g, int n_rows, int n_sampled)
{
    const struct network *n = g->network;
    const struct model_config *m = &n->config;
    const struct weight *head = network_head(m->drafting.predicts ? n->taps->model : n);
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, NULL, NULL, 1};
    void *in = g->rows;
    g->ops->gather_rows(g->q, g->rows, g->act.x, g->dev.row, n_rows, m->hidden);
    if (m->embed_dim != m->hidden) {
        in = g->projected;
        g->ops->matmul(g->q, in, g->rows, n->once[WEIGHT_PROJECT_OUT], NULL, n_rows, false);
    }
    if (m->drafting.n_taps > 0)
        hold_states(&run, g->rows, g->dev.row_slot, n_rows, n_sampled);
    layer_product(&run, g->logits_local, in, head, n->once[WEIGHT_HEAD_BIAS], n_rows, false);
    if (m->logit_scale > 0 || m->logit_cap > 0)
        g->ops->scale(g->q, g->logits_local, m->logit_scale > 0 ? m->logit_scale : 1, m->logit_cap,
                      (size_t)n_rows * (size_t)head->rows);
}

/* g->logits = [n_rows, vocab], complete on every rank. */
static void gather_logits(struct engine *g, int n_rows)
{
    if (g->comm.n_ranks == 1 ||
        comm_all_gather_columns(&g->comm, g->q, g->logits, g->logits_local, g->vocab_begin, n_rows))
        return;
    for (int r = 0; r < g->comm.n_ranks; r++)
        g->gather_n[r] = (size_t)n_rows * (size_t)(g->vocab_begin[r + 1] - g->vocab_begin[r]);
    comm_all_gather(&g->comm, g->q, g->logits_parts, g->logits_local, g->gather_n);
    g->ops->join_columns(g->q, g->logits, g->logits_parts, g->vocab_begin, g->comm.n_ranks, n_rows);
}

/* Embedding, layers, and the last norm if needed. */
static void run_layers(struct engine *g, const struct batch *batch, bool wants_logits)
{
    struct batch windowed = *batch;
    windowed.block_table += batch->windowed_table;
    windowed.prefixes = NULL;
    const size_t row_bytes = (size_t)g->network->config.hidden * dtype_bytes(g->q->act);
    const int n_pieces = comm_pieces(&g->comm, batch->n_tokens, row_bytes);
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, batch, &windowed, n_pieces};
    const void *pending = NULL;
    if (g->network->config.drafting.n_taps > 0) {
        embed_states(&run, g->dev.planned);
        make_rotations(g, batch);
    } else {
        embed(g, batch);
    }
    for (int layer = 0; layer < g->network->config.n_layers; layer++) {
        taps_note(&run, layer, pending);
        ops_range_begin(g->ops, "layer", layer);
        pending = layer_forward(&run, layer, pending);
        ops_range_end(g->ops);
    }
    comm_end_sums(&g->comm, g->q);
    taps_note(&run, g->network->config.n_layers, pending);
    if (wants_logits || taps_after_norm(g->network))
        finish_logits(g, batch, pending);
    taps_keep(&run);
}

/* The same and this rank's logits, as one operation, and the states for a drafting head. */
static void run_persistent(struct engine *g, const struct batch *batch)
{
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, batch, NULL, 1};
    make_rotations(g, batch);
    g->ops->persistent->run(g->q, g->persistent.step, g->logits_local, batch, g->act.cos_sin, g->act.window_cos_sin);
    taps_keep(&run);
}

/* The scored rows, which follow the sampled ones. */
static void score(struct engine *g, int n_sampled, int n_scored)
{
    size_t row_bytes = (size_t)g->network->config.vocab * dtype_bytes(g->q->act), first = (size_t)n_sampled;
    g->ops->score(g->q, g->sampled_dev + first, (const char *)g->choices + first * row_bytes, g->dev.row_slot + first,
                  g->dev.row_token + first, &g->sampler, n_scored);
}

/* From the logits to the tokens. */
static void choose_tokens(struct engine *g, int n_sampled, int n_scored)
{
    if (n_sampled > 0)
        g->ops->sample(g->q, g->sampled_dev, g->choices, g->dev.row_slot, g->dev.row_len, &g->sampler, n_sampled);
    if (n_scored > 0)
        score(g, n_sampled, n_scored);
}

/* From the index arrays on the device to the logits. */
static void compute(struct engine *g, const struct step_shape *shape, bool persistent)
{
    int n_tokens = shape->n_tokens, n_rows = shape->n_rows;
    const struct batch batch = {
        .n_tokens = n_tokens,
        .n_alone = shape->n_alone,
        .token = g->dev.token,
        .slot = g->dev.slot,
        .pos = g->dev.pos,
        .rope_len = g->dev.rope_len,
        .block_table = g->block_table,
        .blocks_per_slot = limits_blocks_per_slot(&g->limits),
        .longest = shape->longest,
        .windowed_table = limits_kinds(&g->limits) > 1 ? (int)limits_table_entries(&g->limits) : 0,
        .prefixes = shape->shares ? g->prefixes : NULL,
    };
    if (shape->shares)
        g->ops->find_prefixes(g->q, g->prefixes, &batch);
    g->ops->feed(g->q, g->dev.token, g->dev.planned, g->dev.slot, g->dev.pos, &g->sampler, n_tokens);
    if (persistent)
        run_persistent(g, &batch);
    else if (n_tokens > 0)
        run_layers(g, &batch, n_rows > 0);
    if (n_rows > 0 && !persistent)
        compute_logits(g, n_rows, shape->n_sampled);
    if (n_rows > 0)
        gather_logits(g, n_rows);
    if (n_rows > 0 && g->choices != g->logits)
        g->ops->gather_columns(g->q, g->choices, g->logits, g->network->drafted_dev, n_rows,
                               model_logits(&g->network->config), g->network->config.vocab);
}

void step_choose(struct engine *g, const struct step_flight *f, int n_sampled, int n_scored)
{
    int n = n_sampled + n_scored;
    choose_tokens(g, n_sampled, n_scored);
    observers_tell(&g->observers, operations, false);
    if (n > 0)
        g->ops->download(g->q, f->sampled, g->sampled_dev, (size_t)n * sizeof *f->sampled);
}

void step_execute(struct engine *g, const struct step_flight *f, const struct step_shape *shape, bool persistent)
{
    step_upload_ints(g, f, shape->n_tokens > shape->n_rows ? shape->n_tokens : shape->n_rows);
    observers_tell(&g->observers, operations, true);
    compute(g, shape, persistent);
    if (!shape->late)
        step_choose(g, f, shape->n_sampled, shape->n_scored);
}
