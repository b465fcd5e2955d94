/* commands/models/crew.c - see crew.h. */
#include "commands/models/crew.h"
#include "coordinator/models/models_options.h"
#include "coordinator/tasks/mailbox.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(MODELS_MOST == PLAN_MODELS, "plans have a number for every model that may be loaded");

void crew_say(struct crew *c, struct model_word what)
{
    struct model_word *w = malloc(sizeof *w);
    if (w != NULL)
        *w = what;
    if (w == NULL || !mailbox_post(c->setup.control, w)) {
        free(w);
        ERR(&c->failure, ERR_MEMORY, "out of host memory: word of a model");
    }
}

static void wish(struct crew *c, enum plan_kind kind, int slot)
{
    c->change[c->n_changes++] = (struct crew_change){kind, slot};
}

/* ---- orders of the I/O thread ---- */

static void give_up(struct crew *c, int slot, const struct err *why);

static void begin_load(struct crew *c, int slot, struct opened_model *m)
{
    c->slot[slot] = (struct crew_slot){.model = m};
    wish(c, PLAN_LOAD, slot);
}

static void take_load(struct crew *c, const struct model_order *o)
{
    struct err e = {0};
    c->loading = true;
    if (o->handle != NULL) {
        begin_load(c, o->slot, o->handle);
    } else if (!c->setup.source.ask(c->setup.source.context, o)) {
        ERR(&e, ERR_MEMORY, "out of host memory");
        give_up(c, o->slot, &e);
    }
}

static void take_order(struct crew *c, const struct model_order *o)
{
    switch (o->kind) {
    case MODEL_STOP:
        c->stopping = true;
        if (c->setup.stopping != NULL)
            c->setup.stopping(c->setup.stopping_context);
        return;
    case MODEL_LOAD:
        take_load(c, o);
        return;
    case MODEL_DROP:
        wish(c, PLAN_DROP, o->slot);
        return;
    }
}

/* The models that have been opened for it. */
static void take_opened(struct crew *c)
{
    struct opening *one;
    while (c->setup.source.ask != NULL && (one = c->setup.source.take(c->setup.source.context)) != NULL) {
        if (one->why.code == ERR_NONE)
            begin_load(c, one->model, one->opened.handle);
        else
            give_up(c, one->model, &one->why);
        free(one);
    }
}

static int hear(struct crew *c, struct err *e)
{
    for (struct model_order *o; (o = mailbox_take(c->setup.control)) != NULL; free(o))
        take_order(c, o);
    take_opened(c);
    if (c->failure.code == ERR_NONE)
        return c->setup.check(c->setup.check_context, e);
    *e = c->failure;
    return -1;
}

int crew_next(void *context, struct plan *plan, struct err *e)
{
    struct crew *c = context;
    if (hear(c, e) != 0)
        return -1;
    if (c->stopping)
        return lanes_stop(&c->lanes, plan, e);
    if (c->n_changes == 0)
        return lanes_next(&c->lanes, plan, c->loading || c->n_leaving > 0, e);
    plan->kind = c->change[0].kind == PLAN_COMMIT && lanes_busy(&c->lanes) ? PLAN_HURRY : c->change[0].kind;
    plan->model = c->change[0].slot;
    memmove(c->change, c->change + 1, (size_t)--c->n_changes * sizeof *c->change);
    return 0;
}

void crew_masks(void *context, struct plan *plan)
{
    lanes_masks(&((struct crew *)context)->lanes, plan);
}

int crew_accept(void *context, const struct step_result *result, struct err *e)
{
    return lanes_accept(&((struct crew *)context)->lanes, result, e);
}

void crew_signal(void *context, enum signal_wish wish_of)
{
    crew_say(context, (struct model_word){.kind = MODEL_SIGNAL, .wish = wish_of});
}

void crew_ranks(void *context, const struct rank_report *report)
{
    struct steps *first = lanes_first(&((struct crew *)context)->lanes);
    if (first != NULL)
        steps_ranks(first, report);
}

/* ---- the ranks ---- */

void crew_fetch(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup)
{
    struct opened_model *from = ((struct crew *)context)->slot[model].model;
    *m = from->config;
    *c = from->checkpoint;
    *setup = from->setup;
    from->checkpoint = (struct checkpoint){0};
}

static void begin_model(struct crew *c, const struct residents_news *news)
{
    struct unit_share share[KV_KINDS];
    struct texts *texts = &c->slot[news->model].model->lasting->texts;
    const struct scheduler_setup setup = {.limits = news->limits,
                                          .guesses = c->setup.guesses,
                                          .tokenizer = texts->tokenizer,
                                          .lexicon = &texts->lexicon,
                                          .prefix_caching = c->setup.prefix_caching,
                                          .max_step = c->setup.max_step,
                                          .rope_changes_at = texts->rope_changes_at};
    opened_model_units(c->slot[news->model].model, share);
    c->loading = false;
    if (lanes_start(&c->lanes, news->model, c->setup.mailbox[news->model], &setup, share, &c->failure) == 0)
        crew_say(c, (struct model_word){.kind = MODEL_READY, .slot = news->model, .phases = news->phases});
}

static void forget(struct crew *c, int slot)
{
    if (c->setup.source.ask != NULL && c->slot[slot].model != NULL)
        c->setup.source.close(c->setup.source.context, c->slot[slot].model);
    c->slot[slot] = (struct crew_slot){0};
}

static void give_up(struct crew *c, int slot, const struct err *why)
{
    const struct err said = *why; /* it may be the slot's */
    forget(c, slot);
    c->loading = false;
    crew_say(c, (struct model_word){.kind = MODEL_FAILED, .slot = slot, .why = said});
}

static void let_go(struct crew *c, const struct residents_news *news)
{
    const struct crew_slot slot = c->slot[news->model];
    if (slot.failed) {
        give_up(c, news->model, &slot.why);
        return;
    }
    forget(c, news->model);
    crew_say(c, (struct model_word){.kind = MODEL_GONE,
                                    .slot = news->model,
                                    .free_before = news->free_before,
                                    .freed = news->freed,
                                    .phases = news->phases});
}

void crew_hear(void *context, const struct residents_news *news)
{
    struct crew *c = context;
    switch (news->event) {
    case RESIDENTS_READ:
        wish(c, PLAN_COMMIT, news->model);
        return;
    case RESIDENTS_READY:
        begin_model(c, news);
        return;
    case RESIDENTS_LEAVING:
        lanes_end(&c->lanes, news->model);
        c->n_leaving++;
        return;
    case RESIDENTS_GONE:
        c->n_leaving--;
        let_go(c, news);
        return;
    case RESIDENTS_FAILED:
        if (!news->held) {
            give_up(c, news->model, &news->why);
            return;
        }
        c->slot[news->model].why = news->why;
        c->slot[news->model].failed = true;
        wish(c, PLAN_ROLLBACK, news->model);
        return;
    }
}

/* ---- opening and closing ---- */

int crew_open(struct crew *c, const struct crew_setup *setup, struct err *e)
{
    c->setup = *setup;
    if (lanes_open(&c->lanes, setup->n_slots, setup->control, e) != 0)
        return -1;
    return lanes_share(&c->lanes, setup->n_units, e);
}

void crew_close(struct crew *c)
{
    lanes_close(&c->lanes);
    for (int i = 0; i < PLAN_MODELS; i++)
        forget(c, i);
}
