/* coordinator/models/models_life.c - the life of models: carries out the table's decisions, and enters reports of the
 * opener and the main threads into the table. See models.h. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/models.h"
#include "coordinator/tasks/mailbox.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

static int replica_of(const struct models *m, int i, int set)
{
    return set * m->n_slots + m->placement.set[set].model[i].slot;
}

static void order(struct models *m, int set, const struct model_order *what)
{
    struct model_order *o = malloc(sizeof *o);
    if (o != NULL)
        *o = *what;
    if (o == NULL || !mailbox_post(m->control[set].end[0], o)) {
        log_warn("out of host memory: an order to load or unload a model is lost");
        free(o);
    }
}

/* A failure of model i in a set is the answer to all its waiters there, and to new requests for a while. */
static void fail_model(struct models *m, int i, int set, enum protocol_code code, const char *text)
{
    struct model_entry *entry = &m->entry[i];
    entry->why = (struct protocol_error){0};
    (void)protocol_fail(&entry->why, code, "model", "\"%.80s\": %s", entry->name, text);
    entry->counts.failures++;
    log_warn("model %s is not loaded: %s", entry->name, text);
    models_shut(m, &entry->copy[set]);
    if (placement_waits(&m->placement, i, set))
        m->owner.refuse(m->owner.context, i, &entry->why);
}

static void refuse_units(struct models *m, int i, int set)
{
    char text[240];
    const struct deploy *d = &m->placement.set[set];
    double unit = (double)m->setup.unit_bytes / GIB;
    int room = deploy_room_units(d, i);
    (void)snprintf(
        text, sizeof text,
        "keys and values of one request need %.3f GiB on a rank; %.3f is all that they may have of %.3f beside "
        "pinned models (--kv-cache-memory-bytes)",
        d->model[i].units * unit, room * unit, d->setup.units * unit);
    fail_model(m, i, set, PROTOCOL_NO_ROOM, text);
}

static void refuse_size(struct models *m, int i, int set)
{
    char text[240];
    const struct deploy *d = &m->placement.set[set];
    if (d->model[i].units > deploy_room_units(d, i)) {
        refuse_units(m, i, set);
        return;
    }
    (void)snprintf(text, sizeof text,
                   "needed on a rank beside keys and values: %lld bytes (%.2f GiB); %lld (%.2f GiB) is all that it may "
                   "have of %lld beside "
                   "pinned models (--model-memory), or all --max-models %d are pinned",
                   (long long)d->model[i].bytes, (double)d->model[i].bytes / GIB, (long long)deploy_room(d, i),
                   (double)deploy_room(d, i) / GIB, (long long)d->setup.memory, d->setup.n_slots);
    fail_model(m, i, set, PROTOCOL_NO_ROOM, text);
}

/* Set 0 has the handle; the others open it for themselves, by its folder. */
static void order_load(struct models *m, int i, int set)
{
    const struct model_copy *copy = &m->entry[i].copy[set];
    int slot = m->placement.set[set].model[i].slot;
    struct model_order o = {
        .kind = MODEL_LOAD, .slot = slot, .handle = copy->handle, .vocab = copy->served->model.vocab};
    (void)snprintf(o.name, sizeof o.name, "%s", m->entry[i].name);
    (void)snprintf(o.dir, sizeof o.dir, "%s", copy->dir);
    replicas_place(m->replicas, replica_of(m, i, set), i);
    order(m, set, &o);
}

static void carry_out(struct models *m, struct placement_decision it)
{
    struct model_copy *copy = &m->entry[it.model].copy[it.set];
    switch (it.act) {
    case DEPLOY_OPEN:
        copy->since = seconds_now();
        if (!opener_ask(&m->opener, it.model, it.set)) {
            placement_failed(&m->placement, it.model, it.set, seconds_now());
            fail_model(m, it.model, it.set, PROTOCOL_INTERNAL, "out of host memory");
        }
        return;
    case DEPLOY_ABANDON:
        models_shut(m, copy);
        return;
    case DEPLOY_REFUSED:
        refuse_size(m, it.model, it.set);
        return;
    case DEPLOY_LOAD:
        order_load(m, it.model, it.set);
        return;
    case DEPLOY_UNLOAD:
        copy->since = seconds_now();
        order(m, it.set,
              &(struct model_order){.kind = MODEL_DROP, .slot = m->placement.set[it.set].model[it.model].slot});
        return;
    case DEPLOY_NOTHING:
        return;
    }
}

void models_decide(struct models *m)
{
    if (!models_are_many(m))
        return;
    for (struct placement_decision it; (it = placement_next(&m->placement, seconds_now())).act != DEPLOY_NOTHING;)
        carry_out(m, it);
}

/* ---- messages of opener and main threads ---- */

static enum protocol_code code_of(const struct err *e)
{
    return e->code == ERR_MEMORY ? PROTOCOL_NO_ROOM : PROTOCOL_INTERNAL;
}

static void take_opening(struct models *m, struct opening *one)
{
    struct model_entry *entry = &m->entry[one->model];
    struct model_copy *copy = &entry->copy[one->set];
    copy->opening = seconds_now() - copy->since;
    if (one->why.code == ERR_NONE) {
        copy->handle = one->opened.handle;
        copy->served = one->opened.served;
        copy->dir = one->opened.dir;
        copy->warming = (struct warming){.warmup = one->opened.warmup, .n = one->opened.n_warmups};
        json_decref(entry->made_of);
        entry->made_of = one->opened.made_of;
        entry->counts.unpacking += one->opened.unpacking;
        placement_sized(&m->placement, one->model, one->set, one->opened.bytes, one->opened.units);
    } else {
        placement_failed(&m->placement, one->model, one->set, seconds_now());
        fail_model(m, one->model, one->set, code_of(&one->why), one->why.text);
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

/* " on set 2" where there are several. */
static const char *name_set(const struct models *m, int set, char text[24])
{
    text[0] = '\0';
    if (m->setup.n_sets > 1)
        (void)snprintf(text, 24, " on set %d", set);
    return text;
}

/* The copy is loaded and warmed up. */
static void admit_copy(struct models *m, int i, int set)
{
    struct model_entry *entry = &m->entry[i];
    struct model_copy *copy = &entry->copy[set];
    struct load_phases *phases = &copy->warming.phases;
    double now = seconds_now();
    char text[240], where[24];
    phases->seconds[LOAD_PHASE_WARMUP] = copy->warming.n > 0 ? now - copy->warming.since : 0;
    add_phases(entry, phases);
    describe_phases(text, sizeof text, phases);
    entry->counts.loads++;
    entry->counts.loading += now - copy->since;
    log_note("model %s is loaded%s in %.3f s: %s", entry->name, name_set(m, set, where), now - copy->since, text);
    placement_loaded(&m->placement, i, set, now);
    m->owner.admit(m->owner.context, i);
}

/* Starts the next warm-up request; false: none is left. */
static bool warm(struct models *m, int i, int set)
{
    struct model_copy *copy = &m->entry[i].copy[set];
    struct warming *w = &copy->warming;
    int replica = replica_of(m, i, set);
    if (w->at < w->n && w->turn == w->warmup[w->at].count) {
        w->at++;
        w->turn = 0;
    }
    if (w->at == w->n)
        return false;
    struct err e = {0};
    struct task *task = warmup_task(&w->warmup[w->at], w->turn++, copy->served, m->replicas->replica[replica].max_len,
                                    m->replicas->replica[replica].max_seqs, &e);
    if (task == NULL) {
        log_warn("model %s: model_warmup %s is left out: %s", m->entry[i].name, w->warmup[w->at].name, e.text);
        w->at = w->n;
        return false;
    }
    task->ticket.warms = true;
    task->ticket.model = i;
    task->ticket.set = set;
    replicas_submit(m->replicas, task, replica);
    return true;
}

bool models_take_back(struct models *m, struct task *task)
{
    int i = task->ticket.model, set = task->ticket.set;
    if (!task->ticket.warms)
        return false;
    bool cut = task->choices[0].finish == FINISH_CANCELLED; /* the job ends */
    task_close(task);
    if (!cut && !warm(m, i, set))
        admit_copy(m, i, set);
    return true;
}

static void take_ready(struct models *m, int i, int set, const struct load_phases *phases)
{
    struct model_copy *copy = &m->entry[i].copy[set];
    copy->warming.phases = *phases;
    copy->warming.phases.seconds[LOAD_PHASE_OPEN] = copy->opening;
    copy->warming.since = seconds_now();
    if (!warm(m, i, set))
        admit_copy(m, i, set);
}

static void take_gone(struct models *m, int i, int set, const struct model_word *w)
{
    struct model_entry *entry = &m->entry[i];
    struct model_copy *copy = &entry->copy[set];
    double now = seconds_now();
    char where[24];
    add_phases(entry, &w->phases);
    entry->counts.unloads++;
    entry->counts.unloading += now - copy->since;
    entry->counts.free_before = w->free_before;
    entry->counts.freed = w->freed;
    log_note("model %s is unloaded%s in %.3f s: %lld bytes counted, %lld more are free than %lld", entry->name,
             name_set(m, set, where), now - copy->since, (long long)m->placement.set[set].model[i].bytes,
             (long long)w->freed, (long long)w->free_before);
    replicas_clear(m->replicas, replica_of(m, i, set));
    models_shut(m, copy);
    placement_unloaded(&m->placement, i, set);
    if (!placement_goes(&m->placement, i)) /* another set may have loaded it since */
        m->owner.unloaded(m->owner.context, i);
}

static void take_failure(struct models *m, int i, int set, const struct err *why)
{
    replicas_clear(m->replicas, replica_of(m, i, set));
    placement_failed(&m->placement, i, set, seconds_now());
    fail_model(m, i, set, code_of(why), why->text);
}

static void take_end(struct models *m, int set)
{
    bool all = true;
    m->control[set].ended = true;
    for (int k = 0; k < m->setup.n_sets; k++)
        all = all && m->control[k].ended;
    if (all)
        m->owner.ended(m->owner.context);
}

static void take_word(struct models *m, int set, const struct model_word *w)
{
    bool about = w->kind >= MODEL_READY && w->kind <= MODEL_GONE;
    int i = about ? m->replicas->replica[set * m->n_slots + w->slot].model : -1;
    m->owner.reports(m->owner.context);
    if (about && i < 0) {
        log_warn("set %d reports on model %d, which it does not have", set, w->slot);
        return;
    }
    switch (w->kind) {
    case MODEL_RUNNING:
        m->owner.running(m->owner.context);
        return;
    case MODEL_READY:
        take_ready(m, i, set, &w->phases);
        return;
    case MODEL_FAILED:
        take_failure(m, i, set, &w->why);
        return;
    case MODEL_GONE:
        take_gone(m, i, set, w);
        return;
    case MODEL_SIGNAL:
        m->owner.signal(m->owner.context, w->wish);
        return;
    case MODEL_ENDED:
        take_end(m, set);
        return;
    }
}

void models_take(struct models *m)
{
    if (!models_are_many(m))
        return;
    for (struct opening *one; (one = opener_take(&m->opener)) != NULL;)
        take_opening(m, one);
    for (int k = 0; k < m->setup.n_sets; k++)
        for (struct model_word *w; (w = mailbox_take(m->control[k].end[0])) != NULL; free(w))
            take_word(m, k, w);
}

void models_start(struct models *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->setup.pinned[i]) {
            placement_pin(&m->placement, i, true);
            placement_want(&m->placement, i, seconds_now());
        }
}

void models_stop(struct models *m)
{
    for (int k = 0; k < m->setup.n_sets; k++)
        order(m, k, &(struct model_order){.kind = MODEL_STOP});
}
