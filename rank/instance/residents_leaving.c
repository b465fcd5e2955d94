/* rank/instance/residents_leaving.c - frees a model's memory by a thread of each rank, and informs rank 0 when all are
 * done; see residents_parts.h. */
#include "kernels/pool.h"
#include "rank/instance/residents_parts.h"
#include "rank/world/fatal.h"

#include <stdlib.h>

#define TAG_GONE 20 /* first tag, plus the model's number: its memory is free; residents_loading.c has 19 */

static int64_t free_bytes(const struct residents *r)
{
    return (int64_t)r->ground->ops->free_memory(&r->ground->q);
}

/* The device's free bytes grow by this model's memory, since no other thread allocates or frees meanwhile. (A step's
 * graphs may, but they are small.) */
static void free_memory(struct leaving *g)
{
    struct residents *r = g->all;
    (void)pthread_mutex_lock(&r->memory);
    g->free_before = free_bytes(r);
    instance_close(g->instance);
    pool_ops_of(r->ground->ops)->trim(&r->ground->q);
    g->grown = free_bytes(r) - g->free_before;
    (void)pthread_mutex_unlock(&r->memory);
    free(g->instance);
    g->instance = NULL;
    g->freed = true;
}

static void *free_beside(void *context)
{
    struct leaving *g = context;
    free_memory(g);
    atomic_store(&g->done, true);
    return NULL;
}

static void finish_freeing(struct leaving *g)
{
    if (g->running)
        (void)pthread_join(g->thread, NULL);
    g->running = false;
    if (!g->freed)
        free_memory(g);
}

static void say_gone(struct leaving *g)
{
    const struct world *w = g->all->world;
    g->told = true;
    if (w->rank != 0)
        MPI_CHECK(MPI_Isend(NULL, 0, MPI_BYTE, 0, TAG_GONE + g->model, w->comm, &g->request[0]));
}

/* Waits until it is gone; on rank 0, on all ranks. */
void leaving_finish(struct residents *r, int model)
{
    struct leaving *g = &r->leaving[model];
    if (g->all == NULL)
        return;
    finish_freeing(g);
    if (r->world->rank != 0 && !g->told)
        say_gone(g);
    MPI_CHECK(MPI_Waitall(r->world->n_ranks, g->request, MPI_STATUSES_IGNORE));
    g->all = NULL;
}

static void poll_one(struct residents *r, struct leaving *g)
{
    int all = 1;
    if (g->all == NULL || g->told || !atomic_load(&g->done))
        return;
    finish_freeing(g);
    if (r->world->rank != 0) {
        say_gone(g);
        return;
    }
    MPI_CHECK(MPI_Testall(r->world->n_ranks, g->request, &all, MPI_STATUSES_IGNORE));
    if (!all)
        return;
    struct residents_news news = {
        .event = RESIDENTS_GONE, .model = g->model, .free_before = g->free_before, .freed = g->grown};
    news.phases.seconds[LOAD_PHASE_RECORD] = g->seconds;
    leaving_finish(r, g->model);
    residents_tell(r, news);
}

void leaving_poll(struct residents *r)
{
    for (int i = 0; i < PLAN_MODELS; i++)
        poll_one(r, &r->leaving[i]);
}

void leaving_start(struct residents *r, int model, struct instance *i)
{
    const struct world *w = r->world;
    struct leaving *g = &r->leaving[model];
    double seconds = i->engine.record_seconds - i->told_record;
    r->models.engine[model] = NULL;
    kv_arena_forget(&r->arena, model);
    residents_tell(r, (struct residents_news){.event = RESIDENTS_LEAVING, .model = model});
    *g = (struct leaving){.model = model, .instance = i, .all = r, .seconds = seconds, .request = g->request};
    for (int k = 0; k < w->n_ranks; k++)
        g->request[k] = MPI_REQUEST_NULL;
    for (int k = 1; w->rank == 0 && k < w->n_ranks; k++)
        MPI_CHECK(MPI_Irecv(NULL, 0, MPI_BYTE, k, TAG_GONE + model, w->comm, &g->request[k]));
    g->running = pthread_create(&g->thread, NULL, free_beside, g) == 0;
    if (!g->running)
        atomic_store(&g->done, true);
}
