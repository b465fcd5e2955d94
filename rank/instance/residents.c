/* rank/instance/residents.c - see residents.h. */
#include "rank/instance/residents.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TAG      19 /* of a rank's word that it has read; rank/load/loader.c has 18 */
#define TAG_GONE 20 /* and more, by the model's number: that its memory is free */
#define MIB      (1024.0 * 1024.0)

/* One model on its way in. */
struct loading {
    int model;
    struct instance *instance;
    struct instance_setup setup;
    struct model_config config;
    struct checkpoint checkpoint;
    struct residents *all;
    pthread_t thread;
    bool running;
    atomic_bool cancel, done; /* done: the thread has nothing more to do */
    struct load_stats stats;
    struct load_phases phases;
    struct err why; /* the thread's, until it is done */
    bool told;      /* this rank has told, or (rank 0) has heard all and told its owner */
    MPI_Request *request;
    struct err *said; /* rank 0: [n_ranks] by each; others: [1] */
    int n_requests;
};

/* One model on its way out. */
struct leaving {
    int model;
    struct instance *instance;
    struct residents *all;
    pthread_t thread;
    bool running, told;   /* told: this rank has told */
    atomic_bool done;     /* the thread has nothing more to do */
    bool freed;           /* it has freed the memory */
    double seconds;       /* of what was recorded since it was reported last */
    int64_t grown;        /* bytes that are free again */
    MPI_Request *request; /* [ranks] of words to rank 0 */
};

static void tell(struct residents *r, struct residents_news news)
{
    if (r->world->rank == 0)
        r->owner.hear(r->owner.context, &news);
}

/* ---- the thread that loads ---- */

/* Memory, weights, and all else that needs no other rank. */
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
    if (load_beside(&i->network, &l->checkpoint, l->all->world, i->ops, q, &l->setup.load, &l->cancel, &l->stats,
                    &l->why) != 0)
        return;
    started = seconds_now();
    (void)pthread_mutex_lock(&l->all->memory);
    (void)instance_prepare(i, &l->setup, q, &l->why);
    (void)pthread_mutex_unlock(&l->all->memory);
    *memory += seconds_now() - started;
}

static void *read_model(void *context)
{
    struct loading *l = context;
    struct instance *i = l->instance;
    struct queue *q = &l->all->q;
    /* One thread copies on hosts, so that steps keep their cores; a device is reached by a queue of its own, which is
     * kept: opening and closing one stops all others. */
    if (i->ops->async == NULL)
        *q = (struct queue){.n_threads = 1};
    else if (q->impl == NULL && i->ops->open(q, l->all->world->device, i->q.act, i->q.n_threads, &l->why) != 0)
        i->ops->close(q);
    q->act = i->q.act;
    q->err = (struct err){0};
    if (l->why.code == ERR_NONE)
        load_all(l, q);
    atomic_store(&l->done, true);
    return NULL;
}

static void wait_for_thread(struct loading *l)
{
    if (l->running)
        (void)pthread_join(l->thread, NULL);
    l->running = false;
}

/* ---- each rank's word to rank 0 ---- */

/* Rank 0 waits for as many words as there are other ranks. */
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

static void send_word(struct loading *l, const struct world *w)
{
    l->told = true;
    if (w->rank == 0)
        return;
    l->said[0] = agree_named(w->job_rank, w->n_job_ranks, w->host, &l->why);
    l->n_requests = 1;
    MPI_CHECK(MPI_Isend(&l->said[0], sizeof *l->said, MPI_BYTE, 0, TAG, w->comm, &l->request[0]));
}

/* Rank 0: has everybody told? */
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

static void poll_loading(struct residents *r)
{
    struct loading *l = r->loading;
    if (l == NULL || l->told || !atomic_load(&l->done))
        return;
    if (r->world->rank != 0) {
        send_word(l, r->world);
        return;
    }
    if (!heard_all(l))
        return;
    l->told = true;
    const struct err why = first_failure(l, r->world);
    tell(r, (struct residents_news){.event = why.code == ERR_NONE ? RESIDENTS_READ : RESIDENTS_FAILED,
                                    .model = l->model,
                                    .held = true,
                                    .why = why});
}

/* ---- a model's memory is given back ---- */

static int64_t free_bytes(const struct residents *r)
{
    return (int64_t)r->ground->ops->free_memory(&r->ground->q);
}

/* The device's number of free bytes is this model's while nobody else takes memory or gives it back. */
static void free_memory(struct leaving *g)
{
    struct residents *r = g->all;
    (void)pthread_mutex_lock(&r->memory);
    int64_t before = free_bytes(r);
    instance_close(g->instance);
    g->grown = free_bytes(r) - before;
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
static void finish_leaving(struct residents *r, int model)
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

static void poll_leaving(struct residents *r, struct leaving *g)
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
    struct residents_news news = {.event = RESIDENTS_GONE, .model = g->model, .freed = g->grown};
    news.phases.seconds[LOAD_PHASE_RECORD] = g->seconds;
    finish_leaving(r, g->model);
    tell(r, news);
}

/* struct loop_models: while a rank waits. */
static void poll(void *context)
{
    struct residents *r = context;
    poll_loading(r);
    for (int i = 0; i < PLAN_MODELS; i++)
        poll_leaving(r, &r->leaving[i]);
}

/* ---- what plans say; collective ---- */

static void close_loading(struct residents *r)
{
    struct loading *l = r->loading;
    if (l == NULL)
        return;
    wait_for_thread(l);
    if (l->n_requests > 0)
        MPI_CHECK(MPI_Waitall(l->n_requests, l->request, MPI_STATUSES_IGNORE));
    checkpoint_close(&l->checkpoint);
    free(l->request);
    free(l->said);
    free(l);
    r->loading = NULL;
}

static void drop_instance(struct instance **i)
{
    if (*i != NULL)
        instance_close(*i);
    free(*i);
    *i = NULL;
}

static int start_reading(struct residents *r, struct loading *l, struct err *e)
{
    (void)listen(l, r->world, e);
    if (e->code == ERR_NONE && pthread_create(&l->thread, NULL, read_model, l) != 0)
        ERR(e, ERR_MEMORY, "cannot start a thread that reads a model");
    else
        l->running = e->code == ERR_NONE;
    if (agree(r->world, e) >= 0)
        return -1;
    expect_words(l, r->world);
    return 0;
}

/* Memory for the bookkeeping; what rank 0's owner knows. */
static int open_loading(struct residents *r, int model, struct err *e)
{
    struct loading *l = err_calloc(e, 1, sizeof *l, "loading");
    struct instance *i = err_calloc(e, 1, sizeof *i, "instance");
    if (l != NULL) {
        l->model = model;
        l->all = r;
        l->instance = i;
        if (r->world->rank == 0)
            r->owner.fetch(r->owner.context, model, &l->config, &l->checkpoint, &l->setup);
    }
    r->loading = l;
    if (agree(r->world, e) < 0)
        return 0;
    free(i);
    return -1;
}

static void load_model(struct residents *r, int model)
{
    struct err e = {0};
    struct loading *l = NULL;
    double started = seconds_now();
    finish_leaving(r, model); /* rank 0 has heard of it */
    if (open_loading(r, model, &e) == 0) {
        l = r->loading;
        if (instance_begin(l->instance, r->ground, &r->arena, r->world, &l->config, &l->checkpoint, &l->setup, &e) == 0)
            (void)start_reading(r, l, &e);
        l->phases.seconds[LOAD_PHASE_BEGIN] = seconds_now() - started;
    }
    if (e.code == ERR_NONE) /* equal on all ranks */
        return;
    if (l != NULL) {
        atomic_store(&l->cancel, true);
        wait_for_thread(l);
        drop_instance(&l->instance);
    }
    close_loading(r);
    tell(r, (struct residents_news){.event = RESIDENTS_FAILED, .model = model, .why = e});
}

/* COMMIT took this long. */
static struct load_phases complete_phases(const struct loading *l, double seconds)
{
    const struct engine *g = &l->instance->engine;
    const double *part = l->stats.part;
    struct load_phases p = l->phases;
    p.seconds[LOAD_PHASE_READ] = part[LOAD_WINDOW] + part[LOAD_READING];
    p.seconds[LOAD_PHASE_UPLOAD] = part[LOAD_DEVICE] + part[LOAD_PLACING];
    p.seconds[LOAD_PHASE_COMMIT] = seconds - g->choose_seconds - g->record_seconds;
    p.seconds[LOAD_PHASE_CHOOSE] = g->choose_seconds;
    p.seconds[LOAD_PHASE_RECORD] = g->record_seconds;
    return p;
}

/* If the model is loaded for the first time, its measures are kept; in a hurry there are none. */
static int complete(struct residents *r, struct loading *l, bool hurry, struct err *e)
{
    struct step_ways ways = step_ways_find(&r->book, l->setup.identity);
    bool measured = ways.measured;
    double started = seconds_now();
    if (!measured && hurry)
        ways = step_ways_guess();
    if (instance_complete(l->instance, &l->setup, &ways, e) != 0)
        return -1;
    if (!measured && !hurry)
        step_ways_keep(&r->book, l->setup.identity, &ways);
    l->phases = complete_phases(l, seconds_now() - started);
    return 0;
}

static void commit_model(struct residents *r, int model, bool hurry)
{
    struct err e = {0};
    struct loading *l = r->loading;
    struct instance *i = l->instance;
    wait_for_thread(l);
    if (complete(r, l, hurry, &e) == 0) {
        struct residents_news news = {
            .event = RESIDENTS_READY, .model = model, .limits = i->engine.limits, .phases = l->phases};
        i->engine.observers = r->ground->engine.observers;
        i->told_record = i->engine.record_seconds;
        r->resident[model] = i;
        r->models.engine[model] = &i->engine;
        log_info("model %d: %.1f MiB of weights on rank 0, read in %.3f s beside steps", model,
                 (double)weight_map_bytes(&i->network.map) / MIB, l->stats.seconds);
        if (r->files.loaded != NULL)
            r->files.loaded(r->files.context, model, &l->checkpoint);
        close_loading(r);
        tell(r, news);
        return;
    }
    drop_instance(&i);
    close_loading(r);
    tell(r, (struct residents_news){.event = RESIDENTS_FAILED, .model = model, .why = e});
}

/* From here on no step of it comes; its memory is given back beside the steps of others. */
static void drop_model(struct residents *r, int model, struct instance *i)
{
    const struct world *w = r->world;
    struct leaving *g = &r->leaving[model];
    double seconds = i->engine.record_seconds - i->told_record;
    r->models.engine[model] = NULL;
    instance_leave(i);
    kv_arena_forget(&r->arena, model);
    tell(r, (struct residents_news){.event = RESIDENTS_LEAVING, .model = model});
    *g = (struct leaving){.model = model, .instance = i, .all = r, .seconds = seconds, .request = g->request};
    for (int k = 0; k < w->n_ranks; k++)
        g->request[k] = MPI_REQUEST_NULL;
    for (int k = 1; w->rank == 0 && k < w->n_ranks; k++)
        MPI_CHECK(MPI_Irecv(NULL, 0, MPI_BYTE, k, TAG_GONE + model, w->comm, &g->request[k]));
    g->running = pthread_create(&g->thread, NULL, free_beside, g) == 0;
    if (!g->running)
        atomic_store(&g->done, true);
}

static void unload_model(struct residents *r, int model)
{
    drop_model(r, model, r->resident[model]);
    r->resident[model] = NULL;
    if (r->files.dropped != NULL)
        r->files.dropped(r->files.context, model);
}

static void roll_back(struct residents *r, int model)
{
    struct instance *i = r->loading->instance;
    atomic_store(&r->loading->cancel, true);
    close_loading(r);
    drop_model(r, model, i);
}

/* A plan that contradicts what is held cannot be: rank 0 is wrong, or memory is. */
static void check(const struct residents *r, const struct plan *p)
{
    struct err e = {0};
    bool loading = r->loading != NULL, mine = loading && r->loading->model == p->model;
    bool held = r->resident[p->model] != NULL;
    bool right = p->kind == PLAN_LOAD ? !loading && !held : p->kind == PLAN_DROP ? held : mine && !held;
    if (right)
        return;
    ERR(&e, ERR_INTERNAL, "plan %llu of kind %d is about model %d, which is %s", (unsigned long long)p->step, p->kind,
        p->model,
        held   ? "loaded"
        : mine ? "being loaded"
               : "not loaded");
    fatal(&e);
}

/* struct loop_models. */
static void change(void *context, const struct plan *p)
{
    struct residents *r = context;
    check(r, p);
    if (p->kind == PLAN_LOAD)
        load_model(r, p->model);
    else if (p->kind == PLAN_COMMIT || p->kind == PLAN_HURRY)
        commit_model(r, p->model, p->kind == PLAN_HURRY);
    else if (p->kind == PLAN_ROLLBACK)
        roll_back(r, p->model);
    else
        unload_model(r, p->model);
}

int residents_open(struct residents *r, struct world *w, struct instance *ground, size_t kv_bytes,
                   const struct residents_owner *owner, struct err *e)
{
    *r = (struct residents){.world = w,
                            .ground = ground,
                            .owner = *owner,
                            .models = {.ground = &ground->engine, .change = change, .poll = poll, .context = r}};
    (void)pthread_mutex_init(&r->memory, NULL);
    r->leaving = err_calloc(e, PLAN_MODELS, sizeof *r->leaving, "models");
    r->gone = err_calloc(e, PLAN_MODELS * (size_t)w->n_ranks, sizeof *r->gone, "models");
    for (int i = 0; e->code == ERR_NONE && i < PLAN_MODELS; i++)
        r->leaving[i].request = r->gone + (size_t)i * (size_t)w->n_ranks;
    return e->code == ERR_NONE ? kv_arena_open(&r->arena, kv_bytes, ground->ops, &ground->q, e) : -1;
}

void residents_close(struct residents *r)
{
    struct loading *l = r->loading;
    if (l != NULL) {
        struct instance *i = l->instance;
        atomic_store(&l->cancel, true);
        wait_for_thread(l);
        if (r->world->rank != 0 && !l->told)
            send_word(l, r->world);
        close_loading(r);
        drop_instance(&i);
    }
    for (int i = 0; i < PLAN_MODELS; i++)
        finish_leaving(r, i);
    if (r->q.impl != NULL)
        r->ground->ops->close(&r->q);
    for (int i = 0; i < PLAN_MODELS; i++)
        drop_instance(&r->resident[i]);
    kv_arena_close(&r->arena, r->ground->ops, &r->ground->q);
    free(r->leaving);
    free((void *)r->gone);
    (void)pthread_mutex_destroy(&r->memory);
}
