/* commands/models/model_switch.c - see model_switch.h. One place for a model; rank 0 opens the next one, has the other
 * dropped, the next one loaded and committed, and asks it for a token. */
#include "commands/models/model_switch.h"
#include "base/clock.h"
#include "commands/bench/traffic.h"
#include "commands/models/model_memory.h"
#include "commands/models/opened_model.h"
#include "commands/models/switch_report.h"
#include "rank/instance/residents.h"
#include "rank/world/fatal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOT                0
#define DEFAULT_REPETITIONS 5
#define DEFAULT_WARMUPS     1
#define DEFAULT_GEN         128 /* of --n-gen, if it is not given */

enum stage {
    STAGE_OPEN,   /* a request has come: the next model is to be opened */
    STAGE_LOAD,   /* nothing is loaded */
    STAGE_WAIT,   /* a plan is being carried out: what comes of it will be heard */
    STAGE_COMMIT, /* all ranks have read it */
    STAGE_TOKEN   /* it runs */
};

struct model_switch { /* rank 0's */
    const struct bench_options *o;
    struct service_options service;
    char dir[2][PATH_MAX]; /* of the folders that the models are in; their names stand behind */
    const char *name[2];
    const struct ops *ops;
    int n_ranks;
    struct model_memory memory;
    struct shelf shelf;
    struct opened_model *opened, *loaded; /* on its way in; and there */
    struct traffic traffic;
    enum stage stage;
    bool queued;
    int round, n_rounds;         /* even ones are to the first model; the first of all, number -1, is not counted */
    double began, plan_began;    /* seconds_now() */
    double part[N_SWITCH_PARTS]; /* s, of this round */
    struct err failure;
    struct switch_figures figures;
};

static int model_of(const struct model_switch *s)
{
    return s->round & 1;
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

/* It is there: a request for one token. */
static void begin(struct model_switch *s, const struct residents_news *news)
{
    for (int i = 0; i < N_LOAD_PHASES; i++)
        if (i != LOAD_PHASE_OPEN)
            s->part[SWITCH_OPEN + i] = news->phases.seconds[i];
    s->loaded = s->opened;
    s->opened = NULL;
    (void)traffic_open(&s->traffic, 1, (int)s->o->n_prompt, 1, &news->limits, s->loaded->config.vocab, &s->failure);
    s->queued = false;
    s->stage = STAGE_TOKEN;
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
        opened_model_close(s->loaded, &s->shelf);
        s->loaded = NULL;
        s->stage = STAGE_LOAD;
        return;
    case RESIDENTS_FAILED:
        s->failure = news->why;
        return;
    }
}

/* ---- the loop's client ---- */

static int open_next(struct model_switch *s, struct err *e)
{
    const int i = model_of(s);
    const struct model_place place = {.service = &s->service,
                                      .models_dir = s->dir[i],
                                      .name = s->name[i],
                                      .shelf = &s->shelf,
                                      .ops = s->ops,
                                      .n_ranks = s->n_ranks,
                                      .kv_bytes = (size_t)s->memory.kv};
    int64_t bytes = 0;
    memset(s->part, 0, sizeof s->part);
    s->began = seconds_now();
    s->opened = opened_model_open(&place, &bytes, e);
    s->part[SWITCH_OPEN] = seconds_now() - s->began;
    return s->opened != NULL ? 0 : -1;
}

static int say(struct model_switch *s, struct plan *p, enum plan_kind kind)
{
    p->kind = kind;
    p->model = SLOT;
    s->stage = STAGE_WAIT;
    s->plan_began = seconds_now();
    return 0;
}

/* Its steps; empty ones wait for what is under way. */
static int ask_for_token(struct model_switch *s, struct plan *p, struct err *e)
{
    if (!s->queued && traffic_queue(&s->traffic, seconds_now(), e) != 0)
        return -1;
    s->queued = true;
    p->model = SLOT;
    traffic_plan(&s->traffic, p, seconds_now());
    return 0;
}

static int next(void *context, struct plan *p, struct err *e)
{
    struct model_switch *s = context;
    const struct timespec moment = {0, 50000};
    if (s->failure.code != ERR_NONE) {
        *e = s->failure;
        return -1;
    }
    switch (s->stage) {
    case STAGE_OPEN:
        if (s->round == s->n_rounds) {
            p->kind = PLAN_STOP;
            return 0;
        }
        if (open_next(s, e) != 0)
            return -1;
        return say(s, p, s->loaded != NULL ? PLAN_DROP : PLAN_LOAD);
    case STAGE_LOAD:
        return say(s, p, PLAN_LOAD);
    case STAGE_WAIT:
        (void)nanosleep(&moment, NULL);
        return PLAN_IDLE;
    case STAGE_COMMIT:
        return say(s, p, PLAN_COMMIT);
    case STAGE_TOKEN:
        return ask_for_token(s, p, e);
    }
    return 0;
}

/* The first token ends the round. */
static int take(void *context, const struct step_result *result, struct err *e)
{
    struct model_switch *s = context;
    if (s->stage != STAGE_TOKEN) /* empty, and behind the token */
        return 0;
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
    s->stage = STAGE_OPEN;
    return 0;
}

/* ---- opening and closing ---- */

/* "/models/a,b" are the folder "a" in "/models", and "b" in ".". */
static int find_models(struct model_switch *s, struct err *e)
{
    const char *at = s->o->model_switch, *comma = strchr(at, ',');
    if (comma == NULL || comma == at || comma[1] == '\0' || strchr(comma + 1, ',') != NULL)
        return ERR(e, ERR_USAGE, "--model-switch: found \"%.200s\", expected two folders with a comma between them",
                   at);
    for (int i = 0; i < 2; i++) {
        char given[PATH_MAX];
        (void)snprintf(given, sizeof given, "%.*s", i == 0 ? (int)(comma - at) : PATH_MAX - 1, i == 0 ? at : comma + 1);
        if (realpath(given, s->dir[i]) == NULL)
            return ERR(e, ERR_INPUT, "--model-switch: %.300s: no such folder", given);
        char *slash = strrchr(s->dir[i], '/');
        *slash = '\0';
        s->name[i] = slash + 1;
    }
    return 0;
}

/* Options of other measurements, and of models that are alone. */
static int check_options(const struct bench_options *o, int n_ranks, struct err *e)
{
    const char *given = o->run.model != NULL                ? "model"
                        : o->config != NULL                 ? "config"
                        : o->run.load_format == LOAD_DUMMY  ? "load-format"
                        : o->quantization != NULL           ? "quantization"
                        : o->latency != NULL                ? "latency"
                        : o->throughput != NULL             ? "throughput"
                        : o->num_prompts >= 0               ? "num-prompts"
                        : o->max_batch >= 0                 ? "max-batch"
                        : o->shared_prefix >= 0             ? "shared-prefix"
                        : o->step_times                     ? "step-times"
                        : o->run.max_step_ms > 0            ? "max-step-ms"
                        : o->run.draft_model != NULL        ? "draft-model"
                        : o->run.num_speculative_tokens > 0 ? "num-speculative-tokens"
                        : o->draft_acceptance >= 0          ? "draft-acceptance"
                        : o->drafts_rest != 0               ? "speculative"
                        : o->tokenizer != NULL              ? "tokenizer"
                        : o->json_schema != NULL            ? "json-schema"
                        : o->n_depth != 0                   ? "n-depth"
                        : o->n_gen != DEFAULT_GEN           ? "n-gen"
                        : o->batch != 1                     ? "batch"
                        : o->profile                        ? "profile"
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
    s->n_rounds = 2 * (s->figures.warmups + s->figures.repetitions);
    shelf_open(&s->shelf);
    return check_options(o, n_ranks, e) == 0 ? find_models(s, e) : -1;
}

static void report(struct model_switch *s, const struct instance *ground, const struct world *w, struct err *e)
{
    const struct switch_about about = {{s->name[0], s->name[1]}, ground->ops->name, w->n_ranks, (int)s->o->n_prompt};
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
    opened_model_close(s->opened, &s->shelf);
    opened_model_close(s->loaded, &s->shelf);
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
