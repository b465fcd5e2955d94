/* commands/models/generate_models.c - see generate_models.h. One place for a model: each comes when the one before it
 * has answered all prompts. */
#include "commands/models/generate_models.h"
#include "base/clock.h"
#include "commands/generate.h"
#include "commands/models/changeover.h"
#include "commands/models/in_turn.h"
#include "commands/models/many.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 64 /* models */

struct model_turns { /* rank 0's */
    struct generate_options o;
    struct model_folder model[MOST];
    double part[MOST][N_SWITCH_PARTS]; /* s, of the switch to each */
    int n, turn;                       /* turn: the model that runs, or is being loaded */
    bool running, asked;
    int status;
    struct changeover changeover;
    struct generate generate;
};

/* ---- of struct changeover_owner ---- */

static void gone(void *context, int place)
{
    (void)place;
    generate_close(&((struct model_turns *)context)->generate);
}

static int begin_turn(void *context, int place, struct limits *limits, struct err *e)
{
    struct model_turns *t = context;
    struct opened_model *opened = t->changeover.loaded[place];
    const struct generate_model model = {.name = t->model[t->turn].name,
                                         .config = &opened->config,
                                         .texts = &opened->lasting->texts,
                                         .goes_on = t->turn > 0};
    t->o.run.model = opened->dir;
    if (generate_open(&t->generate, &t->o, &model, e) != 0 ||
        changeover_join(&t->changeover, place, &t->generate.scheduler, t->generate.source, e) != 0)
        return -1;
    t->running = true;
    return generate_start(&t->generate, limits, e);
}

/* ---- the loop's client ---- */

/* All prompts were answered: the next model's turn. */
static void finish_turn(struct model_turns *t, struct err *e)
{
    int status = generate_status(&t->generate, e);
    t->status = status != ERR_NONE ? status : t->status;
    memcpy(t->part[t->turn], t->changeover.part, sizeof t->part[t->turn]);
    t->running = t->asked = false;
    t->turn++;
}

static int plan_step(struct model_turns *t, struct plan *p, struct err *e)
{
    units_note(&t->changeover.units, 0, true);
    if (generate_next(&t->generate, p, e) != 0)
        return -1;
    changeover_number(&t->changeover, 0, p);
    return 0;
}

static int next_plan(void *context, struct plan *p, struct err *e)
{
    struct model_turns *t = context;
    const struct timespec moment = {0, 50000};
    if (t->running && !scheduler_busy(&t->generate.scheduler))
        finish_turn(t, e);
    if (e->code != ERR_NONE)
        return -1;
    if (t->turn == t->n) {
        p->kind = PLAN_STOP;
        return 0;
    }
    if (!t->asked && changeover_ask(&t->changeover, 0, &t->model[t->turn], e) != 0)
        return -1;
    t->asked = true;
    int changed = changeover_plan(&t->changeover, p, false, false, e);
    if (changed != 1)
        return changed;
    if (t->running)
        return plan_step(t, p, e);
    (void)nanosleep(&moment, NULL);
    return PLAN_IDLE;
}

static int accept_result(void *context, const struct step_result *result, struct err *e)
{
    struct model_turns *t = context;
    if (!t->running) /* empty, and after the last token */
        return 0;
    if (generate_accept(&t->generate, result, e) != 0)
        return -1;
    if (t->generate.first_token > 0 && t->changeover.part[SWITCH_ALL] == 0)
        changeover_note_token(&t->changeover, t->generate.first_token);
    return 0;
}

static void masks(void *context, struct plan *p)
{
    struct model_turns *t = context;
    if (t->running)
        generate_masks(&t->generate, p);
}

/* ---- opening and closing ---- */

static int check_options(const struct generate_options *o, int n_ranks, struct err *e)
{
    if (run_replica_size(&o->run, n_ranks) != n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %lld and --model-switch: every model is on all %d ranks",
                   (long long)o->run.tensor_parallel, n_ranks);
    if (o->prompts != NULL && strcmp(o->prompts, "-") == 0)
        return ERR(e, ERR_USAGE, "--prompts - and --model-switch: every model reads the prompts, expected a file");
    return many_check_run(&o->run, "model-switch", e);
}

static int open_turns(void *context, int n_ranks, struct err *e)
{
    struct model_turns *t = context;
    const struct generate_options *o = &t->o;
    changeover_open(&t->changeover, &o->run, &(struct changeover_owner){t, gone, begin_turn});
    if (check_options(o, n_ranks, e) != 0)
        return -1;
    t->n = model_folders_find(t->model, 2, MOST, "model-switch", o->model_switch, e);
    return t->n < 0 ? -1 : 0;
}

/* The first one found no model in its place. */
static void report_turns(void *context, const char *device, int n_ranks, struct err *e)
{
    const struct model_turns *t = context;
    double sum = 0;
    (void)e; /* errors of standard error are ignored */
    (void)fprintf(stderr,
                  "model switches on %s, %d rank%s: milliseconds from the last answer of a model to the first token of "
                  "the next one\n",
                  device, n_ranks, n_ranks == 1 ? "" : "s");
    for (int i = 0; i < t->n; i++) {
        switch_report_one(stderr, t->model[i].name, t->part[i]);
        sum += i > 0 ? t->part[i][SWITCH_ALL] : 0;
    }
    (void)fprintf(stderr, "%d switch%s after the first model: %.3f ms\n", t->n - 1, t->n == 2 ? "" : "es", 1e3 * sum);
}

static void close_turns(void *context)
{
    struct model_turns *t = context;
    generate_close(&t->generate);
    changeover_close(&t->changeover);
}

int generate_models(struct world *w, const struct generate_options *o, struct err *e)
{
    struct model_turns *t = err_calloc(e, 1, sizeof *t, "models");
    if (t != NULL)
        t->o = *o;
    const struct in_turn job = {.run = &o->run,
                                .changeover = t != NULL ? &t->changeover : NULL,
                                .client = {.context = t, .next = next_plan, .accept = accept_result, .masks = masks},
                                .open = open_turns,
                                .report = report_turns,
                                .close = close_turns};
    in_turn_run(w, &job, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a failure has ended in in_turn_run() */
    int status = t->status;
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    free(t);
    return status;
}
