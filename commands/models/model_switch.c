/* commands/models/model_switch.c - see model_switch.h. The two models take turns in one slot: the next one is
 * requested, and then one token from it. A second slot may have a model that runs meanwhile; then it runs alone for a
 * while before each switch. */
#include "commands/models/model_switch.h"
#include "base/clock.h"
#include "commands/bench/traffic.h"
#include "commands/models/beside.h"
#include "commands/models/changeover.h"
#include "commands/models/in_turn.h"
#include "commands/models/many.h"
#include "commands/models/switch_report.h"

#include <stdlib.h>
#include <time.h>

#define DEFAULT_REPETITIONS 5
#define DEFAULT_WARMUPS     1
#define DEFAULT_GEN         128 /* of --n-gen, if it is not given */
#define REST                1.0 /* s that the model of --beside runs alone before each switch */

enum { SLOT_SWITCHED, SLOT_BESIDE, N_SLOTS }; /* numbers of models in plans */

enum stage {
    STAGE_REST, /* no request */
    STAGE_OPEN, /* a request has come: the next model must be requested */
    STAGE_LOAD, /* it is being loaded */
    STAGE_TOKEN /* it runs */
};

struct model_switch { /* rank 0's */
    const struct bench_options *o;
    struct model_folder model[3]; /* the third: of --beside */
    struct changeover changeover;
    struct traffic traffic;
    struct beside beside;
    enum stage stage;
    int loading, turn;           /* slots: of the model being loaded; of the one whose steps go first */
    int n_outstanding[N_SLOTS];  /* plans with sequences, results not taken */
    bool fed[SCHEDULER_FLIGHTS]; /* the plan of a step had sequences */
    bool queued;
    enum meanwhile changed; /* by the preceding plan; MEANWHILE_NOTHING: it was a step */
    int round, n_rounds;    /* even ones are to the first model; the very first, number -1, is not counted */
    double rests_until;     /* seconds_now() */
    struct switch_figures figures;
};

static int model_of(const struct model_switch *s)
{
    return s->loading == SLOT_BESIDE ? 2 : s->round & 1;
}

/* ---- of struct changeover_owner ---- */

static void gone(void *context, int slot)
{
    (void)slot;
    traffic_close(&((struct model_switch *)context)->traffic);
}

/* The model beside is there. */
static int begin_beside(struct model_switch *s, struct limits *limits, struct err *e)
{
    struct traffic *t = &s->beside.traffic;
    s->loading = SLOT_SWITCHED;
    s->stage = STAGE_REST;
    if (changeover_join(&s->changeover, SLOT_BESIDE, &t->scheduler, t->source, e) != 0)
        return -1;
    return beside_start(&s->beside, (int)s->o->batch, (int)s->o->n_prompt, limits,
                        s->changeover.loaded[SLOT_BESIDE]->config.vocab, e);
}

/* A request for one token. */
static int begin_round(void *context, int slot, struct limits *limits, struct err *e)
{
    struct model_switch *s = context;
    if (slot == SLOT_BESIDE)
        return begin_beside(s, limits, e);
    s->queued = false;
    s->stage = STAGE_TOKEN;
    s->turn = SLOT_BESIDE; /* so its step shows the cost of the change */
    if (changeover_join(&s->changeover, slot, &s->traffic.scheduler, s->traffic.source, e) != 0)
        return -1;
    return traffic_open(&s->traffic, 1, (int)s->o->n_prompt, 1, limits, s->changeover.loaded[slot]->config.vocab, e);
}

/* ---- the loop's client ---- */

/* The next step of the model in a slot, with the arena's block numbers; without sequences, if it has none. */
static int plan_slot(struct model_switch *s, int slot, struct plan *p, struct err *e)
{
    p->model = slot;
    units_note(&s->changeover.units, slot, true);
    if (slot == SLOT_BESIDE) {
        if (beside_plan(&s->beside, p, e) != 0)
            return -1;
    } else {
        if (!s->queued && traffic_queue(&s->traffic, seconds_now(), e) != 0)
            return -1;
        s->queued = true;
        traffic_plan(&s->traffic, p, seconds_now());
    }
    changeover_number(&s->changeover, slot, p);
    s->fed[p->step % SCHEDULER_FLIGHTS] = p->n_seqs > 0;
    s->n_outstanding[slot] += p->n_seqs > 0;
    return 0;
}

/* A step of one of the running models, in turn; empty ones wait for steps in flight. */
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

static enum meanwhile change_of(enum plan_kind kind)
{
    return kind == PLAN_DROP ? MEANWHILE_UNLOAD : kind == PLAN_LOAD ? MEANWHILE_BEGIN : MEANWHILE_COMMIT;
}

/* The next change of the models, or the end: returns 0; 1: there is none now. Between two changes the other model has a
 * step, as with a server. */
static int plan_change(struct model_switch *s, struct plan *p, struct err *e)
{
    beside_note(&s->beside, s->changed); /* its steps before the change have been taken */
    s->changed = MEANWHILE_NOTHING;
    if (s->stage == STAGE_REST && seconds_now() >= s->rests_until)
        s->stage = STAGE_OPEN;
    if (s->stage == STAGE_OPEN && s->round == s->n_rounds) {
        p->kind = PLAN_STOP;
        return 0;
    }
    if (s->stage == STAGE_OPEN) {
        if (changeover_ask(&s->changeover, s->loading, &s->model[model_of(s)], e) != 0)
            return -1;
        s->stage = STAGE_LOAD;
    }
    int changed = changeover_plan(&s->changeover, p, beside_waits(&s->beside), s->beside.running, e);
    if (changed == 0)
        s->changed = change_of((enum plan_kind)p->kind);
    else if (s->changeover.stage == CHANGEOVER_OPENING || s->changeover.stage == CHANGEOVER_WAITS)
        beside_note(&s->beside, MEANWHILE_READ);
    return changed;
}

static int next_plan(void *context, struct plan *p, struct err *e)
{
    struct model_switch *s = context;
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
    changeover_note_token(&s->changeover, now);
    if (s->round >= 2 * s->figures.warmups)
        switch_figures_add(&s->figures, model_of(s), s->changeover.part);
    s->round++;
    if (s->round <= 2 * s->figures.warmups)
        beside_forget(&s->beside);
    s->rests_until = s->beside.running ? now + REST : now;
    s->stage = STAGE_REST;
    return 0;
}

static int accept_result(void *context, const struct step_result *result, struct err *e)
{
    struct model_switch *s = context;
    s->n_outstanding[result->model] -= s->fed[result->step % SCHEDULER_FLIGHTS];
    if (result->model == SLOT_BESIDE)
        return beside_accept(&s->beside, result, e);
    beside_note(&s->beside, MEANWHILE_TOKEN);
    if (s->stage != STAGE_TOKEN) /* empty, and after the token */
        return 0;
    return take_token(s, result, e);
}

/* ---- opening and closing ---- */

/* Options of other measurements, and of single-model runs. */
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
    return many_check_run(&o->run, "model-switch", e);
}

static int open_switch(void *context, int n_ranks, struct err *e)
{
    struct model_switch *s = context;
    const struct bench_options *o = s->o;
    struct run_options run = o->run;
    run.max_batch = run.max_model_len = -1; /* as a server has them */
    changeover_open(&s->changeover, &run, &(struct changeover_owner){s, gone, begin_round});
    s->figures.warmups = o->warmup >= 0 ? (int)o->warmup : DEFAULT_WARMUPS;
    s->figures.repetitions = o->repetitions >= 0 ? (int)o->repetitions : DEFAULT_REPETITIONS;
    s->round = -1;
    s->loading = o->beside != NULL ? SLOT_BESIDE : SLOT_SWITCHED;
    s->stage = STAGE_OPEN;
    s->n_rounds = 2 * (s->figures.warmups + s->figures.repetitions);
    if (check_options(o, n_ranks, e) != 0 || model_folders_find(s->model, 2, 2, "model-switch", o->model_switch, e) < 0)
        return -1;
    return o->beside == NULL || model_folders_find(&s->model[2], 1, 1, "beside", o->beside, e) > 0 ? 0 : -1;
}

static void report_switches(void *context, const char *device, int n_ranks, struct err *e)
{
    const struct model_switch *s = context;
    const struct switch_about about = {{s->model[0].name, s->model[1].name},
                                       device,
                                       n_ranks,
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

static void close_switch(void *context)
{
    struct model_switch *s = context;
    traffic_close(&s->traffic);
    beside_close(&s->beside);
    changeover_close(&s->changeover);
}

static void masks(void *context, struct plan *p)
{
    traffic_masks(&((struct model_switch *)context)->traffic, p);
}

int model_switch_run(struct world *w, const struct bench_options *o, struct err *e)
{
    struct model_switch *s = err_calloc(e, 1, sizeof *s, "models");
    if (s != NULL)
        s->o = o;
    const struct in_turn job = {.run = &o->run,
                                .changeover = s != NULL ? &s->changeover : NULL,
                                .client = {.context = s, .next = next_plan, .accept = accept_result, .masks = masks},
                                .open = open_switch,
                                .report = report_switches,
                                .close = close_switch};
    in_turn_run(w, &job, e);
    free(s);
    return 0;
}
