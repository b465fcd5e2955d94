/* commands/models/changeover.c - see changeover.h. */
#include "commands/models/changeover.h"
#include "base/clock.h"
#include "commands/thread_cores.h"

#include <string.h>

void changeover_open(struct changeover *x, const struct run_options *run, const struct changeover_owner *owner)
{
    x->owner = *owner;
    x->service.run = *run;
    shelf_open(&x->shelf);
}

int changeover_start(struct changeover *x, const struct instance *ground, size_t kv_bytes, struct err *e)
{
    x->ops = ground->ops;
    x->n_ranks = ground->world.n_ranks;
    x->kv_bytes = kv_bytes;
    return units_open(&x->units, kv_arena_units(kv_bytes), e);
}

void changeover_close(struct changeover *x)
{
    for (int i = 0; i < CHANGEOVER_PLACES; i++)
        opened_model_close(x->loaded[i], &x->shelf);
    units_close(&x->units);
    shelf_close(&x->shelf);
}

/* ---- the next model is opened ---- */

static void *open_next(void *context)
{
    struct changeover *x = context;
    const struct model_place place = {.service = &x->service,
                                      .models_dir = x->folder->dir,
                                      .name = x->folder->name,
                                      .shelf = &x->shelf,
                                      .ops = x->ops,
                                      .n_ranks = x->n_ranks,
                                      .kv_bytes = x->kv_bytes};
    int64_t bytes = 0;
    x->opened = opened_model_open(&place, &bytes, &x->opening_failure);
    x->part[SWITCH_OPEN] = seconds_now() - x->asked;
    atomic_store(&x->opening_done, true);
    return NULL;
}

int changeover_ask(struct changeover *x, int place, const struct model_folder *folder, struct err *e)
{
    struct cores cores;
    memset(x->part, 0, sizeof x->part);
    x->asked = seconds_now();
    x->place = place;
    x->folder = folder;
    atomic_store(&x->opening_done, false);
    cores_widen(&cores);
    int failed = pthread_create(&x->opening, NULL, open_next, x);
    cores_restore(&cores);
    if (failed)
        return ERR(e, ERR_MEMORY, "cannot start a thread that opens a model");
    x->stage = CHANGEOVER_OPENING;
    return 0;
}

/* The thread has ended, or will. */
static int end_opening(struct changeover *x, struct err *e)
{
    (void)pthread_join(x->opening, NULL);
    *e = x->opening_failure;
    return x->opened != NULL ? 0 : -1;
}

/* ---- plans for the ranks, and their results ---- */

static int say_plan(struct changeover *x, struct plan *p, enum plan_kind kind)
{
    p->kind = kind;
    p->model = x->place;
    x->stage = CHANGEOVER_WAITS;
    x->plan_began = seconds_now();
    return 0;
}

int changeover_plan(struct changeover *x, struct plan *p, bool waits, bool hurry, struct err *e)
{
    if (x->failure.code != ERR_NONE) {
        *e = x->failure;
        return -1;
    }
    if (x->stage == CHANGEOVER_OPENING && atomic_load(&x->opening_done)) {
        if (end_opening(x, e) != 0)
            return -1;
        return say_plan(x, p, x->loaded[x->place] != NULL ? PLAN_DROP : PLAN_LOAD);
    }
    if (x->stage == CHANGEOVER_LOAD && !waits)
        return say_plan(x, p, PLAN_LOAD);
    if (x->stage == CHANGEOVER_COMMIT && !waits)
        return say_plan(x, p, hurry ? PLAN_HURRY : PLAN_COMMIT);
    return 1;
}

void changeover_fetch(void *context, int place, struct model_config *m, struct checkpoint *c,
                      struct instance_setup *setup)
{
    struct opened_model *from = ((struct changeover *)context)->opened;
    (void)place;
    *m = from->config;
    *c = from->checkpoint;
    *setup = from->setup;
    from->checkpoint = (struct checkpoint){0};
}

int changeover_join(struct changeover *x, int place, struct scheduler *s, struct blocks_source *source, struct err *e)
{
    struct unit_share share[KV_KINDS];
    opened_model_units(x->loaded[place], share);
    return units_join(&x->units, place, s->blocks, share, source, e);
}

void changeover_number(const struct changeover *x, int place, struct plan *p)
{
    units_number(&x->units, place, p);
}

static void arrive(struct changeover *x, const struct residents_news *news)
{
    struct limits limits = news->limits;
    const struct kv_share *kv = x->opened->share;
    for (int i = 0; i < N_LOAD_PHASES; i++)
        if (i != LOAD_PHASE_OPEN)
            x->part[SWITCH_OPEN + i] = news->phases.seconds[i];
    x->loaded[news->model] = x->opened;
    x->opened = NULL;
    limits.n_blocks = kv[KV_MAIN].most * kv[KV_MAIN].per_unit;
    limits.n_window_blocks = kv[KV_WINDOWED].most * kv[KV_WINDOWED].per_unit;
    x->stage = CHANGEOVER_RESTS;
    x->arrived = seconds_now();
    (void)x->owner.ready(x->owner.context, news->model, &limits, &x->failure);
}

void changeover_note_token(struct changeover *x, double now)
{
    x->part[SWITCH_TOKEN] = now - x->arrived;
    x->part[SWITCH_ALL] = now - x->asked;
}

static void leave(struct changeover *x, int place)
{
    x->part[SWITCH_UNLOAD] = seconds_now() - x->plan_began;
    if (x->owner.gone != NULL)
        x->owner.gone(x->owner.context, place);
    units_leave(&x->units, place);
    opened_model_close(x->loaded[place], &x->shelf);
    x->loaded[place] = NULL;
    x->stage = CHANGEOVER_LOAD;
}

void changeover_hear(void *context, const struct residents_news *news)
{
    struct changeover *x = context;
    switch (news->event) {
    case RESIDENTS_READ:
        x->stage = CHANGEOVER_COMMIT;
        return;
    case RESIDENTS_READY:
        arrive(x, news);
        return;
    case RESIDENTS_LEAVING:
        return;
    case RESIDENTS_GONE:
        leave(x, news->model);
        return;
    case RESIDENTS_FAILED:
        x->failure = news->why;
        return;
    }
}
