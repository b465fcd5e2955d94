/* coordinator/models/models.c - see models.h. */
#include "coordinator/models/models.h"
#include "coordinator/tasks/mailbox.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A table of one model, which is always ready; whether the server is ready is part of the server's own state. */
static int open_one(struct models *m, const struct served *one, struct err *e)
{
    const struct deploy_setup setup = {.n_models = 1, .n_slots = 1};
    struct placement *p = &m->placement;
    if (placement_open(p, &setup, 1, NULL, e) != 0)
        return -1;
    placement_want(p, 0, 0);
    (void)placement_next(p, 0);
    placement_sized(p, 0, 0, 0, 0);
    (void)placement_next(p, 0);
    placement_loaded(p, 0, 0, 0);
    placement_pin(p, 0, true);
    m->entry[0].name = one->model.name;
    m->entry[0].copy[0].served = one;
    return 0;
}

static int open_table(struct models *m, int n_sets, struct err *e)
{
    m->entry = err_calloc(e, (size_t)m->n, sizeof *m->entry, "table of models");
    for (int i = 0; m->entry != NULL && i < m->n; i++)
        m->entry[i].copy = err_calloc(e, (size_t)n_sets, sizeof *m->entry[i].copy, "table of models");
    return e->code == ERR_NONE ? 0 : -1;
}

/* The mailboxes of the sets' main threads. */
static int open_control(struct models *m, void *zmq_context, struct err *e)
{
    char name[40];
    m->control = err_calloc(e, (size_t)m->setup.n_sets, sizeof *m->control, "table of models");
    for (int k = 0; m->control != NULL && k < m->setup.n_sets; k++) {
        (void)snprintf(name, sizeof name, "models-%d", k);
        if (mailbox_open(zmq_context, name, m->control[k].end, e) != 0)
            return -1;
    }
    return e->code == ERR_NONE ? 0 : -1;
}

int models_open(struct models *m, void *zmq_context, const struct models_setup *setup, const struct served *one,
                const struct models_owner *owner, struct replicas *replicas, struct err *e)
{
    *m = (struct models){.setup = *setup, .owner = *owner, .replicas = replicas, .n = setup->n > 0 ? setup->n : 1};
    if (setup->n == 0)
        return open_table(m, 1, e) == 0 ? open_one(m, one, e) : -1;
    m->n_slots = setup->deploy.n_slots;
    if (open_table(m, setup->n_sets, e) != 0)
        return -1;
    for (int i = 0; i < m->n; i++)
        m->entry[i].name = setup->name[i];
    for (int i = 0; i < replicas->n; i++)
        replicas_clear(replicas, i);
    if (placement_open(&m->placement, &setup->deploy, setup->n_sets, setup->n_replicas, e) != 0)
        return -1;
    return open_control(m, zmq_context, e) == 0 ? opener_open(&m->opener, zmq_context, &setup->source, e) : -1;
}

void models_shut(struct models *m, struct model_copy *copy)
{
    if (copy->handle != NULL)
        m->setup.source.close(m->setup.source.context, copy->handle);
    copy->handle = NULL;
    copy->served = NULL;
}

static void close_control(struct models_control *c)
{
    for (void *w; c->end[0] != NULL && (w = mailbox_take(c->end[0])) != NULL;)
        free(w);
    for (int i = 0; i < 2; i++)
        mailbox_close(&c->end[i]);
}

void models_close(struct models *m)
{
    opener_close(&m->opener);
    for (int i = 0; m->entry != NULL && i < m->n; i++) {
        for (int k = 0; m->entry[i].copy != NULL && k < m->placement.n_sets; k++)
            models_shut(m, &m->entry[i].copy[k]);
        free(m->entry[i].copy);
        json_decref(m->entry[i].made_of);
    }
    for (int k = 0; m->control != NULL && k < m->setup.n_sets; k++)
        close_control(&m->control[k]);
    free(m->control);
    free(m->entry);
    placement_close(&m->placement);
    memset(m, 0, sizeof *m);
}

bool models_are_many(const struct models *m)
{
    return m->setup.n > 0;
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const struct model_entry *)entry)->name);
}

static int find_exactly(const struct models *m, const char *name)
{
    const struct model_entry *found = bsearch(name, m->entry, (size_t)m->n, sizeof *m->entry, compare_name);
    return found != NULL ? (int)(found - m->entry) : -1;
}

int models_find(const struct models *m, const char *name)
{
    static const char *const archive[] = {".tar.gz", ".tar"};
    char stem[256];
    size_t bytes = strlen(name);
    int found = find_exactly(m, name);
    for (size_t i = 0; found < 0 && i < sizeof archive / sizeof archive[0]; i++) {
        size_t tail = strlen(archive[i]);
        if (bytes <= tail || bytes - tail >= sizeof stem || strcmp(name + bytes - tail, archive[i]) != 0)
            continue;
        memcpy(stem, name, bytes - tail);
        stem[bytes - tail] = '\0';
        found = find_exactly(m, stem);
    }
    return found;
}

const struct served *models_served(const struct models *m, int i)
{
    const struct model_copy *copy = m->entry[i].copy;
    for (int k = 0; k < m->placement.n_sets; k++)
        if (copy[k].served != NULL)
            return copy[k].served;
    return NULL;
}

int models_set_of(const struct models *m, int replica)
{
    return models_are_many(m) ? replica / m->n_slots : 0;
}

/* A user in search of a replica. */
struct seeker {
    const struct models *models;
    int model, set;
    const struct served *served;
};

static bool may_take(const void *context, int replica)
{
    const struct seeker *s = context;
    const struct models *m = s->models;
    int set = models_set_of(m, replica);
    return set == s->set ||
           (deploy_admits(&m->placement.set[set], s->model) && m->entry[s->model].copy[set].served == s->served);
}

int models_choose(const struct models *m, int i, int set, const struct served *served, int spare)
{
    const struct seeker s = {m, i, set, served};
    return replicas_choose(m->replicas, i, spare, models_are_many(m) ? may_take : NULL, &s);
}
