/* commands/models/fleet.c - see fleet.h. */
#include "commands/models/fleet.h"
#include "commands/models/opened_model.h"
#include "coordinator/drafts/draft_options.h"
#include "coordinator/tasks/mailbox.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE 5.0 /* s that the first in line waits before busy models yield */
#define HOLD     5.0 /* s that a failure is the answer */
#define STAY     2.0 /* times as long as its load took that a model stays before it makes way for another one */

_Static_assert(SERVE_MAX_MODELS == PLAN_MODELS, "plans have a number for every model that may be loaded");

/* ---- the opener's thread ---- */

static int open_model(void *context, int model, struct opened *o, struct err *e)
{
    struct fleet *f = context;
    const struct model_place place = {.o = f->o,
                                      .name = f->found.name[model],
                                      .archive = f->found.archive[model],
                                      .cache = &f->archives,
                                      .shelf = &f->shelf,
                                      .ops = f->ops,
                                      .n_ranks = f->n_ranks,
                                      .kv_bytes = f->kv_bytes};
    struct opened_model *m = opened_model_open(&place, &o->bytes, e);
    if (m == NULL)
        return -1;
    o->unpacking = m->unpacking;
    o->units = m->share.least;
    o->handle = m;
    o->served = &m->lasting->texts.served;
    return 0;
}

static void close_model(void *context, void *handle)
{
    struct fleet *f = context;
    opened_model_close(handle, &f->shelf);
}

/* ---- words to the I/O thread ---- */

static void say(struct fleet *f, struct model_word what)
{
    struct model_word *w = malloc(sizeof *w);
    if (w != NULL)
        *w = what;
    if (w == NULL || !mailbox_post(f->server.models.control[1], w)) {
        free(w);
        ERR(&f->failure, ERR_MEMORY, "out of host memory: word of a model");
    }
}

static void wish(struct fleet *f, enum plan_kind kind, int slot)
{
    f->change[f->n_changes++] = (struct fleet_change){kind, slot};
}

/* ---- orders of the I/O thread ---- */

static void take_orders(struct fleet *f)
{
    for (struct model_order *o; (o = mailbox_take(f->server.models.control[1])) != NULL; free(o))
        if (o->kind == MODEL_STOP) {
            f->stopping = true;
            atomic_store(&f->archives.cancel, true);
        } else if (o->kind == MODEL_LOAD) {
            f->slot[o->slot] = (struct fleet_slot){.model = o->handle};
            f->loading = true;
            wish(f, PLAN_LOAD, o->slot);
        } else {
            wish(f, PLAN_DROP, o->slot);
        }
}

int fleet_next(void *context, struct plan *plan, struct err *e)
{
    struct fleet *f = context;
    take_orders(f);
    if (f->failure.code != ERR_NONE) {
        *e = f->failure;
        return -1;
    }
    if (f->stopping)
        return lanes_stop(&f->lanes, plan, e);
    if (f->n_changes == 0)
        return lanes_next(&f->lanes, plan, f->loading, e);
    plan->kind = f->change[0].kind;
    plan->model = f->change[0].slot;
    memmove(f->change, f->change + 1, (size_t)--f->n_changes * sizeof *f->change);
    return 0;
}

void fleet_masks(void *context, struct plan *plan)
{
    lanes_masks(&((struct fleet *)context)->lanes, plan);
}

int fleet_accept(void *context, const struct step_result *result, struct err *e)
{
    return lanes_accept(&((struct fleet *)context)->lanes, result, e);
}

void fleet_signal(void *context, enum signal_wish wish_of)
{
    say(context, (struct model_word){.kind = MODEL_SIGNAL, .wish = wish_of});
}

void fleet_ranks(void *context, const struct rank_report *report)
{
    struct steps *first = lanes_first(&((struct fleet *)context)->lanes);
    if (first != NULL)
        steps_ranks(first, report);
}

/* ---- the ranks ---- */

void fleet_fetch(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup)
{
    struct opened_model *from = ((struct fleet *)context)->slot[model].model;
    *m = from->config;
    *c = from->checkpoint;
    *setup = from->setup;
    from->checkpoint = (struct checkpoint){0};
}

static void begin(struct fleet *f, const struct residents_news *news)
{
    const struct kv_share *kv = &f->slot[news->model].model->share;
    const struct unit_share share = {kv->per_unit, kv->least, kv->most};
    struct texts *texts = &f->slot[news->model].model->lasting->texts;
    struct guess_rules guesses;
    (void)draft_rules(&guesses, &f->o->service.run, &f->failure);
    const struct scheduler_setup setup = {.limits = news->limits,
                                          .guesses = guesses,
                                          .tokenizer = texts->tokenizer,
                                          .lexicon = &texts->lexicon,
                                          .prefix_caching = !f->o->service.run.no_prefix_caching,
                                          .rope_changes_at = texts->rope_changes_at};
    f->loading = false;
    if (lanes_start(&f->lanes, news->model, f->server.replicas.replica[news->model].end[1], &setup, &share,
                    &f->failure) == 0)
        say(f, (struct model_word){.kind = MODEL_READY, .slot = news->model, .phases = news->phases});
}

static void give_up(struct fleet *f, int slot, const struct err *why)
{
    f->slot[slot] = (struct fleet_slot){0};
    f->loading = false;
    say(f, (struct model_word){.kind = MODEL_FAILED, .slot = slot, .why = *why});
}

static void let_go(struct fleet *f, const struct residents_news *news)
{
    const struct fleet_slot slot = f->slot[news->model];
    if (slot.failed) {
        give_up(f, news->model, &slot.why);
        return;
    }
    lanes_end(&f->lanes, news->model);
    f->slot[news->model] = (struct fleet_slot){0};
    say(f, (struct model_word){.kind = MODEL_GONE, .slot = news->model, .freed = news->freed, .phases = news->phases});
}

void fleet_hear(void *context, const struct residents_news *news)
{
    struct fleet *f = context;
    switch (news->event) {
    case RESIDENTS_READ:
        wish(f, PLAN_COMMIT, news->model);
        return;
    case RESIDENTS_READY:
        begin(f, news);
        return;
    case RESIDENTS_GONE:
        let_go(f, news);
        return;
    case RESIDENTS_FAILED:
        if (!news->held) {
            give_up(f, news->model, &news->why);
            return;
        }
        f->slot[news->model].why = news->why;
        f->slot[news->model].failed = true;
        wish(f, PLAN_ROLLBACK, news->model);
        return;
    }
}

/* ---- opening and closing ---- */

/* --pin NAME,NAME */
static int find_pinned(struct fleet *f, struct err *e)
{
    f->pinned = err_calloc(e, (size_t)f->found.n, sizeof *f->pinned, "pinned models");
    const char *at = f->o->pin;
    while (at != NULL && f->pinned != NULL) {
        size_t n = strcspn(at, ",");
        int i = discover_find(&f->found, at, n);
        if (i < 0)
            return ERR(e, ERR_USAGE, "--pin: found \"%.*s\", which is no model of --models-dir %s", (int)n, at,
                       f->o->models_dir);
        f->pinned[i] = true;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return e->code == ERR_NONE ? 0 : -1;
}

int fleet_open(struct fleet *f, const struct serve_options *o, const struct ops *ops, int n_ranks,
               const struct model_memory *memory, struct host_use *host, struct err *e)
{
    int n_units = kv_arena_units(memory->kv);
    f->o = o;
    f->ops = ops;
    f->n_ranks = n_ranks;
    f->kv_bytes = (size_t)memory->kv;
    shelf_open(&f->shelf);
    if (o->models_cache != NULL && archive_cache_open(&f->archives, o->models_cache, o->models_cache_bytes, e) != 0)
        return -1;
    if (discover_models(o->models_dir, o->models_cache != NULL, &f->found, e) != 0 || find_pinned(f, e) != 0)
        return -1;
    host->disk = o->models_cache != NULL ? o->models_cache : o->models_dir;
    host->archives = o->models_cache != NULL ? &f->archives : NULL;
    const struct deploy_setup deploy = {.n_models = f->found.n,
                                        .n_slots = (int)o->max_models,
                                        .memory = memory->all - memory->kv,
                                        .units = n_units,
                                        .keep_alive = o->keep_alive,
                                        .patience = PATIENCE,
                                        .hold = HOLD,
                                        .residence = STAY};
    const struct server_setup setup = {.o = o,
                                       .name = o->models_dir,
                                       .models = {.n = f->found.n,
                                                  .name = (const char *const *)f->found.name,
                                                  .pinned = f->pinned,
                                                  .deploy = deploy,
                                                  .unit_bytes = (int64_t)kv_arena_unit_bytes(f->kv_bytes),
                                                  .source = {f, open_model, close_model},
                                                  .host = {host, host_use_look}},
                                       .n_ranks = n_ranks,
                                       .n_replicas = 1,
                                       .end_seconds = service_end_seconds(&o->service)};
    if (server_open(&f->server, &setup, e) != 0)
        return -1;
    if (lanes_open(&f->lanes, (int)o->max_models, f->server.models.control[1], e) != 0)
        return -1;
    return lanes_share(&f->lanes, n_units, e);
}

void fleet_start(struct fleet *f)
{
    say(f, (struct model_word){.kind = MODEL_RUNNING});
}

int fleet_close(struct fleet *f)
{
    bool opened = f->server.models.control[1] != NULL;
    lanes_close(&f->lanes);
    if (opened)
        say(f, (struct model_word){.kind = MODEL_ENDED});
    atomic_store(&f->archives.cancel, true);
    int status = server_close(&f->server);
    archive_cache_close(&f->archives);
    shelf_close(&f->shelf);
    free(f->pinned);
    discover_close(&f->found);
    memset(f, 0, sizeof *f);
    return status;
}
