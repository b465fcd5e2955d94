/* tests/spmd/test_beams.c - beam search finds the same hypotheses in the same order with the same scores as Hugging
 * Face transformers (tests/parity/beams.json, made by make_beams.py), on any number of ranks; all searches at once,
 * with room for all of them, and with so little that their sequences are parked and preempted. */
#include "coordinator/schedule/choices.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/scheduled.h"
#include "tests/support/tap.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 16 /* cases of one checkpoint */
#define MAX_LEN   48

struct search_case {
    const json_t *json;
    struct request_rules rules;
    struct choices choices;
    bool same;
    char reason[200];
};

struct run {
    struct scheduler scheduler;
    struct choices_events events;
    struct search_case search[MAX_CASES];
    int n, n_finished;
};

static int number(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static enum early_stopping early_stopping(const json_t *value)
{
    return json_is_string(value) ? EARLY_STOPPING_NEVER
           : json_is_true(value) ? EARLY_STOPPING_TRUE
                                 : EARLY_STOPPING_FALSE;
}

/* ---- hypotheses ---- */

static bool same_hypothesis(const struct request *r, float score, const json_t *want)
{
    const json_t *ids = json_object_get(want, "ids");
    bool same = r->output.n == json_array_size(ids);
    for (size_t i = 0; i < r->output.n && same; i++)
        same = r->output.id[i] == json_integer_value(json_array_get(ids, i));
    return same && fabs(score - json_number_value(json_object_get(want, "score"))) <= 2e-4;
}

static void on_finish(void *context, struct choices *set)
{
    struct run *run = context;
    struct search_case *c = set->owner;
    const json_t *found = json_object_get(c->json, "found");
    run->n_finished++;
    c->same = set->finish == FINISH_STOP && (int)json_array_size(found) == set->search.n;
    for (int i = 0; i < set->search.n; i++) {
        if (same_hypothesis(set->choice[i], set->score[i], json_array_get(found, (size_t)i)))
            continue;
        c->same = false;
        char *want = json_dumps(json_array_get(found, (size_t)i), JSON_COMPACT);
        (void)snprintf(c->reason, sizeof c->reason, "hypothesis %d: %zu tokens, score %g, expected %.120s", i,
                       set->choice[i]->output.n, (double)set->score[i], want);
        free(want);
        return;
    }
}

static void on_choice(void *context, struct choices *set, int i)
{
    (void)context;
    (void)set;
    (void)i;
}

static void on_release(void *context, struct choices *set)
{
    (void)context;
    choices_close(set);
}

/* ---- the run ---- */

static void submit(struct run *run, const json_t *json)
{
    struct err e = {0};
    struct search_case *c = &run->search[run->n++];
    const json_t *prompt = json_object_get(json, "prompt"), *eos = json_object_get(json, "eos");
    size_t n = json_array_size(prompt);
    struct token_list ids = {calloc(n, sizeof *ids.id), n, n};
    const struct search how = {
        .n = number(json, "n"),
        .num_beams = number(json, "num_beams"),
        .beam = {json_number_value(json_object_get(json, "length_penalty")),
                 early_stopping(json_object_get(json, "early_stopping"))},
    };
    c->json = json;
    c->rules.sampling =
        (struct sampling){.top_p = 1, .repetition_penalty = 1, .min_tokens = number(json, "min_tokens")};
    c->rules.max_tokens = number(json, "max_tokens");
    for (size_t i = 0; i < n && ids.id != NULL; i++)
        ids.id[i] = (int32_t)json_integer_value(json_array_get(prompt, i));
    for (size_t i = 0; i < json_array_size(eos); i++)
        c->rules.stop_id[c->rules.n_stop_ids++] = (int32_t)json_integer_value(json_array_get(eos, i));
    const char *field;
    if (search_check(&how, &c->rules, &field, &e) != 0 || choices_open(&c->choices, &how, &c->rules, &ids, &e) != 0)
        fatal(&e);
    c->choices.owner = c;
    if (choices_submit(&c->choices, &run->scheduler, 0, &e) != 0)
        fatal(&e);
}

static void open_instance(struct instance *i, struct world *w, const char *model, const struct limits *l)
{
    char dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = *l, .kv_bytes = -1, .threads = 1, .progress = PROGRESS_NEVER};
    (void)snprintf(dir, sizeof dir, "tests/parity/fixtures/%s", model);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(i, w, &m, &c, &setup, &e);
}

static void check_beams(struct world *w, const json_t *cases, const char *model, const struct limits *l, bool caching)
{
    static struct run run;
    struct err e = {0};
    struct instance instance;
    const struct loop_client client = {.context = &run.scheduler, .next = scheduled_next, .accept = scheduled_accept};
    memset(&run, 0, sizeof run);
    run.events = (struct choices_events){on_choice, on_finish, on_release, &run};
    const struct scheduler_setup setup = {.limits = *l,
                                          .prefix_caching = caching,
                                          .on_progress = choices_on_progress,
                                          .on_release = choices_on_release,
                                          .context = &run.events};
    open_instance(&instance, w, model, l);
    size_t i;
    json_t *object;
    if (w->rank == 0 && scheduler_open(&run.scheduler, &setup, &e) == 0)
        json_array_foreach(cases, i, object) if (strcmp(json_string_value(json_object_get(object, "model")), model) ==
                                                 0) submit(&run, object);
    fatal_agree(w, &e);
    loop_run(&instance.engine, &client, &e);
    int n = run.n, preempted = (int)run.scheduler.stats.n_preemptions;
    MPI_CHECK(MPI_Bcast(&n, 1, MPI_INT, 0, w->comm));
    for (int k = 0; k < n; k++)
        tap_all(w->rank != 0 || run.search[k].same, run.search[k].reason,
                "%s on %d ranks, %d blocks, cache %s: search %d", model, w->n_ranks, l->n_blocks,
                caching ? "on" : "off", k);
    tap_all(w->rank != 0 || (run.n_finished == n && n > 10), "searches are missing", "%s: all searches end", model);
    tap_all(w->rank != 0 || (preempted > 0) == (l->n_blocks < 30), "others were preempted",
            "%s, %d blocks: preemptions", model, l->n_blocks);
    scheduler_close(&run.scheduler);
    instance_close(&instance);
}

int main(int argc, char **argv)
{
    static const char *const model[] = {"llama-14-2-gelu", "gptj-3h", "opt-pre"};
    static const struct limits roomy = {.max_seqs = 96,
                                        .max_batch_tokens = 256,
                                        .max_len = MAX_LEN,
                                        .max_logit_rows = 96,
                                        .n_blocks = 288},
                               tight = {5, 40, MAX_LEN, 5, 8, 0, 0, 0, 0, 0, 0, 0, 0};
    struct err e = {0};
    struct world w;
    json_error_t error;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    json_t *cases = json_load_file("tests/parity/beams.json", 0, &error);
    tap_all(json_array_size(cases) == 42, error.text, "beams.json has its cases");
    for (size_t i = 0; i < sizeof model / sizeof model[0]; i++) {
        check_beams(&w, cases, model[i], &roomy, true);
        check_beams(&w, cases, model[i], &tight, true);
        check_beams(&w, cases, model[i], &tight, false);
    }
    json_decref(cases);
    int status = tap_done();
    world_close(&w);
    return status;
}
