/* commands/models/fleet.c - see fleet.h. */
#include "commands/models/fleet.h"
#include "coordinator/drafts/draft_options.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the opener's thread ---- */

static int open_model(void *context, int model, struct opened *o, struct err *e)
{
    struct fleet *f = context;
    const struct model_place place = {.service = f->setup.service,
                                      .models_dir = f->setup.models->dir,
                                      .name = f->found.name[model],
                                      .archive = f->found.archive[model],
                                      .below = f->found.below[model],
                                      .cache = &f->archives,
                                      .shelf = &f->shelf,
                                      .ops = f->ops,
                                      .n_ranks = f->n_ranks,
                                      .kv_bytes = (size_t)f->memory.kv};
    struct opened_model *m = opened_model_open(&place, &o->bytes, e);
    if (m == NULL)
        return -1;
    o->dir = m->dir;
    o->unpacking = m->unpacking;
    o->units = m->share[KV_MAIN].least + m->share[KV_WINDOWED].least;
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

/* NAME=N of --replicas. */
static int read_replicas(struct fleet *f, const char *text, int bytes, struct err *e)
{
    const char *equals = memchr(text, '=', (size_t)bytes);
    int i = equals != NULL ? discover_find(&f->found, text, (size_t)(equals - text)) : -1;
    char *end = NULL;
    long n = equals != NULL ? strtol(equals + 1, &end, 10) : 0;
    if (equals == NULL || end != text + bytes || !isdigit((unsigned char)equals[1]))
        return ERR(e, ERR_USAGE, "--replicas: found \"%.*s\", expected NAME=N", bytes, text);
    if (i < 0)
        return ERR(e, ERR_USAGE, "--replicas: found \"%.*s\", which is not a model in --models-dir %s",
                   (int)(equals - text), text, f->setup.models->dir);
    if (n < 1 || n > f->n_sets)
        return ERR(e, ERR_USAGE, "--replicas %.*s: expected 1 to %d, the number of sets of %d rank%s", bytes, text,
                   f->n_sets, f->n_ranks, f->n_ranks == 1 ? "" : "s");
    if (f->n_replicas[i] > 0)
        return ERR(e, ERR_USAGE, "--replicas: %.*s is given twice", (int)(equals - text), text);
    f->n_replicas[i] = (int)n;
    return 0;
}

static int find_replicas(struct fleet *f, struct err *e)
{
    f->n_replicas = err_calloc(e, (size_t)f->found.n, sizeof *f->n_replicas, "replicas of models");
    if (f->n_replicas == NULL)
        return -1;
    for (const char *at = f->setup.models->replicas; at != NULL && e->code == ERR_NONE;) {
        size_t n = strcspn(at, ",");
        (void)read_replicas(f, at, (int)n, e);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    for (int i = 0; i < f->found.n; i++)
        f->n_replicas[i] += f->n_replicas[i] == 0;
    return e->code == ERR_NONE ? 0 : -1;
}

/* Opens the front for the models that were found. */
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
                                        .n_replicas = f->n_replicas,
                                        .n_sets = f->n_sets,
                                        .deploy = deploy,
                                        .unit_bytes = (int64_t)kv_arena_unit_bytes(kv),
                                        .source = {f, open_model, close_model},
                                        .host = {host, host_use_look}};
    return f->setup.front.open(f->setup.front.context, &models, e);
}

static int check_hub(void *context, struct err *e)
{
    return hub_check(&((struct fleet *)context)->hub, e);
}

static void stop_unpacking(void *context)
{
    atomic_store(&((struct fleet *)context)->archives.cancel, true);
}

static int open_crew(struct fleet *f, struct err *e)
{
    struct crew_setup setup = {.n_slots = models_options_most(f->setup.models),
                               .n_units = kv_arena_units((size_t)f->memory.kv),
                               .control = f->setup.front.models->control[0].end[1],
                               .prefix_caching = !f->setup.service->run.no_prefix_caching,
                               .max_step = run_max_step(&f->setup.service->run),
                               .check = check_hub,
                               .check_context = f,
                               .stopping = stop_unpacking,
                               .stopping_context = f};
    if (draft_rules(&setup.guesses, &f->setup.service->run, e) != 0)
        return -1;
    for (int i = 0; i < setup.n_slots; i++)
        setup.mailbox[i] = f->setup.front.replicas->replica[i].end[1];
    return crew_open(&f->crew, &setup, e);
}

int fleet_open(struct fleet *f, const struct fleet_setup *setup, const struct ops *ops, const struct world *set,
               const struct model_memory *memory, struct host_use *host, struct err *e)
{
    const struct models_options *o = setup->models;
    f->setup = *setup;
    f->ops = ops;
    f->n_sets = set->n_replicas;
    f->n_ranks = set->n_ranks;
    f->memory = *memory;
    shelf_open(&f->shelf);
    if (o->cache != NULL && archive_cache_open(&f->archives, o->cache, o->cache_bytes, e) != 0)
        return -1;
    if (discover_models(o->dir, o->cache != NULL, &f->found, e) != 0 || find_pinned(f, e) != 0 ||
        find_replicas(f, e) != 0)
        return -1;
    host->disk = o->cache != NULL ? o->cache : o->dir;
    host->archives = o->cache != NULL ? &f->archives : NULL;
    return open_front(f, host, e) == 0 ? open_crew(f, e) : -1;
}

int fleet_link(struct fleet *f, struct link_card *card, bool local, double timeout, struct err *e)
{
    void **control = err_calloc(e, (size_t)f->n_sets, sizeof *control, "sets of ranks");
    *card = (struct link_card){.n_replicas = f->n_sets,
                               .replica_size = f->n_ranks,
                               .n_slots = f->crew.setup.n_slots,
                               .guesses = f->crew.setup.guesses,
                               .prefix_caching = f->crew.setup.prefix_caching,
                               .max_step = f->crew.setup.max_step,
                               .timeout = timeout};
    for (int k = 0; control != NULL && k < f->n_sets; k++)
        control[k] = f->setup.front.models->control[k].end[1];
    int status = control != NULL ? hub_open(&f->hub, f->setup.front.replicas, control, card, local, e) : -1;
    free(control);
    return status;
}

int fleet_start(struct fleet *f, struct err *e)
{
    if (f->setup.front.start != NULL && f->setup.front.start(f->setup.front.context, e) != 0)
        return -1;
    crew_say(&f->crew, (struct model_word){.kind = MODEL_RUNNING});
    return 0;
}

/* The other sets' last words come before rank 0's, with which the front ends. */
int fleet_close(struct fleet *f, struct err *e)
{
    crew_close(&f->crew);
    (void)hub_close(&f->hub, e);
    if (f->crew.setup.control != NULL)
        crew_say(&f->crew, (struct model_word){.kind = MODEL_ENDED});
    atomic_store(&f->archives.cancel, true);
    int status = f->setup.front.close != NULL ? f->setup.front.close(f->setup.front.context, e) : 0;
    archive_cache_close(&f->archives);
    shelf_close(&f->shelf);
    free(f->pinned);
    free(f->n_replicas);
    discover_close(&f->found);
    memset(f, 0, sizeof *f);
    return status;
}
