/* coordinator/batch/held.c - see held.h. */
#include "coordinator/batch/held.h"

#include <stdlib.h>
#include <string.h>

int held_open(struct held *h, int n_models, struct err *e)
{
    *h = (struct held){.n_models = n_models};
    h->queue = err_calloc(e, (size_t)n_models, sizeof *h->queue, "lines that wait for models");
    return h->queue != NULL ? 0 : -1;
}

void held_close(struct held *h)
{
    for (int i = 0; h->queue != NULL && i < h->n_models; i++)
        for (struct line *l; (l = held_take(h, i)) != NULL;)
            line_close(l);
    free(h->queue);
    memset(h, 0, sizeof *h);
}

/* The line, its task, and the text. */
static size_t bytes_of(const struct line *l)
{
    return sizeof *l + sizeof *l->task + l->bytes;
}

void held_put(struct held *h, struct line *l)
{
    struct held_queue *q = &h->queue[l->model];
    l->next = NULL;
    if (q->last != NULL)
        q->last->next = l;
    else
        q->first = l;
    q->last = l;
    h->n++;
    h->bytes += bytes_of(l);
}

struct line *held_take(struct held *h, int model)
{
    struct held_queue *q = &h->queue[model];
    struct line *l = q->first;
    if (l == NULL)
        return NULL;
    q->first = l->next;
    q->last = q->first != NULL ? q->last : NULL;
    l->next = NULL;
    h->n--;
    h->bytes -= bytes_of(l);
    q->n_out++;
    l->out = true;
    return l;
}

void held_forget(struct held *h, struct line *l)
{
    if (l->out)
        h->queue[l->model].n_out--;
    l->out = false;
}
