/* coordinator/server/models.c - see models.h. */
#include "coordinator/server/models.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/server/rendezvous.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/mailbox.h"

#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

/* A table of one, which is ready from the beginning: whether the server is, is the server's own state. */
static int open_one(struct models *m, const struct served *one, struct err *e)
{
    const struct deploy_setup setup = {.n_models = 1, .n_slots = 1};
    if (deploy_open(&m->deploy, &setup, e) != 0)
        return -1;
    deploy_want(&m->deploy, 0, 0);
    (void)deploy_next(&m->deploy, 0);
    deploy_sized(&m->deploy, 0, 0, 0);
    (void)deploy_next(&m->deploy, 0);
    deploy_loaded(&m->deploy, 0, 0);
    deploy_pin(&m->deploy, 0, true);
    m->entry[0] = (struct model_entry){.name = one->model.name, .served = one};
    return 0;
}

int models_open(struct models *m, void *zmq_context, const struct models_setup *setup, const struct served *one,
                struct err *e)
{
    *m = (struct models){.setup = *setup, .n = setup->n > 0 ? setup->n : 1};
    m->entry = err_calloc(e, (size_t)m->n, sizeof *m->entry, "table of models");
    if (m->entry == NULL)
        return -1;
    if (setup->n == 0)
        return open_one(m, one, e);
    for (int i = 0; i < m->n; i++)
        m->entry[i].name = setup->name[i];
    if (deploy_open(&m->deploy, &setup->deploy, e) != 0)
        return -1;
    if (mailbox_open(zmq_context, "models", m->control, e) != 0)
        return -1;
    return opener_open(&m->opener, zmq_context, &setup->source, e);
}

static void shut(struct models *m, struct model_entry *entry)
{
    if (entry->handle != NULL)
        m->setup.source.close(m->setup.source.context, entry->handle);
    entry->handle = NULL;
    entry->served = NULL;
}

void models_close(struct models *m)
{
    opener_close(&m->opener);
    for (int i = 0; m->entry != NULL && i < m->n; i++)
        shut(m, &m->entry[i]);
    for (void *w; m->control[0] != NULL && (w = mailbox_take(m->control[0])) != NULL;)
        free(w);
    for (int i = 0; i < 2; i++)
        mailbox_close(&m->control[i]);
    free(m->entry);
    deploy_close(&m->deploy);
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

/* ---- what the table decides ---- */

static void order(struct models *m, struct model_order what)
{
    struct model_order *o = malloc(sizeof *o);
    if (o != NULL)
        *o = what;
    if (o == NULL || !mailbox_post(m->control[0], o)) {
        log_warn("out of host memory: an order to load or unload a model is lost");
        free(o);
    }
}

/* A failure of model i is the answer to all who wait for it, and to others for a while. */
static void fail_model(struct server *s, int i, enum protocol_code code, const char *text)
{
    struct model_entry *entry = &s->models.entry[i];
    entry->why = (struct protocol_error){0};
    (void)protocol_fail(&entry->why, code, "model", "\"%.80s\": %s", entry->name, text);
    entry->counts.failures++;
    log_warn("model %s is not loaded: %s", entry->name, text);
    shut(&s->models, entry);
    server_refuse_model(s, i, &entry->why);
}

static void refuse_size(struct server *s, int i)
{
    char text[300];
    const struct deploy *d = &s->models.deploy;
    const struct deployment *m = &d->model[i];
    int64_t unit = s->models.setup.unit_bytes;
    if (m->units > deploy_room_units(d, i)) {
        (void)snprintf(text, sizeof text,
                       "needed on a rank for keys and values: %lld bytes (%.2f GiB); %lld (%.2f GiB) is all that it may "
                       "have of %lld beside pinned models (--kv-cache-memory-bytes)",
                       (long long)(m->units * unit), (double)m->units * (double)unit / GIB,
                       (long long)(deploy_room_units(d, i) * unit), deploy_room_units(d, i) * (double)unit / GIB,
                       (long long)(d->setup.units * unit));
        fail_model(s, i, PROTOCOL_NO_ROOM, text);
        return;
    }
    (void)snprintf(text, sizeof text,
                   "needed on a rank, without keys and values: %lld bytes (%.2f GiB); %lld (%.2f GiB) is all that it may "
                   "have of %lld beside pinned models (--model-memory), or all --max-models %d are pinned",
                   (long long)m->bytes, (double)m->bytes / GIB, (long long)deploy_room(d, i),
                   (double)deploy_room(d, i) / GIB, (long long)d->setup.memory, d->setup.n_slots);
    fail_model(s, i, PROTOCOL_NO_ROOM, text);
}

static void carry_out(struct server *s, struct deploy_decision it)
{
    struct models *m = &s->models;
    struct model_entry *entry = &m->entry[it.model];
    const struct deployment *d = &m->deploy.model[it.model];
    switch (it.act) {
    case DEPLOY_OPEN:
        entry->since = seconds_now();
        if (!opener_ask(&m->opener, it.model)) {
            deploy_failed(&m->deploy, it.model, seconds_now());
            fail_model(s, it.model, PROTOCOL_INTERNAL, "out of host memory");
        }
        return;
    case DEPLOY_ABANDON:
        shut(m, entry);
        return;
    case DEPLOY_REFUSED:
        refuse_size(s, it.model);
        return;
    case DEPLOY_LOAD:
        replicas_place(&s->replicas, d->slot, it.model);
        order(m, (struct model_order){MODEL_LOAD, d->slot, entry->handle});
        return;
    case DEPLOY_UNLOAD:
        entry->since = seconds_now();
        order(m, (struct model_order){MODEL_DROP, d->slot, NULL});
        return;
    case DEPLOY_NOTHING:
        return;
    }
}

void models_decide(struct server *s)
{
    if (!models_are_many(&s->models) || (s->state != SERVER_READY && s->state != SERVER_DRAINING))
        return;
    for (struct deploy_decision it; (it = deploy_next(&s->models.deploy, seconds_now())).act != DEPLOY_NOTHING;)
        carry_out(s, it);
}

/* ---- what opener and main thread say ---- */

static enum protocol_code code_of(const struct err *e)
{
    return e->code == ERR_MEMORY ? PROTOCOL_NO_ROOM : PROTOCOL_INTERNAL;
}

static void take_opening(struct server *s, struct opening *one)
{
    struct models *m = &s->models;
    struct model_entry *entry = &m->entry[one->model];
    entry->opening = seconds_now() - entry->since;
    if (one->why.code == ERR_NONE) {
        entry->handle = one->opened.handle;
        entry->served = one->opened.served;
        entry->counts.unpacking += one->opened.unpacking;
        deploy_sized(&m->deploy, one->model, one->opened.bytes, one->opened.units);
    } else {
        deploy_failed(&m->deploy, one->model, seconds_now());
        fail_model(s, one->model, code_of(&one->why), one->why.text);
    }
    free(one);
}

static void add_phases(struct model_entry *entry, const struct load_phases *p)
{
    for (int i = 0; i < N_LOAD_PHASES; i++)
        entry->counts.phases.seconds[i] += p->seconds[i];
}

/* "open 0.021, begin 0.010, ..." */
static void describe_phases(char *text, size_t bytes, const struct load_phases *p)
{
    size_t used = 0;
    for (int i = 0; i < N_LOAD_PHASES && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %.3f", i > 0 ? ", " : "",
                                 load_phase_name((enum load_phase)i), p->seconds[i]);
}

static void take_ready(struct server *s, int i, struct load_phases phases)
{
    struct model_entry *entry = &s->models.entry[i];
    double now = seconds_now();
    char text[200];
    phases.seconds[LOAD_PHASE_OPEN] = entry->opening;
    add_phases(entry, &phases);
    describe_phases(text, sizeof text, &phases);
    entry->counts.loads++;
    entry->counts.loading += now - entry->since;
    log_note("model %s is loaded in %.3f s: %s", entry->name, now - entry->since, text);
    deploy_loaded(&s->models.deploy, i, now);
    server_admit_model(s, i);
}

static void take_gone(struct server *s, int i, const struct model_word *w)
{
    struct model_entry *entry = &s->models.entry[i];
    double now = seconds_now();
    int64_t freed = w->freed;
    add_phases(entry, &w->phases);
    entry->counts.unloads++;
    entry->counts.unloading += now - entry->since;
    entry->counts.freed = freed;
    log_note("model %s is unloaded in %.3f s: %lld bytes counted, %lld more are free", entry->name, now - entry->since,
             (long long)s->models.deploy.model[i].bytes, (long long)freed);
    replicas_clear(&s->replicas, w->slot);
    shut(&s->models, entry);
    deploy_unloaded(&s->models.deploy, i);
    server_unloaded_model(s, i);
}

static void take_word(struct server *s, const struct model_word *w)
{
    int i = w->kind >= MODEL_READY && w->kind <= MODEL_GONE ? s->replicas.replica[w->slot].model : -1;
    server_take_reports(s); /* what replicas said before */
    switch (w->kind) {
    case MODEL_RUNNING:
        if (s->state == SERVER_LOADING) {
            s->state = SERVER_READY;
            rendezvous_ready(s);
            models_start(s);
        }
        return;
    case MODEL_READY:
        take_ready(s, i, w->phases);
        return;
    case MODEL_FAILED:
        replicas_clear(&s->replicas, w->slot);
        deploy_failed(&s->models.deploy, i, seconds_now());
        fail_model(s, i, code_of(&w->why), w->why.text);
        return;
    case MODEL_GONE:
        take_gone(s, i, w);
        return;
    case MODEL_SIGNAL:
        server_signal(s, w->wish, false);
        return;
    case MODEL_ENDED:
        server_ended(s);
        return;
    }
}

void models_take(struct server *s)
{
    struct models *m = &s->models;
    if (!models_are_many(m))
        return;
    for (struct opening *one; (one = opener_take(&m->opener)) != NULL;)
        take_opening(s, one);
    for (struct model_word *w; (w = mailbox_take(m->control[0])) != NULL; free(w))
        take_word(s, w);
}

void models_start(struct server *s)
{
    struct models *m = &s->models;
    for (int i = 0; i < m->n; i++)
        if (m->setup.pinned[i]) {
            deploy_pin(&m->deploy, i, true);
            deploy_want(&m->deploy, i, seconds_now());
        }
}

void models_stop(struct models *m)
{
    order(m, (struct model_order){.kind = MODEL_STOP});
}
