/* rank/instance/residents.c - see residents.h. */
#include "rank/instance/residents.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/pool.h"
#include "rank/instance/residents_parts.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

/* struct loop_models: while a rank waits. */
static void poll(void *context)
{
    struct residents *r = context;
    unsigned long n_steps = 0;
    for (int i = 0; i < PLAN_MODELS; i++)
        n_steps += r->resident[i] != NULL ? (unsigned long)r->resident[i]->engine.n_steps : 0;
    atomic_store_explicit(&r->side.n_steps, n_steps, memory_order_relaxed);
    loading_poll(r);
    leaving_poll(r);
}

/* ---- execution of plans; collective ---- */

static void drop_instance(struct instance **i)
{
    if (*i != NULL) {
        const struct instance *ground = (*i)->ground;
        instance_close(*i);
        if (ground != NULL)
            pool_ops_of(ground->ops)->trim((struct queue *)&ground->q);
    }
    free(*i);
    *i = NULL;
}

/* Allocates the bookkeeping; receives rank 0's data. */
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
    leaving_finish(r, model); /* rank 0 has been informed */
    if (open_loading(r, model, &e) == 0) {
        l = r->loading;
        if (instance_begin(l->instance, r->ground, model, &r->arena, r->world, &l->config, &l->checkpoint, &l->setup,
                           &e) == 0)
            (void)loading_start(l, &e);
        l->phases.seconds[LOAD_PHASE_BEGIN] = seconds_now() - started;
    }
    if (e.code == ERR_NONE) /* equal on all ranks */
        return;
    if (l != NULL) {
        atomic_store(&l->cancel, true);
        loading_wait(l);
        drop_instance(&l->instance);
    }
    loading_close(r);
    residents_tell(r, (struct residents_news){.event = RESIDENTS_FAILED, .model = model, .why = e});
}

/* Records the duration of COMMIT. */
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

/* Keeps the measurements of a first load; there are none in a hurry. */
static int complete_loading(struct residents *r, struct loading *l, bool hurry, struct err *e)
{
    struct step_ways ways = step_ways_find(&r->book, l->setup.identity);
    bool measured = ways.measured;
    double started = seconds_now();
    bool measures = !measured && !hurry;
    if (!measured && hurry)
        ways = step_ways_guess();
    if (measures) /* freeing memory meanwhile would disturb the measurement */
        (void)pthread_mutex_lock(&r->memory);
    int failed = instance_complete(l->instance, &l->setup, &ways, e);
    if (measures)
        (void)pthread_mutex_unlock(&r->memory);
    if (failed != 0)
        return -1;
    if (measures)
        step_ways_keep(&r->book, l->setup.identity, &ways);
    l->phases = complete_phases(l, seconds_now() - started);
    return 0;
}

static void commit_model(struct residents *r, int model, bool hurry)
{
    struct err e = {0};
    struct loading *l = r->loading;
    struct instance *i = l->instance;
    loading_wait(l);
    if (complete_loading(r, l, hurry, &e) == 0) {
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
        loading_close(r);
        residents_tell(r, news);
        return;
    }
    drop_instance(&i);
    loading_close(r);
    residents_tell(r, (struct residents_news){.event = RESIDENTS_FAILED, .model = model, .why = e});
}

static void unload_model(struct residents *r, int model)
{
    leaving_start(r, model, r->resident[model]);
    r->resident[model] = NULL;
    if (r->files.dropped != NULL)
        r->files.dropped(r->files.context, model);
}

static void roll_back(struct residents *r, int model)
{
    struct instance *i = r->loading->instance;
    atomic_store(&r->loading->cancel, true);
    loading_close(r);
    leaving_start(r, model, i);
}

/* A plan that contradicts the held models is impossible: rank 0 or memory is faulty. */
static void check_order(const struct residents *r, const struct plan *p)
{
    struct err e = {0};
    bool loading = r->loading != NULL, mine = loading && r->loading->model == p->model;
    bool held = r->resident[p->model] != NULL;
    bool right = p->kind == PLAN_LOAD   ? !loading && !held && p->model < r->ground->n_places
                 : p->kind == PLAN_DROP ? held
                                        : mine && !held;
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
    check_order(r, p);
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
        loading_wait(l);
        if (r->world->rank != 0 && !l->told)
            loading_tell(l);
        loading_close(r);
        drop_instance(&i);
    }
    for (int i = 0; i < PLAN_MODELS; i++)
        leaving_finish(r, i);
    for (int i = 0; i < PLAN_MODELS; i++)
        drop_instance(&r->resident[i]);
    window_close(&r->side.window, r->ground->ops, &r->q);
    if (r->q.impl != NULL) /* it took their memory */
        r->ground->ops->close(&r->q);
    kv_arena_close(&r->arena, r->ground->ops, &r->ground->q);
    free(r->leaving);
    free((void *)r->gone);
    (void)pthread_mutex_destroy(&r->memory);
}
