/* rank/model/taps.c - see taps.h. */
#include "rank/model/taps.h"

#include <string.h>

static int n_columns(const struct taps *t)
{
    return range_length(t->head->shard.states);
}

size_t taps_block_bytes(const struct model_config *head, const struct shard *s, enum dtype act)
{
    return head->drafting.n_taps > 0 ? KV_BLOCK_TOKENS * (size_t)range_length(s->states) * dtype_bytes(act) : 0;
}

static size_t tapped_bytes(const struct model_config *head, int n_tokens, enum dtype act)
{
    return head->drafting.predicts
               ? 0
               : (size_t)n_tokens * (size_t)head->drafting.n_taps * (size_t)head->drafting.tapped * dtype_bytes(act);
}

size_t taps_bytes(const struct model_config *head, const struct shard *s, int n_seqs, int n_tokens, enum dtype act)
{
    size_t row = (size_t)range_length(s->states) * dtype_bytes(act);
    if (head->drafting.n_taps == 0)
        return 0;
    return tapped_bytes(head, n_tokens, act) + (size_t)(n_tokens + n_seqs) * row + (size_t)n_tokens * sizeof(int32_t);
}

int taps_open(struct taps *t, const struct network *model, const struct network *head, int n_blocks, int n_seqs,
              int n_tokens, const struct ops *ops, struct queue *q, struct err *e)
{
    size_t row = (size_t)range_length(head->shard.states) * dtype_bytes(q->act);
    *t = (struct taps){.ops = state_ops_of(ops), .model = model, .head = head, .n_places = n_blocks * KV_BLOCK_TOKENS};
    if (model_is_eagle(&head->config))
        t->tapped = ops->alloc(q, tapped_bytes(&head->config, n_tokens, q->act));
    t->place = ops->alloc(q, (size_t)n_tokens * sizeof *t->place);
    if (row > 0) {
        t->states = ops->alloc(q, ((size_t)t->n_places + (size_t)n_seqs) * row);
        t->narrow = ops->alloc(q, (size_t)n_tokens * row);
    }
    if (q->err.code != ERR_NONE)
        return ERR(e, q->err.code, "states of %d tokens for a head that drafts: %s", t->n_places, q->err.text);
    return 0;
}

void taps_close(struct taps *t, const struct ops *ops, struct queue *q)
{
    if (t->head == NULL)
        return;
    ops->free(q, t->states);
    ops->free(q, t->tapped);
    ops->free(q, t->narrow);
    ops->free(q, t->place);
    memset(t, 0, sizeof *t);
}

void taps_note(const struct layer_run *r, int layer, const void *pending)
{
    const struct taps *t = r->network->taps;
    if (t == NULL || t->model != r->network)
        return;
    const struct model_drafting *d = &t->head->config.drafting;
    if (d->predicts)
        return;
    for (int i = 0; i < d->n_taps; i++)
        if (d->tap[i] == layer) {
            comm_end_sums(r->comm, r->q);
            t->ops->copy_columns(r->q, t->tapped, d->n_taps * d->tapped, i * d->tapped, r->act->x, d->tapped, 0,
                                 pending, r->batch->n_tokens, d->tapped);
        }
}

void taps_keep(const struct layer_run *r)
{
    const struct taps *t = r->network->taps;
    int n = r->batch->n_tokens;
    if (t == NULL || t->model != r->network)
        return;
    t->ops->find_places(r->q, t->place, NULL, r->batch, t->n_places);
    if (t->head->config.drafting.predicts)
        t->ops->copy_columns(r->q, t->narrow, n_columns(t), 0, r->act->x, r->network->config.hidden,
                             t->head->shard.states.begin, NULL, n, n_columns(t));
    else
        r->ops->matmul(r->q, t->narrow, t->tapped, t->head->once[WEIGHT_TAPS], NULL, n, false);
    t->ops->scatter_rows(r->q, t->states, t->narrow, t->place, n, n_columns(t));
}

/* act->x = every rank's columns, of which t->narrow has this one's. */
static void complete(const struct layer_run *r)
{
    const struct taps *t = r->network->taps;
    int n = r->batch->n_tokens, hidden = r->network->config.hidden, cols = n_columns(t);
    r->ops->clear(r->q, r->act->x, (size_t)n * (size_t)hidden * dtype_bytes(r->q->act));
    t->ops->copy_columns(r->q, r->act->x, hidden, t->head->shard.states.begin, t->narrow, cols, 0, NULL, n, cols);
    comm_all_reduce(r->comm, r->q, r->act->x, (size_t)n * (size_t)hidden);
}

void taps_join(const struct layer_run *r, const struct weight *w)
{
    bool alone = r->comm->n_ranks == 1;
    r->ops->matmul(r->q, alone ? r->act->x : r->network->taps->narrow, r->act->joined, w, NULL, r->batch->n_tokens,
                   false);
    if (!alone)
        complete(r);
}

void taps_fetch(const struct layer_run *r, const int32_t *planned)
{
    const struct taps *t = r->network->taps;
    int n = r->batch->n_tokens;
    struct batch of_model = *r->batch;
    of_model.block_table = t->block_table;
    of_model.blocks_per_slot = t->blocks_per_slot;
    t->ops->find_places(r->q, t->place, planned, &of_model, t->n_places);
    bool alone = r->comm->n_ranks == 1;
    r->ops->gather_rows(r->q, alone ? r->act->x : t->narrow, t->states, t->place, n, n_columns(t));
    if (!alone)
        complete(r);
}

void taps_hold(const struct layer_run *r, const void *rows, const int32_t *slot, int n)
{
    const struct taps *t = r->network->taps;
    int cols = n_columns(t);
    if (cols == 0)
        return;
    char *held = (char *)t->states + (size_t)t->n_places * (size_t)cols * dtype_bytes(r->q->act);
    t->ops->copy_columns(r->q, t->narrow, cols, 0, rows, r->network->config.hidden, t->head->shard.states.begin, NULL,
                         n, cols);
    t->ops->scatter_rows(r->q, held, t->narrow, slot, n, cols);
}
