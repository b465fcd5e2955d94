/* rank/instance/residents_loading.c - reads a model by a thread of each rank, and informs rank 0 when all are done; see
 * residents_parts.h. */
#include "base/clock.h"
#include "kernels/pool.h"
#include "rank/instance/residents_parts.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <stdlib.h>

#define TAG 19 /* tag: a rank has read the model; rank/load/loader.c has 18 */

/* ---- the thread that loads ---- */

/* Allocates memory, loads weights, and does everything else that needs no other rank. */
static void load_all(struct loading *l, struct queue *q)
{
    struct instance *i = l->instance;
    double started = seconds_now(), *memory = &l->phases.seconds[LOAD_PHASE_MEMORY];
    (void)pthread_mutex_lock(&l->all->memory);
    (void)instance_take_weights(i, &l->config, &l->checkpoint, q, &l->why);
    (void)pthread_mutex_unlock(&l->all->memory);
    if (l->why.code != ERR_NONE)
        return;
    i->ops->wait(q);
    *memory = seconds_now() - started;
    if (load_beside(&i->network, &l->checkpoint, l->all->world, i->ops, q, &l->all->side, &l->setup.load, &l->cancel,
                    &l->stats, &l->why) != 0)
        return;
    started = seconds_now();
    (void)pthread_mutex_lock(&l->all->memory);
    (void)instance_prepare(i, &l->setup, q, &l->why);
    (void)pthread_mutex_unlock(&l->all->memory);
    *memory += seconds_now() - started;
}

static void open_queue(struct loading *l, struct queue *q)
{
    const struct instance *i = l->instance;
    if (i->ops->open(q, l->all->world->device, i->q.act, i->q.n_threads, &l->why) != 0)
        i->ops->close(q);
    else
        pool_ops_of(i->ops)->open(q);
}

static void *read_model(void *context)
{
    struct loading *l = context;
    struct instance *i = l->instance;
    struct queue *q = &l->all->q;
    /* On CPUs one thread copies, so that steps keep their cores. A device has a separate queue for loading, which is
     * kept, since opening and closing one stalls all others. */
    if (i->ops->async == NULL)
        *q = (struct queue){.n_threads = 1};
    else if (q->impl == NULL)
        open_queue(l, q);
    q->act = i->q.act;
    q->err = (struct err){0};
    if (l->why.code == ERR_NONE)
        load_all(l, q);
    atomic_store(&l->done, true);
    return NULL;
}

void loading_wait(struct loading *l)
{
    if (l->running)
        (void)pthread_join(l->thread, NULL);
    l->running = false;
}

/* ---- each rank's message to rank 0 ---- */

/* Rank 0 posts a receive for each other rank. */
static int listen(struct loading *l, const struct world *w, struct err *e)
{
    int n = w->rank == 0 ? w->n_ranks - 1 : 1;
    l->request = err_calloc(e, (size_t)n + 1, sizeof *l->request, "loading");
    l->said = err_calloc(e, (size_t)n + 1, sizeof *l->said, "loading");
    return e->code == ERR_NONE ? 0 : -1;
}

static void expect_words(struct loading *l, const struct world *w)
{
    if (w->rank != 0)
        return;
    for (; l->n_requests < w->n_ranks - 1; l->n_requests++)
        MPI_CHECK(MPI_Irecv(&l->said[1 + l->n_requests], sizeof *l->said, MPI_BYTE, 1 + l->n_requests, TAG, w->comm,
                            &l->request[l->n_requests]));
}

void loading_tell(struct loading *l)
{
    const struct world *w = l->all->world;
    l->told = true;
    if (w->rank == 0)
        return;
    l->said[0] = agree_named(w->job_rank, w->n_job_ranks, w->host, &l->why);
    l->n_requests = 1;
    MPI_CHECK(MPI_Isend(&l->said[0], sizeof *l->said, MPI_BYTE, 0, TAG, w->comm, &l->request[0]));
}

/* Rank 0: have all ranks reported? */
static bool heard_all(struct loading *l)
{
    int all = 1;
    if (l->n_requests > 0)
        MPI_CHECK(MPI_Testall(l->n_requests, l->request, &all, MPI_STATUSES_IGNORE));
    return all != 0;
}

/* The lowest rank's failure, named. */
static struct err first_failure(struct loading *l, const struct world *w)
{
    l->said[0] = agree_named(w->job_rank, w->n_job_ranks, w->host, &l->why);
    for (int i = 0; i < w->n_ranks; i++)
        if (l->said[i].code != ERR_NONE)
            return l->said[i];
    return (struct err){0};
}

void loading_poll(struct residents *r)
{
    struct loading *l = r->loading;
    if (l == NULL || l->told || !atomic_load(&l->done))
        return;
    if (r->world->rank != 0) {
        loading_tell(l);
        return;
    }
    if (!heard_all(l))
        return;
    l->told = true;
    const struct err why = first_failure(l, r->world);
    residents_tell(r, (struct residents_news){.event = why.code == ERR_NONE ? RESIDENTS_READ : RESIDENTS_FAILED,
                                              .model = l->model,
                                              .held = true,
                                              .why = why});
}

int loading_start(struct loading *l, struct err *e)
{
    const struct world *w = l->all->world;
    (void)listen(l, w, e);
    if (e->code == ERR_NONE && pthread_create(&l->thread, NULL, read_model, l) != 0)
        ERR(e, ERR_MEMORY, "cannot start a thread that reads a model");
    else
        l->running = e->code == ERR_NONE;
    if (agree(w, e) >= 0)
        return -1;
    expect_words(l, w);
    return 0;
}

void loading_close(struct residents *r)
{
    struct loading *l = r->loading;
    if (l == NULL)
        return;
    loading_wait(l);
    if (l->n_requests > 0)
        MPI_CHECK(MPI_Waitall(l->n_requests, l->request, MPI_STATUSES_IGNORE));
    checkpoint_close(&l->checkpoint);
    free(l->request);
    free(l->said);
    free(l);
    r->loading = NULL;
}
