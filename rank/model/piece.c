/* rank/model/piece.c - see piece.h. */
#include "rank/model/piece.h"

/* Row `first` of an array of the activation type; NULL of NULL. */
static void *row_at(const struct layer_run *r, void *array, int first, int columns)
{
    return array != NULL ? (char *)array + (size_t)first * (size_t)columns * dtype_bytes(r->q->act) : NULL;
}

void piece_take(struct piece *p, const struct layer_run *r, int layer, int index)
{
    const struct weight *const *w = r->network->layer[layer];
    const struct weight *out = w[WEIGHT_OUT];
    const bool latent = r->network->config.latent.rank > 0;
    int n = r->batch->n_tokens, hidden = r->network->config.hidden;
    int begin = comm_piece_begin(r->comm, n, r->n_pieces, index);
    p->index = index;
    p->batch = *r->batch;
    p->batch.n_tokens = comm_piece_begin(r->comm, n, r->n_pieces, index + 1) - begin;
    p->act = *r->act;
    p->act.x = row_at(r, r->act->x, begin, hidden);
    p->act.normed = row_at(r, r->act->normed, begin, hidden);
    p->act.partial = row_at(r, r->act->partial, begin, hidden);
    p->act.joined = row_at(r, r->act->joined, begin, 2 * hidden);
    p->act.qkv = row_at(r, r->act->qkv, begin, latent ? 0 : w[WEIGHT_QKV]->rows);
    p->attended =
        row_at(r, latent ? r->act->heads : r->act->attended, begin, out->order != NULL ? out->n_inputs : out->cols);
    p->run = *r;
    p->run.act = &p->act;
    p->run.batch = &p->batch;
}

void piece_begin_sum(const struct piece *p, void *sum)
{
    const struct layer_run *r = &p->run;
    size_t size = (size_t)p->batch.n_tokens * (size_t)r->network->config.hidden;
    comm_begin_sum(r->comm, r->q, p->index, r->n_pieces, sum, size);
}
