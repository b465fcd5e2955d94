/* commands/models/model_switch.c - see model_switch.h. One place for a model; rank 0 opens the next one, has the other
 * dropped, the next one loaded and committed, and asks it for a token. In a second place there may be a model that runs
 * meanwhile; then it has a while for itself before each switch. */
#include "commands/models/model_switch.h"
#include "base/clock.h"
#include "commands/bench/traffic.h"
#include "commands/models/beside.h"
#include "commands/models/model_memory.h"
#include "commands/models/opened_model.h"
#include "commands/models/switch_report.h"
#include "commands/thread_cores.h"
#include "coordinator/schedule/units.h"
#include "rank/instance/residents.h"
#include "rank/world/fatal.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_REPETITIONS 5
#define DEFAULT_WARMUPS     1
#define DEFAULT_GEN         128 /* of --n-gen, if it is not given */
#define REST                1.0 /* s that the model of --beside runs alone before each switch */

enum { SLOT_SWITCHED, SLOT_BESIDE, N_SLOTS }; /* numbers of models in plans */

enum stage {
    STAGE_REST,    /* nothing is asked for */
    STAGE_OPEN,    /* a request has come: the next model is to be opened */
    STAGE_OPENING, /* a thread does */
    STAGE_LOAD,    /* its place is free */
    STAGE_WAIT,    /* a plan is being carried out: what comes of it will be heard */
    STAGE_COMMIT,  /* all ranks have read it */
    STAGE_TOKEN    /* it runs */
};

/* A folder that --model-switch or --beside names. */
struct switch_model {
    char dir[PATH_MAX]; /* of the folder that it is in; its name stands behind */
    const char *name;
};

struct model_switch { /* rank 0's */
    const struct bench_options *o;
    struct service_options service;
    struct switch_model model[3]; /* the third: of --beside */
    const struct ops *ops;
    int n_ranks;
    struct model_memory memory;
    struct shelf shelf;
    struct units units;                            /* of the memory for keys and values */
    struct opened_model *opened, *loaded[N_SLOTS]; /* on its way in; and there */
    struct err opening_failure;                    /* the thread's, as `opened` is, until it is done */
    pthread_t opening;
    atomic_bool opening_done;
    struct traffic traffic;
    struct beside beside;
    enum stage stage;
    int loading, turn;           /* slots: of the model on its way in; whose steps go first */
    int n_outstanding[N_SLOTS];  /* plans with sequences, results not taken */
    bool fed[SCHEDULER_FLIGHTS]; /* the plan of a step had sequences */
    bool queued;
    int round, n_rounds; /* even ones are to the first model; the first of all, number -1, is not counted */
    double rests_until;
    double began, plan_began;    /* seconds_now() */
    double part[N_SWITCH_PARTS]; /* s, of this round */
    struct err failure;
    struct switch_figures figures;
};

static int model_of(const struct model_switch *s)
{
    return s->loading == SLOT_BESIDE ? 2 : s->round & 1;
}

/* ---- what the ranks say ---- */

static void fetch(void *context, int slot, struct model_config *m, struct checkpoint *c, struct instance_setup *setup)
{
    struct opened_model *from = ((struct model_switch *)context)->opened;
    (void)slot;
    *m = from->config;
    *c = from->checkpoint;
    *setup = from->setup;
    from->checkpoint = (struct checkpoint){0};
}

/* The model in a slot gets its part of the memory for keys and values; *limits: how much that is at most. */
static void join(struct model_switch *s, int slot, struct traffic *t, struct limits *limits)
{
    const struct kv_share *kv = &s->loaded[slot]->share;
    const struct unit_share share = {kv->per_unit, kv->least, kv->most};
    limits->n_blocks = kv->most * kv->per_unit;
    (void)units_join(&s->units, slot, &t->scheduler.blocks[KV_MAIN], &share, &t->source, &s->failure);
}

/* It is there: a request for one token. */
static void begin(struct model_switch *s, const struct residents_news *news)
{
    struct limits limits = news->limits;
    int slot = news->model;
    s->loaded[slot] = s->opened;
    s->opened = NULL;
    if (slot == SLOT_BESIDE) {
        join(s, slot, &s->beside.traffic, &limits);
        if (s->failure.code == ERR_NONE)
            (void)beside_start(&s->beside, (int)s->o->batch, (int)s->o->n_prompt, &limits,
                               s->loaded[slot]->config.vocab, &s->failure);
        s->loading = SLOT_SWITCHED;
        s->stage = STAGE_REST;
        return;
    }
    for (int i = 0; i < N_LOAD_PHASES; i++)
        if (i != LOAD_PHASE_OPEN)
            s->part[SWITCH_OPEN + i] = news->phases.seconds[i];
    join(s, slot, &s->traffic, &limits);
    if (s->failure.code == ERR_NONE)
        (void)traffic_open(&s->traffic, 1, (int)s->o->n_prompt, 1, &limits, s->loaded[slot]->config.vocab, &s->failure);
    s->queued = false;
    s->stage = STAGE_TOKEN;
    s->turn = SLOT_BESIDE; /* so its step shows what the change took */
    s->plan_began = seconds_now();
}

static void hear(void *context, const struct residents_news *news)
{
    struct model_switch *s = context;
    switch (news->event) {
    case RESIDENTS_READ:
        s->stage = STAGE_COMMIT;
        return;
    case RESIDENTS_READY:
        begin(s, news);
        return;
    case RESIDENTS_GONE:
        s->part[SWITCH_UNLOAD] = seconds_now() - s->plan_began;
        traffic_close(&s->traffic);
        units_leave(&s->units, SLOT_SWITCHED);
        opened_model_close(s->loaded[SLOT_SWITCHED], &s->shelf);
        s->loaded[SLOT_SWITCHED] = NULL;
        s->stage = STAGE_LOAD;
        return;
    case RESIDENTS_FAILED:
        s->failure = news->why;
        return;
    }
}

/* ---- the next model is opened ---- */

static void *open_next(void *context)
{
    struct model_switch *s = context;
    const struct switch_model *m = &s->model[model_of(s)];
    const struct model_place place = {.service = &s->service,
                                      .models_dir = m->dir,
                                      .name = m->name,
                                      .shelf = &s->shelf,
                                      .ops = s->ops,
                                      .n_ranks = s->n_ranks,
                                      .kv_bytes = (size_t)s->memory.kv};
    int64_t bytes = 0;
    s->opened = opened_model_open(&place, &bytes, &s->opening_failure);
    s->part[SWITCH_OPEN] = seconds_now() - s->began;
    atomic_store(&s->opening_done, true);
    return NULL;
}

static int start_opening(struct model_switch *s, struct err *e)
{
    struct cores cores;
    memset(s->part, 0, sizeof s->part);
    s->began = seconds_now();
    atomic_store(&s->opening_done, false);
    cores_widen(&cores);
    int failed = pthread_create(&s->opening, NULL, open_next, s);
    cores_restore(&cores);
    if (failed)
        return ERR(e, ERR_MEMORY, "cannot start a thread that opens a model");
    s->stage = STAGE_OPENING;
    return 0;
}

/* The thread has ended, or will. */
static int end_opening(struct model_switch *s, struct err *e)
{
    (void)pthread_join(s->opening, NULL);
    *e = s->opening_failure;
    return s->opened != NULL ? 0 : -1;
}

/* ---- the loop's client ---- */

static int say(struct model_switch *s, struct plan *p, enum plan_kind kind)
{
    p->kind = kind;
    p->model = s->loading;
    s->stage = STAGE_WAIT;
    s->plan_began = seconds_now();
    beside_note(&s->beside, kind == PLAN_DROP   ? MEANWHILE_UNLOAD
                            : kind == PLAN_LOAD ? MEANWHILE_BEGIN
                                                : MEANWHILE_COMMIT);
    return 0;
}

/* The next step of the model in a slot, its blocks by the arena's numbers; without sequences, if it has none. */
static int plan_slot(struct model_switch *s, int slot, struct plan *p, struct err *e)
{
    p->model = slot;
    units_note(&s->units, slot, true);
    if (slot == SLOT_BESIDE) {
        if (beside_plan(&s->beside, p, e) != 0)
            return -1;
    } else {
        if (!s->queued && traffic_queue(&s->traffic, seconds_now(), e) != 0)
            return -1;
        s->queued = true;
        traffic_plan(&s->traffic, p, seconds_now());
    }
    for (int i = 0; i < p->n_blocks; i++)
        p->block[i].block = units_block(&s->units, slot, p->block[i].block);
    s->fed[p->step % SCHEDULER_FLIGHTS] = p->n_seqs > 0;
    s->n_outstanding[slot] += p->n_seqs > 0;
    return 0;
}

/* A step of one of those that run, in turn; empty ones wait for what is under way. */
static int plan_step(struct model_switch *s, struct plan *p, struct err *e)
{
    const struct timespec moment = {0, 50000};
    const bool runs[N_SLOTS] = {s->stage == STAGE_TOKEN, s->beside.running};
    uint64_t step = p->step;
    int awaits = -1;
    for (int i = 0; i < N_SLOTS; i++) {
        int slot = (s->turn + i) % N_SLOTS;
        if (!runs[slot])
            continue;
        plan_reset(p, step);
        if (plan_slot(s, slot, p, e) != 0)
            return -1;
        if (p->n_seqs > 0) {
            s->turn = (slot + 1) % N_SLOTS;
            return 0;
        }
        awaits = s->n_outstanding[slot] > 0 ? slot : awaits;
    }
    if (awaits >= 0) {
        p->model = awaits;
        return 0;
    }
    (void)nanosleep(&moment, NULL);
    return PLAN_IDLE;
}

/* A change of the models, or the end, if there is to be one: returns 0; 1: there is none now. Between two changes the
 * model beside has a step, as it would have where a server decides upon them. */
static int plan_change(struct model_switch *s, struct plan *p, struct err *e)
{
    if (s->stage == STAGE_REST && seconds_now() >= s->rests_until)
        s->stage = STAGE_OPEN;
    if (s->stage == STAGE_OPEN && s->round == s->n_rounds) {
        p->kind = PLAN_STOP;
        return 0;
    }
    if (s->stage == STAGE_OPEN && start_opening(s, e) != 0)
        return -1;
    if (s->stage == STAGE_OPENING && atomic_load(&s->opening_done)) {
        if (end_opening(s, e) != 0)
            return -1;
        return say(s, p, s->loaded[s->loading] != NULL ? PLAN_DROP : PLAN_LOAD);
    }
    if ((s->stage == STAGE_LOAD || s->stage == STAGE_COMMIT) && !beside_waits(&s->beside))
        return say(s, p, s->stage == STAGE_LOAD ? PLAN_LOAD : PLAN_COMMIT);
    if (s->stage == STAGE_OPENING || s->stage == STAGE_WAIT)
        beside_note(&s->beside, MEANWHILE_READ);
    return 1;
}

static int next(void *context, struct plan *p, struct err *e)
{
    struct model_switch *s = context;
    if (s->failure.code != ERR_NONE) {
        *e = s->failure;
        return -1;
    }
    int changed = plan_change(s, p, e);
    return changed == 1 ? plan_step(s, p, e) : changed;
}

/* The first token ends the round. */
static int take_token(struct model_switch *s, const struct step_result *result, struct err *e)
{
    if (traffic_accept(&s->traffic, result, seconds_now(), e) != 0)
        return -1;
    if (!s->queued || traffic_busy(&s->traffic))
        return 0;
    double now = seconds_now();
    s->part[SWITCH_TOKEN] = now - s->plan_began;
    s->part[SWITCH_ALL] = now - s->began;
    if (s->round >= 2 * s->figures.warmups)
        switch_figures_add(&s->figures, model_of(s), s->part);
    s->round++;
    if (s->round <= 2 * s->figures.warmups)
        beside_forget(&s->beside);
    s->rests_until = s->beside.running ? now + REST : now;
    s->stage = STAGE_REST;
    return 0;
}

static int take(void *context, const struct step_result *result, struct err *e)
{
    struct model_switch *s = context;
    s->n_outstanding[result->model] -= s->fed[result->step % SCHEDULER_FLIGHTS];
    if (result->model == SLOT_BESIDE)
        return beside_accept(&s->beside, result, e);
    beside_note(&s->beside, MEANWHILE_TOKEN);
    if (s->stage != STAGE_TOKEN) /* empty, and behind the token */
        return 0;
    return take_token(s, result, e);
}

/* ---- opening and closing ---- */

static int find_model(struct switch_model *m, const char *option, const char *given, int bytes, struct err *e)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%.*s", bytes, given);
    if (realpath(path, m->dir) == NULL)
        return ERR(e, ERR_INPUT, "--%s: %.300s: no such folder", option, path);
    char *slash = strrchr(m->dir, '/');
    *slash = '\0';
    m->name = slash + 1;
    return 0;
}

/* "/models/a,b" are the folder "a" in "/models", and "b" in ".". */
static int find_models(struct model_switch *s, struct err *e)
{
    const char *at = s->o->model_switch, *comma = strchr(at, ',');
    if (comma == NULL || comma == at || comma[1] == '\0' || strchr(comma + 1, ',') != NULL)
        return ERR(e, ERR_USAGE, "--model-switch: found \"%.200s\", expected two folders with a comma between them",
                   at);
    if (find_model(&s->model[0], "model-switch", at, (int)(comma - at), e) != 0 ||
        find_model(&s->model[1], "model-switch", comma + 1, PATH_MAX - 1, e) != 0)
        return -1;
    return s->o->beside == NULL ? 0 : find_model(&s->model[2], "beside", s->o->beside, PATH_MAX - 1, e);
}

/* Options of other measurements, and of models that are alone. */
static int check_options(const struct bench_options *o, int n_ranks, struct err *e)
{
    const char *given = o->run.model != NULL                 ? "model"
                        : o->config != NULL                  ? "config"
                        : o->run.load_format == LOAD_DUMMY   ? "load-format"
                        : o->quantization != NULL            ? "quantization"
                        : o->latency != NULL                 ? "latency"
                        : o->throughput != NULL              ? "throughput"
                        : o->num_prompts >= 0                ? "num-prompts"
                        : o->max_batch >= 0                  ? "max-batch"
                        : o->shared_prefix >= 0              ? "shared-prefix"
                        : o->step_times                      ? "step-times"
                        : o->run.max_step_ms > 0             ? "max-step-ms"
                        : o->run.draft_model != NULL         ? "draft-model"
                        : o->run.num_speculative_tokens > 0  ? "num-speculative-tokens"
                        : o->draft_acceptance >= 0           ? "draft-acceptance"
                        : o->drafts_rest != 0                ? "speculative"
                        : o->tokenizer != NULL               ? "tokenizer"
                        : o->json_schema != NULL             ? "json-schema"
                        : o->n_depth != 0                    ? "n-depth"
                        : o->n_gen != DEFAULT_GEN            ? "n-gen"
                        : o->batch != 1 && o->beside == NULL ? "batch"
                        : o->profile                         ? "profile"
                                                             : NULL;
    if (given != NULL)
        return ERR(e, ERR_USAGE, "--%s and --model-switch: expected one of them", given);
    if (o->n_prompt == 0)
        return ERR(e, ERR_USAGE, "--n-prompt 0: --model-switch needs a token at least");
    if (run_replica_size(&o->run, n_ranks) != n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %lld and --model-switch: every model is on all %d ranks",
                   (long long)o->run.tensor_parallel, n_ranks);
    if (o->run.quantise != WEIGHTS_AS_THEY_ARE || o->run.head_dtype != WEIGHTS_AS_THEY_ARE ||
        o->run.inputs != INPUTS_OFF)
        return ERR(e, ERR_USAGE,
                   "--quantization, --head-dtype and --quantized-activations are for one model, not for those of "
                   "--model-switch");
    return 0;
}

static int open_switch(struct model_switch *s, const struct bench_options *o, int n_ranks, struct err *e)
{
    s->o = o;
    s->service.run = o->run;
    s->service.run.max_batch = s->service.run.max_model_len = -1; /* as a server has them */
    s->figures.warmups = o->warmup >= 0 ? (int)o->warmup : DEFAULT_WARMUPS;
    s->figures.repetitions = o->repetitions >= 0 ? (int)o->repetitions : DEFAULT_REPETITIONS;
    s->round = -1;
    s->loading = o->beside != NULL ? SLOT_BESIDE : SLOT_SWITCHED;
    s->stage = STAGE_OPEN;
    s->n_rounds = 2 * (s->figures.warmups + s->figures.repetitions);
    shelf_open(&s->shelf);
    return check_options(o, n_ranks, e) == 0 ? find_models(s, e) : -1;
}

static void report(struct model_switch *s, const struct instance *ground, const struct world *w, struct err *e)
{
    const struct switch_about about = {{s->model[0].name, s->model[1].name},
                                       ground->ops->name,
                                       w->n_ranks,
                                       (int)s->o->n_prompt,
                                       s->model[2].name,
                                       (int)s->o->batch,
                                       &s->beside};
    if (s->o->run.json)
        switch_report_json(&s->figures, &about);
    else
        switch_report_table(&s->figures, &about);
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        ERR(e, ERR_IO, "standard output: cannot write");
}

static void close_switch(struct model_switch *s)
{
    traffic_close(&s->traffic);
    beside_close(&s->beside);
    for (int i = 0; i < N_SLOTS; i++)
        opened_model_close(s->loaded[i], &s->shelf);
    units_close(&s->units);
    shelf_close(&s->shelf);
}

static void masks(void *context, struct plan *p)
{
    traffic_masks(&((struct model_switch *)context)->traffic, p);
}

int model_switch_run(struct world *w, const struct bench_options *o, struct err *e)
{
    struct instance_setup setup = {0};
    struct instance ground;
    struct model_switch *s = err_calloc(e, 1, sizeof *s, "models");
    struct residents *r = err_calloc(e, 1, sizeof *r, "models");
    const struct residents_owner owner = {s, fetch, hear};
    const struct loop_client client = {.context = s, .next = next, .accept = take, .masks = masks};
    if (w->rank == 0 && e->code == ERR_NONE && open_switch(s, o, w->n_ranks, e) == 0)
        setup = start_setup(&o->run, 1, 1, false);
    fatal_agree(w, e);
    instance_open_ground(&ground, w, &setup, e);
    s->ops = ground.ops;
    s->n_ranks = w->n_ranks;
    model_memory_share(&s->memory, &ground, -1, w->rank == 0 ? o->run.kv_cache_bytes : -1, w, e);
    if (w->rank == 0)
        (void)units_open(&s->units, kv_arena_units((size_t)s->memory.kv), e);
    (void)residents_open(r, w, &ground, (size_t)s->memory.kv, &owner, e);
    fatal_agree(w, e);
    loop_run_models(&r->models, &client, e);
    if (w->rank == 0)
        report(s, &ground, w, e);
    fatal_agree(w, e);
    residents_close(r);
    if (w->rank == 0)
        close_switch(s);
    instance_close(&ground);
    free(r);
    free(s);
    return 0;
}
