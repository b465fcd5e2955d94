/* commands/models/fleet.c - see fleet.h. */
#include "commands/models/fleet.h"
#include "commands/models/opened_model.h"
#include "coordinator/drafts/draft_options.h"
#include "coordinator/tasks/mailbox.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(MODELS_MOST == PLAN_MODELS, "plans have a number for every model that may be loaded");

/* ---- the opener's thread ---- */

static int open_model(void *context, int model, struct opened *o, struct err *e)
{
    struct fleet *f = context;
    const struct model_place place = {.service = f->setup.service,
                                      .models_dir = f->setup.models->dir,
                                      .name = f->found.name[model],
                                      .archive = f->found.archive[model],
                                      .cache = &f->archives,
                                      .shelf = &f->shelf,
                                      .ops = f->ops,
                                      .n_ranks = f->n_ranks,
                                      .kv_bytes = (size_t)f->memory.kv};
    struct opened_model *m = opened_model_open(&place, &o->bytes, e);
    if (m == NULL)
        return -1;
    o->unpacking = m->unpacking;
    o->units = m->share.least;
    o->served = &m->lasting->texts.served;
    o->warmup = m->wishes.warmup;
    o->n_warmups = m->wishes.n_warmups;
    if (f->setup.identify != NULL && (o->made_of = f->setup.identify(&m->checkpoint, o->served, e)) == NULL) {
        opened_model_close(m, &f->shelf);
        return -1;
    }
    o->handle = m;
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
    if (w == NULL || !mailbox_post(f->setup.front.models->control[1], w)) {
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
    for (struct model_order *o; (o = mailbox_take(f->setup.front.models->control[1])) != NULL; free(o))
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
    (void)draft_rules(&guesses, &f->setup.service->run, &f->failure);
    const struct scheduler_setup setup = {.limits = news->limits,
                                          .guesses = guesses,
                                          .tokenizer = texts->tokenizer,
                                          .lexicon = &texts->lexicon,
                                          .prefix_caching = !f->setup.service->run.no_prefix_caching,
                                          .max_step = run_max_step(&f->setup.service->run),
                                          .rope_changes_at = texts->rope_changes_at};
    f->loading = false;
    if (lanes_start(&f->lanes, news->model, f->setup.front.replicas->replica[news->model].end[1], &setup, &share,
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
    const char *at = f->setup.pin;
    while (at != NULL && f->pinned != NULL) {
        size_t n = strcspn(at, ",");
        int i = discover_find(&f->found, at, n);
        if (i < 0)
            return ERR(e, ERR_USAGE, "--pin: found \"%.*s\", which is not a model in --models-dir %s", (int)n, at,
                       f->setup.models->dir);
        f->pinned[i] = true;
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    return e->code == ERR_NONE ? 0 : -1;
}

/* The front, by the models that there are. */
static int open_front(struct fleet *f, struct host_use *host, struct err *e)
{
    size_t kv = (size_t)f->memory.kv;
    const struct models_options *o = f->setup.models;
    const struct deploy_setup deploy = {.n_models = f->found.n,
                                        .n_slots = models_options_most(o),
                                        .memory = f->memory.all - f->memory.kv,
                                        .keep_alive = f->setup.keep_alive,
                                        .patience = f->setup.patience,
                                        .hold = f->setup.hold,
                                        .residence = f->setup.residence,
                                        .units = kv_arena_units(kv)};
    const struct models_setup models = {.n = f->found.n,
                                        .name = (const char *const *)f->found.name,
                                        .pinned = f->pinned,
                                        .deploy = deploy,
                                        .unit_bytes = (int64_t)kv_arena_unit_bytes(kv),
                                        .source = {f, open_model, close_model},
                                        .host = {host, host_use_look}};
    return f->setup.front.open(f->setup.front.context, &models, e);
}

int fleet_open(struct fleet *f, const struct fleet_setup *setup, const struct ops *ops, int n_ranks,
               const struct model_memory *memory, struct host_use *host, struct err *e)
{
    const struct models_options *o = setup->models;
    f->setup = *setup;
    f->ops = ops;
    f->n_ranks = n_ranks;
    f->memory = *memory;
    shelf_open(&f->shelf);
    if (o->cache != NULL && archive_cache_open(&f->archives, o->cache, o->cache_bytes, e) != 0)
        return -1;
    if (discover_models(o->dir, o->cache != NULL, &f->found, e) != 0 || find_pinned(f, e) != 0)
        return -1;
    host->disk = o->cache != NULL ? o->cache : o->dir;
    host->archives = o->cache != NULL ? &f->archives : NULL;
    if (open_front(f, host, e) != 0)
        return -1;
    if (lanes_open(&f->lanes, models_options_most(o), f->setup.front.models->control[1], e) != 0)
        return -1;
    return lanes_share(&f->lanes, kv_arena_units((size_t)memory->kv), e);
}

int fleet_start(struct fleet *f, struct err *e)
{
    if (f->setup.front.start != NULL && f->setup.front.start(f->setup.front.context, e) != 0)
        return -1;
    say(f, (struct model_word){.kind = MODEL_RUNNING});
    return 0;
}

int fleet_close(struct fleet *f, struct err *e)
{
    bool opened = f->setup.front.models != NULL && f->setup.front.models->control[1] != NULL;
    lanes_close(&f->lanes);
    if (opened)
        say(f, (struct model_word){.kind = MODEL_ENDED});
    atomic_store(&f->archives.cancel, true);
    int status = f->setup.front.close != NULL ? f->setup.front.close(f->setup.front.context, e) : 0;
    archive_cache_close(&f->archives);
    shelf_close(&f->shelf);
    free(f->pinned);
    discover_close(&f->found);
    memset(f, 0, sizeof *f);
    return status;
}
