/* rank/step/host_pool.c - see host_pool.h. */
#include "rank/step/host_pool.h"

#include <string.h>

void host_pool_open(struct host_pool *p)
{
    *p = (struct host_pool){0};
    (void)pthread_mutex_init(&p->lock, NULL);
}

void host_pool_close(struct host_pool *p, const struct ops *ops, struct queue *q)
{
    for (int i = 0; i < PLAN_MODELS; i++)
        if (p->piece[i].memory != NULL)
            ops->async->host_free(q, p->piece[i].memory);
    (void)pthread_mutex_destroy(&p->lock);
}

/* The piece to use, or to replace if it is too small or empty; NULL: all are in use. */
static struct host_piece *choose_piece(struct host_pool *p, size_t bytes)
{
    struct host_piece *best = NULL;
    for (int i = 0; i < PLAN_MODELS; i++) {
        struct host_piece *x = &p->piece[i];
        bool fits = x->bytes >= bytes, had = best != NULL && best->bytes >= bytes;
        if (x->used)
            continue;
        if (best == NULL || (fits && (!had || x->bytes < best->bytes)) || (!had && x->bytes > best->bytes))
            best = x;
    }
    return best;
}

static void replace(struct host_piece *x, size_t bytes, const struct ops *ops, struct queue *q)
{
    if (x->memory != NULL)
        ops->async->host_free(q, x->memory);
    x->memory = ops->async->host_alloc(q, bytes);
    x->bytes = x->memory != NULL ? bytes : 0;
}

void *host_pool_take(struct host_pool *p, size_t bytes, const struct ops *ops, struct queue *q)
{
    void *memory = NULL;
    (void)pthread_mutex_lock(&p->lock);
    struct host_piece *x = choose_piece(p, bytes);
    if (x == NULL)
        ERR(&q->err, ERR_INTERNAL, "more than %d models take host memory", PLAN_MODELS);
    else if (x->bytes < bytes)
        replace(x, bytes, ops, q);
    else
        memset(x->memory, 0, bytes);
    if (x != NULL && x->memory != NULL) {
        x->used = true;
        memory = x->memory;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return memory;
}

void host_pool_give(struct host_pool *p, const void *memory)
{
    (void)pthread_mutex_lock(&p->lock);
    for (int i = 0; i < PLAN_MODELS; i++)
        if (p->piece[i].memory == memory)
            p->piece[i].used = false;
    (void)pthread_mutex_unlock(&p->lock);
}
