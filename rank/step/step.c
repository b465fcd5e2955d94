/* rank/step/step.c - the execution of one plan: index arrays, embedding, layers, logits, sampling. */
#include "rank/step/step.h"
#include "rank/model/taps.h"
#include "rank/step/graphs.h"
#include "rank/world/fatal.h"

#include <string.h>

static void upload(struct engine *g, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        g->ops->upload(g->q, dst, bytes, src, bytes, bytes, 1);
}

static bool follows(const struct plan_block *a, const struct plan_block *b)
{
    return b->kind == a->kind && b->slot == a->slot && b->index == a->index + 1;
}

/* Neighbouring entries of the table travel in one copy: a new sequence's blocks come in order. */
static void update_block_table(struct engine *g, struct step_flight *f, const struct plan *p)
{
    size_t width = (size_t)limits_blocks_per_slot(&g->limits), entries = (size_t)limits_table_entries(&g->limits);
    for (int i = 0; i < p->n_blocks; i++)
        f->blocks[i] = g->network->arena == NULL ? p->block[i].block
                                                 : network_find_block(g->network, (enum kv_kind)p->block[i].kind,
                                                                      p->block[i].block, p->model, g->ops, g->q);
    for (int i = 0, n; i < p->n_blocks; i += n) {
        const struct plan_block *first = &p->block[i];
        for (n = 1; i + n < p->n_blocks && follows(&first[n - 1], &first[n]);)
            n++;
        size_t at = (size_t)first->kind * entries + (size_t)first->slot * width + (size_t)first->index;
        upload(g, g->block_table + at, f->blocks + i, (size_t)n * sizeof *f->blocks);
    }
}

/* From the flight's memory, not the plan's: a copy from memory that is not pinned waits for the step before. */
static void start_sequences(struct engine *g, struct step_flight *f, const struct plan *p)
{
    const int32_t *history = f->history;
    memcpy(f->history, p->history, (size_t)p->n_history * sizeof *p->history);
    for (int i = 0; i < p->n_starts; i++) {
        const struct plan_start *s = &p->start[i];
        f->params[i] = s->sampling;
        f->params[i].masked = s->sampling.masked || g->network->drafted != NULL;
        upload(g, &g->sampler.params[s->slot], &f->params[i], sizeof f->params[i]);
        upload(g, g->sampler.history + (size_t)s->slot * (size_t)g->sampler.max_len, history,
               (size_t)s->n_history * sizeof *history);
        history += s->n_history;
    }
}

/* Late masks overtake the step whose tokens they choose: it is under way, and looks at its rows' masks afterwards. */
static void upload_mask_rows(struct engine *g, int row, const uint32_t *mask, int n, enum plan_mask which)
{
    size_t words = (size_t)g->limits.mask_words, bytes = (size_t)n * words * sizeof *mask;
    uint32_t *dst = g->sampler.mask + (size_t)row * words;
    if (which == MASK_LATE && g->ops->async != NULL)
        g->ops->async->upload_aside(g->q, dst, mask, bytes);
    else
        upload(g, dst, mask, bytes);
}

/* The masks of this step's sampled rows that are here, or late; those of neighbours travel in one copy. */
static void upload_masks(struct engine *g, struct step_flight *f, const struct plan *p, enum plan_mask which)
{
    size_t words = (size_t)p->limits.mask_words, first = which == MASK_LATE ? (size_t)p->n_masks * words : 0;
    int n = which == MASK_LATE ? p->n_late : p->n_masks;
    const uint32_t *mask = f->masks + first;
    memcpy(f->masks + first, p->mask + first, (size_t)n * words * sizeof *mask);
    for (int i = 0, row = 0, rows; i < p->n_seqs && n > 0; row += rows) {
        bool masked = p->seq[i].masked == (int32_t)which;
        for (rows = 0; i < p->n_seqs && (p->seq[i].masked == (int32_t)which) == masked; i++)
            rows += p->seq[i].sample;
        if (!masked || rows == 0)
            continue;
        upload_mask_rows(g, row, mask, rows, which);
        mask += (size_t)rows * words;
    }
}

static void add_row(struct step_ints *host, int *n, int token, const struct plan_seq *s, int index_in_seq)
{
    host->row[*n] = token;
    host->row_slot[*n] = s->slot;
    host->row_len[*n] = s->pos + index_in_seq + 1;
    host->row_token[*n] = 0;
    (*n)++;
}

/* Rows [begin, end) of a sequence whose first token is the plan's token `first`. */
static void add_rows(struct step_ints *host, int *n, const struct plan_seq *s, int first, int begin, int end)
{
    for (int j = begin; j < end; j++)
        add_row(host, n, first + j, s, j);
}

static void add_scored(struct step_ints *host, int *n, const struct plan *p, const struct plan_score *score, int first)
{
    const struct plan_seq *s = &p->seq[score->seq];
    int begin = s->n_tokens - s->n_logits, row = *n;
    add_rows(host, n, s, first, begin, begin + score->n_scored);
    for (int j = begin; row < *n; row++, j++)
        host->row_token[row] = j + 1 < s->n_tokens ? p->token[first + j + 1] : score->next;
}

/* Rows of logits: first those that are sampled from, then those that are scored, then the others. */
static void list_rows(struct step_flight *f, const struct plan *p)
{
    int n = 0;
    for (int i = 0, first = 0; i < p->n_seqs; first += p->seq[i].n_tokens, i++)
        add_rows(&f->host, &n, &p->seq[i], first, p->seq[i].n_tokens - p->seq[i].sample, p->seq[i].n_tokens);
    f->n_sampled = n;
    for (int k = 0, i = 0, first = 0; k < p->n_scores; k++) {
        for (; i < p->score[k].seq; i++)
            first += p->seq[i].n_tokens;
        add_scored(&f->host, &n, p, &p->score[k], first);
    }
    f->n_scored = n - f->n_sampled;
    for (int i = 0, k = 0, first = 0; i < p->n_seqs; first += p->seq[i].n_tokens, i++) {
        const struct plan_seq *s = &p->seq[i];
        int n_scored = k < p->n_scores && p->score[k].seq == i ? p->score[k++].n_scored : 0;
        add_rows(&f->host, &n, s, first, s->n_tokens - s->n_logits + n_scored, s->n_tokens - s->sample);
    }
    f->n_rows = n;
}

/* Tokens [begin, end) that belong to no sequence, a row of logits each. */
static void fill_empty(struct step_ints *host, int begin, int end)
{
    for (int t = begin; t < end; t++) {
        host->planned[t] = host->row_token[t] = 0;
        host->slot[t] = host->row_slot[t] = -1;
        host->pos[t] = 0;
        host->rope_len[t] = host->row_len[t] = 1;
        host->row[t] = t;
    }
}

/* The first n entries of all index arrays, in one copy. */
static void upload_ints(struct engine *g, const struct step_flight *f, int n)
{
    size_t pitch = g->ints_pitch * sizeof *f->ints;
    g->ops->upload(g->q, g->ints_dev, pitch, f->ints, pitch, (size_t)n * sizeof *f->ints, STEP_ARRAYS);
}

void step_fill_empty(struct engine *g, int n)
{
    for (int i = 0; i < ENGINE_FLIGHTS; i++)
        fill_empty(&g->flight[i].host, 0, n);
}

/* Recorded steps have a row of logits for each token: those of tokens that nothing is sampled from belong to nobody. */
static void spread_rows(struct step_flight *f, const struct plan *p)
{
    struct step_ints *host = &f->host;
    for (int i = 0, t = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        for (int j = 0; j < s->n_tokens; j++, t++) {
            host->row[t] = t;
            host->row_slot[t] = j >= s->n_tokens - s->sample ? s->slot : -1;
            host->row_len[t] = s->pos + j + 1;
            host->row_token[t] = 0;
        }
    }
}

/* The plan's arrays in the flight's memory, what lasts for more than a step on the device; graph: that will run the
 * step, or NULL. */
static void prepare_flight(struct engine *g, struct step_flight *f, const struct plan *p,
                           const struct decode_graph *graph)
{
    struct step_ints *host = &f->host;
    for (int i = 0, t = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        for (int j = 0; j < s->n_tokens; j++, t++) {
            host->planned[t] = p->token[t];
            host->slot[t] = s->slot;
            host->pos[t] = s->pos + j;
            host->rope_len[t] = s->rope_len > s->pos + j ? s->rope_len : s->pos + j + 1;
        }
    }
    f->spread = graph != NULL && f->n_rows < p->n_tokens;
    if (f->spread)
        spread_rows(f, p);
    if (graph != NULL)
        fill_empty(host, p->n_tokens, graph->n_tokens);
    f->step = p->step;
    update_block_table(g, f, p);
    start_sequences(g, f, p);
    upload_masks(g, f, p, MASK_HERE);
}

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
    float factor = m->embed_scale_rounded ? dtype_round(g->q->act, m->embed_scale) : m->embed_scale;
    if (factor > 0)
        g->ops->scale(g->q, g->act.x, factor, 0, (size_t)n_tokens * (size_t)m->hidden);
}

/* act.x = the embedded tokens, with learned positions, the embedding norm and its factor where the model has them. */
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

/* The inputs of a drafting head: act.x = the stream that begins with the states, act.joined = the embedded tokens
 * and the states, normed. */
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

/* act.x for the logits. A drafting head's stream is a state, too, and normed where logits are computed. */
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

/* g->rows, of a drafting head, are normed; the first n_sampled become the states of the drafts that they choose, as
 * they are before, or behind the norm of a layer that predicts, as the model's states are. */
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
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, NULL, NULL};
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

/* Embedding, layers, and the last norm where it is wanted. */
static void run_layers(struct engine *g, const struct batch *batch, bool wants_logits)
{
    struct batch windowed = *batch;
    windowed.block_table += batch->windowed_table;
    windowed.prefixes = NULL;
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, batch, &windowed};
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
    taps_note(&run, g->network->config.n_layers, pending);
    if (wants_logits || taps_after_norm(g->network))
        finish_logits(g, batch, pending);
    taps_keep(&run);
}

/* The same and this rank's logits, as one operation; and the states that a drafting head is fed. */
static void run_persistent(struct engine *g, const struct batch *batch)
{
    const struct model_config *m = &g->network->config;
    const struct layer_run run = {g->network, g->ops, g->q, &g->comm, &g->act, batch, NULL};
    if (m->position == POSITION_ROPE)
        g->ops->rope_table(g->q, g->act.cos_sin, &m->rope, batch->pos, batch->rope_len, batch->n_tokens);
    g->ops->persistent->run(g->q, g->persistent.step, g->logits_local, batch, g->act.cos_sin);
    taps_keep(&run);
}

/* After the sampled rows: those that are scored. */
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

/* From the index arrays on the device to the sampled tokens there. */
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
    if (!shape->late)
        choose_tokens(g, shape->n_sampled, shape->n_scored);
}

static void download_results(struct engine *g, const struct step_flight *f, int n)
{
    if (n > 0)
        g->ops->download(g->q, f->sampled, g->sampled_dev, (size_t)n * sizeof *f->sampled);
}

void step_execute(struct engine *g, const struct step_flight *f, const struct step_shape *shape, bool persistent)
{
    upload_ints(g, f, shape->n_tokens > shape->n_rows ? shape->n_tokens : shape->n_rows);
    observers_tell(&g->observers, operations, true);
    compute(g, shape, persistent);
    if (shape->late)
        return;
    observers_tell(&g->observers, operations, false);
    download_results(g, f, shape->n_sampled + shape->n_scored);
}

/* Each sequence feeds one token and gets one. */
static bool is_decode(const struct step_flight *f, const struct plan *p)
{
    return p->n_seqs > 0 && p->n_tokens == p->n_seqs && f->n_sampled == p->n_seqs && f->n_rows == p->n_seqs;
}

/* Sequences at the beginning of the plan that feed one token each. */
static int count_alone(const struct plan *p)
{
    int n = 0;
    while (n < p->n_seqs && p->seq[n].n_tokens == 1)
        n++;
    return n;
}

/* A size that was not recorded when the engine was opened, or has the clocks of a profile: its first step of each
 * flight goes without a graph, and its second one is recorded. */
static void run_shape(struct engine *g, int which, const struct plan *p, struct decode_graph *graph)
{
    const struct step_flight *f = &g->flight[which];
    if (graph != NULL && graph->graph[which] == NULL && graph->n_runs[which]++ > 0)
        graphs_record(g, graph, which);
    if (graph == NULL) {
        const struct step_shape shape = {p->n_tokens, count_alone(p), f->n_rows,    f->n_sampled,
                                         f->n_scored, p->n_late > 0,  p->shares > 0};
        step_execute(g, f, &shape, false);
        return;
    }
    if (graph->graph[which] == NULL) {
        struct step_shape shape = step_decode_shape(graph->n_tokens);
        shape.late = graph->late;
        step_execute(g, f, &shape, graph->persistent);
        return;
    }
    g->ops->async->launch_graph(g->q, graph->graph[which]);
    g->comm.n_all_reduces += graph->n_all_reduces;
}

int engine_flights(const struct engine *g)
{
    return g->n_flights;
}

void engine_align(struct engine *g, uint64_t step)
{
    if (g->n_steps == g->n_taken)
        g->shift = (step + ENGINE_FLIGHTS - g->n_steps % ENGINE_FLIGHTS) % ENGINE_FLIGHTS;
}

/* A profile's clocks end with the tokens: a step whose tokens come late runs without a graph then. So does one whose
 * sequences share their beginnings: it is long enough to hide its launches. */
static struct decode_graph *find_decode(const struct engine *g, const struct plan *p)
{
    if (p->shares > 0)
        return NULL;
    if (p->n_late > 0)
        return g->profiled ? NULL : graphs_find(g, p->n_seqs, DECODE_LATE);
    return graphs_find(g, p->n_seqs, g->profiled ? DECODE_PROFILED : DECODE_WHOLE);
}

/* The graph that runs a step of a few tokens, several of a sequence: drafts that are verified, or the end of a prompt.
 * A row of logits that nobody asked for costs nothing where one operation reads the head once. */
static struct decode_graph *find_small(const struct engine *g, const struct step_flight *f, const struct plan *p)
{
    struct decode_graph *graph = NULL;
    bool all = f->n_sampled == p->n_tokens, can = g->persistent.several && (all || p->n_masks == 0);
    if (p->n_tokens <= PERSISTENT_MAX_TOKENS && f->n_sampled > 0 && f->n_sampled == f->n_rows && p->n_late == 0 &&
        !g->profiled)
        graph = graphs_find(g, p->n_tokens, DECODE_WHOLE);
    return graph != NULL && (graph->persistent ? can : all) ? graph : NULL;
}

void engine_submit(struct engine *g, const struct plan *p)
{
    int which = (int)((g->n_steps + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    list_rows(f, p);
    bool decode = is_decode(f, p);
    struct decode_graph *graph = decode ? find_decode(g, p) : find_small(g, f, p);
    const struct observed_step observed = {
        .plan = p,
        .flight = which,
        .kind = decode            ? STEP_DECODE
                : p->n_tokens > 0 ? STEP_PREFILL
                                  : STEP_EMPTY,
        .graph = graph != NULL,
    };
    ops_range_begin(g->ops, decode ? "decode" : "prefill", p->n_tokens);
    prepare_flight(g, f, p, graph);
    observers_tell(&g->observers, submit, &observed);
    run_shape(g, which, p, graph);
    observers_tell(&g->observers, submitted);
    if (g->ops->async != NULL)
        g->ops->async->mark(g->q, which);
    ops_range_end(g->ops);
    g->n_steps++;
}

void engine_choose(struct engine *g, const struct plan *p)
{
    int which = (int)((g->n_steps - 1 + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    upload_masks(g, f, p, MASK_LATE);
    bool waited = g->ops->async != NULL && g->ops->async->passed(g->q, which);
    g->n_late++;
    g->n_waited += waited;
    observers_tell(&g->observers, chosen, waited);
    choose_tokens(g, f->n_sampled, f->n_scored);
    observers_tell(&g->observers, operations, false);
    download_results(g, f, f->n_sampled + f->n_scored);
    if (g->ops->async != NULL)
        g->ops->async->mark(g->q, which);
}

/* Sampled tokens come together, out of the rows of those that they follow. */
static void gather_sampled(struct step_flight *f)
{
    for (int row = 0, n = 0; n < f->n_sampled; row++)
        if (f->host.row_slot[row] >= 0)
            f->sampled[n++] = f->sampled[row];
}

void engine_take(struct engine *g, struct step_result *result)
{
    int which = (int)((g->n_taken + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    if (g->ops->async != NULL)
        g->ops->async->wait_mark(g->q, which);
    else
        g->ops->wait(g->q);
    observers_tell(&g->observers, finished, which);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
    if (f->spread)
        gather_sampled(f);
    *result = (struct step_result){.step = f->step,
                                   .n_sampled = f->n_sampled,
                                   .sampled = f->sampled,
                                   .n_rows = f->n_rows,
                                   .logits = f->spread ? NULL : g->logits,
                                   .n_scored = f->n_scored,
                                   .scored = f->sampled + f->n_sampled};
    g->n_taken++;
}

void engine_step(struct engine *g, const struct plan *p, struct step_result *result)
{
    engine_submit(g, p);
    engine_take(g, result);
}
