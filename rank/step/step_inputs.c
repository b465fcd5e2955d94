/* rank/step/step_inputs.c - see step_inputs.h. */
#include "rank/step/step_inputs.h"

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

/* Neighbouring entries of the table are copied together: a new sequence's blocks are in order. */
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

/* Copied from the flight's memory, not the plan's, since a copy from unpinned memory waits for the previous step. */
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

/* Late masks overtake the step whose tokens they constrain, which is in flight and reads its rows' masks at the end. */
static void upload_mask_rows(struct engine *g, int row, const uint32_t *mask, int n, enum plan_mask which)
{
    size_t words = (size_t)g->limits.mask_words, bytes = (size_t)n * words * sizeof *mask;
    uint32_t *dst = g->sampler.mask + (size_t)row * words;
    if (which == MASK_LATE && g->ops->async != NULL)
        g->ops->async->upload_aside(g->q, dst, mask, bytes);
    else
        upload(g, dst, mask, bytes);
}

/* Masks of neighbouring rows are copied together. */
void step_upload_masks(struct engine *g, struct step_flight *f, const struct plan *p, enum plan_mask which)
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

/* Enters rows [begin, end) of a sequence whose first token is the plan's token `first`. */
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

void step_list_rows(struct step_flight *f, const struct plan *p)
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

/* Enters tokens [begin, end) that belong to no sequence, with one row of logits each. */
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

/* All arrays in one copy. */
void step_upload_ints(struct engine *g, const struct step_flight *f, int n)
{
    size_t pitch = g->ints_pitch * sizeof *f->ints;
    g->ops->upload(g->q, g->ints_dev, pitch, f->ints, pitch, (size_t)n * sizeof *f->ints, STEP_ARRAYS);
}

void step_fill_empty(struct engine *g, int n)
{
    for (int i = 0; i < ENGINE_FLIGHTS; i++) {
        fill_empty(&g->flight[i].host, 0, n);
        for (int t = 0; t < n; t++)
            g->flight[i].host.planned[t] = (int)((long long)g->network->config.vocab * t / n);
    }
}

/* Recorded steps have a row of logits per token; rows of tokens that are not sampled are unused. */
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

void step_prepare_flight(struct engine *g, struct step_flight *f, const struct plan *p,
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
    step_upload_masks(g, f, p, MASK_HERE);
}
