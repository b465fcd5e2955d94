/* coordinator/models/models.c - see models.h. */
#include "coordinator/models/models.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/tasks/mailbox.h"

#include <jansson.h>
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
                const struct models_owner *owner, struct replicas *replicas, struct err *e)
{
    *m = (struct models){.setup = *setup, .owner = *owner, .replicas = replicas, .n = setup->n > 0 ? setup->n : 1};
    m->entry = err_calloc(e, (size_t)m->n, sizeof *m->entry, "table of models");
    if (m->entry == NULL)
        return -1;
    if (setup->n == 0)
        return open_one(m, one, e);
    for (int i = 0; i < m->n; i++)
        m->entry[i].name = setup->name[i];
    for (int i = 0; i < replicas->n; i++)
        replicas_clear(replicas, i);
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
    for (int i = 0; m->entry != NULL && i < m->n; i++) {
        shut(m, &m->entry[i]);
        json_decref(m->entry[i].made_of);
    }
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
static void fail_model(struct models *m, int i, enum protocol_code code, const char *text)
{
    struct model_entry *entry = &m->entry[i];
    entry->why = (struct protocol_error){0};
    (void)protocol_fail(&entry->why, code, "model", "\"%.80s\": %s", entry->name, text);
    entry->counts.failures++;
    log_warn("model %s is not loaded: %s", entry->name, text);
    shut(m, entry);
    m->owner.refuse(m->owner.context, i, &entry->why);
}

static void refuse_units(struct models *m, int i)
{
    char text[240];
    const struct deploy *d = &m->deploy;
    double unit = (double)m->setup.unit_bytes / GIB;
    int room = deploy_room_units(d, i);
    (void)snprintf(
        text, sizeof text,
        "keys and values of one request need %.3f GiB on a rank; %.3f is all that they may have of %.3f beside "
        "pinned models (--kv-cache-memory-bytes)",
        d->model[i].units * unit, room * unit, d->setup.units * unit);
    fail_model(m, i, PROTOCOL_NO_ROOM, text);
}

static void refuse_size(struct models *m, int i)
{
    char text[240];
    const struct deploy *d = &m->deploy;
    if (d->model[i].units > deploy_room_units(d, i)) {
        refuse_units(m, i);
        return;
    }
    (void)snprintf(text, sizeof text,
                   "needed on a rank beside keys and values: %lld bytes (%.2f GiB); %lld (%.2f GiB) is all that it may "
                   "have of %lld beside "
                   "pinned models (--model-memory), or all --max-models %d are pinned",
                   (long long)d->model[i].bytes, (double)d->model[i].bytes / GIB, (long long)deploy_room(d, i),
                   (double)deploy_room(d, i) / GIB, (long long)d->setup.memory, d->setup.n_slots);
    fail_model(m, i, PROTOCOL_NO_ROOM, text);
}

static void carry_out(struct models *m, struct deploy_decision it)
{
    struct model_entry *entry = &m->entry[it.model];
    const struct deployment *d = &m->deploy.model[it.model];
    switch (it.act) {
    case DEPLOY_OPEN:
        entry->since = seconds_now();
        if (!opener_ask(&m->opener, it.model)) {
            deploy_failed(&m->deploy, it.model, seconds_now());
            fail_model(m, it.model, PROTOCOL_INTERNAL, "out of host memory");
        }
        return;
    case DEPLOY_ABANDON:
        shut(m, entry);
        return;
    case DEPLOY_REFUSED:
        refuse_size(m, it.model);
        return;
    case DEPLOY_LOAD:
        replicas_place(m->replicas, d->slot, it.model);
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

void models_decide(struct models *m)
{
    if (!models_are_many(m))
        return;
    for (struct deploy_decision it; (it = deploy_next(&m->deploy, seconds_now())).act != DEPLOY_NOTHING;)
        carry_out(m, it);
}

/* ---- what opener and main thread say ---- */

static enum protocol_code code_of(const struct err *e)
{
    return e->code == ERR_MEMORY ? PROTOCOL_NO_ROOM : PROTOCOL_INTERNAL;
}

static void take_opening(struct models *m, struct opening *one)
{
    struct model_entry *entry = &m->entry[one->model];
    entry->opening = seconds_now() - entry->since;
    if (one->why.code == ERR_NONE) {
        entry->handle = one->opened.handle;
        entry->served = one->opened.served;
        entry->warming = (struct warming){.warmup = one->opened.warmup, .n = one->opened.n_warmups};
        json_decref(entry->made_of);
        entry->made_of = one->opened.made_of;
        entry->counts.unpacking += one->opened.unpacking;
        deploy_sized(&m->deploy, one->model, one->opened.bytes, one->opened.units);
    } else {
        deploy_failed(&m->deploy, one->model, seconds_now());
        fail_model(m, one->model, code_of(&one->why), one->why.text);
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

/* It is there, and warm. */
static void admit(struct models *m, int i)
{
    struct model_entry *entry = &m->entry[i];
    struct load_phases *phases = &entry->warming.phases;
    double now = seconds_now();
    char text[240];
    phases->seconds[LOAD_PHASE_WARMUP] = entry->warming.n > 0 ? now - entry->warming.since : 0;
    add_phases(entry, phases);
    describe_phases(text, sizeof text, phases);
    entry->counts.loads++;
    entry->counts.loading += now - entry->since;
    log_note("model %s is loaded in %.3f s: %s", entry->name, now - entry->since, text);
    deploy_loaded(&m->deploy, i, now);
    m->owner.admit(m->owner.context, i);
}

/* The next request that warms it up; false: there is none any more. */
static bool warm(struct models *m, int i)
{
    struct model_entry *entry = &m->entry[i];
    struct warming *w = &entry->warming;
    int slot = m->deploy.model[i].slot;
    if (w->at < w->n && w->turn == w->warmup[w->at].count) {
        w->at++;
        w->turn = 0;
    }
    if (w->at == w->n)
        return false;
    struct err e = {0};
    struct task *j = warmup_task(&w->warmup[w->at], w->turn++, entry->served, m->replicas->replica[slot].max_len,
                                 m->replicas->replica[slot].max_seqs, &e);
    if (j == NULL) {
        log_warn("model %s: model_warmup %s is left out: %s", entry->name, w->warmup[w->at].name, e.text);
        w->at = w->n;
        return false;
    }
    j->ticket.warms = true;
    j->ticket.model = i;
    replicas_submit(m->replicas, j, slot);
    return true;
}

bool models_take_back(struct models *m, struct task *j)
{
    int i = j->ticket.model;
    if (!j->ticket.warms)
        return false;
    bool cut = j->choices[0].finish == FINISH_CANCELLED; /* the job ends */
    task_close(j);
    if (!cut && !warm(m, i))
        admit(m, i);
    return true;
}

static void take_ready(struct models *m, int i, const struct load_phases *phases)
{
    struct warming *w = &m->entry[i].warming;
    w->phases = *phases;
    w->phases.seconds[LOAD_PHASE_OPEN] = m->entry[i].opening;
    w->since = seconds_now();
    if (!warm(m, i))
        admit(m, i);
}

static void take_gone(struct models *m, int i, const struct model_word *w)
{
    struct model_entry *entry = &m->entry[i];
    double now = seconds_now();
    int64_t freed = w->freed;
    add_phases(entry, &w->phases);
    entry->counts.unloads++;
    entry->counts.unloading += now - entry->since;
    entry->counts.freed = freed;
    log_note("model %s is unloaded in %.3f s: %lld bytes counted, %lld more are free", entry->name, now - entry->since,
             (long long)m->deploy.model[i].bytes, (long long)freed);
    replicas_clear(m->replicas, w->slot);
    shut(m, entry);
    deploy_unloaded(&m->deploy, i);
    m->owner.unloaded(m->owner.context, i);
}

static void take_word(struct models *m, const struct model_word *w)
{
    int i = w->kind >= MODEL_READY && w->kind <= MODEL_GONE ? m->replicas->replica[w->slot].model : -1;
    m->owner.reports(m->owner.context);
    switch (w->kind) {
    case MODEL_RUNNING:
        m->owner.running(m->owner.context);
        return;
    case MODEL_READY:
        take_ready(m, i, &w->phases);
        return;
    case MODEL_FAILED:
        replicas_clear(m->replicas, w->slot);
        deploy_failed(&m->deploy, i, seconds_now());
        fail_model(m, i, code_of(&w->why), w->why.text);
        return;
    case MODEL_GONE:
        take_gone(m, i, w);
        return;
    case MODEL_SIGNAL:
        m->owner.signal(m->owner.context, w->wish);
        return;
    case MODEL_ENDED:
        m->owner.ended(m->owner.context);
        return;
    }
}

void models_take(struct models *m)
{
    if (!models_are_many(m))
        return;
    for (struct opening *one; (one = opener_take(&m->opener)) != NULL;)
        take_opening(m, one);
    for (struct model_word *w; (w = mailbox_take(m->control[0])) != NULL; free(w))
        take_word(m, w);
}

void models_start(struct models *m)
{
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
