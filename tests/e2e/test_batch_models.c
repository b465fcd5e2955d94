/* tests/e2e/test_batch_models.c - `lockstep batch --models-dir`: lines that name their models, in turn, with room for
 * one model at a time. Each model is loaded once, every text is the one that the model alone gives, and a killed run
 * resumes with the missing lines. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_MODELS 3
#define N_LINES  120 /* lines for good models, in turn */

static const char *const fixture[N_MODELS] = {"llama-bf16", "gpt2-3h", "opt-pre"};

static char dir[256], models[300];
static struct batch_results wanted; /* of all good lines, from runs of one model each */

static void place_models(void)
{
    char made[256], path[400];
    (void)snprintf(models, sizeof models, "%s/models", dir);
    case_check(mkdir(models, 0700) == 0, "cannot make %s", models);
    for (int i = 0; i <= N_MODELS; i++) {
        models_fixture(made, fixture[i % N_MODELS]);
        (void)snprintf(path, sizeof path, "%s/%s", models, i < N_MODELS ? fixture[i] : "broken");
        case_check(rename(made, path) == 0, "cannot make %s", path);
    }
    (void)snprintf(path, sizeof path, "%s/broken/config.json", models);
    case_check(truncate(path, 10) == 0, "cannot cut %s", path);
}

/* Writes lines of one model, or (-1) of all in turn; then, if bad, lines that cannot be answered. */
static void write_lines(const char *name, int only, bool bad)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < N_LINES; i++)
        if (only < 0 || i % N_MODELS == only)
            fprintf(f, "{\"id\":\"r%d\",\"model\":\"%s%s\",\"prompt\":[%d,%d],\"max_tokens\":24,\"ignore_eos\":true}\n",
                    i, fixture[i % N_MODELS], only < 0 && i % 10 == 0 ? ".tar.gz" : "", 5 + i % 80, 7 + i % 60);
    if (bad)
        fputs(
            "{\"id\":\"cut\",\"model\":\"broken\",\"prompt\":[5]}\n{\"id\":\"none\",\"prompt\":[5]}\n"
            "{\"id\":\"nobody\",\"model\":\"nobody\",\"prompt\":[5]}\n{\"id\":\"number\",\"model\":5,\"prompt\":[5]}\n"
            "{\"id\":\"large\",\"model\":\"opt-pre\",\"prompt\":[5],\"top_p\":7}\n",
            f);
    fclose(f);
    files_write(dir, name, text, bytes);
    free(text);
}

/* env: as in struct process_setup. */
static void start_with(struct process *p, int ranks, const char *input, const char *output, const char *option,
                       const char *value, const char *more, const char *const *env)
{
    static char in[300], out[300];
    const char *const arguments[] = {"batch",       option,      value, "--input",    in,      "--output",       out,
                                     "--plain",     "--threads", "1",   "--progress", "never", "--sync-seconds", "0",
                                     "--max-batch", "4",         more,  NULL};
    const struct process_setup setup = {.ranks = ranks, .limit = 120, .env = env};
    (void)snprintf(in, sizeof in, "%s/%s", dir, input);
    (void)snprintf(out, sizeof out, "%s/%s", dir, output);
    process_start(p, &setup, arguments);
}

static void start_batch(struct process *p, int ranks, const char *input, const char *output, const char *option,
                        const char *value, const char *more)
{
    start_with(p, ranks, input, output, option, value, more, NULL);
}

static void run_batch(struct process *p, int ranks, const char *input, const char *output, const char *more)
{
    start_batch(p, ranks, input, output, "--models-dir", models, more);
    process_wait(p);
}

/* Obtains the texts of each model alone. */
static void alone(void)
{
    wanted.by_id = json_object();
    case_begin("batch of one model, %d times", N_MODELS);
    for (int i = 0; i < N_MODELS; i++) {
        struct process p;
        struct batch_results r;
        char path[400], output[20];
        (void)snprintf(path, sizeof path, "%s/%s", models, fixture[i]);
        (void)snprintf(output, sizeof output, "alone.%d", i);
        write_lines("alone.jsonl", i, false);
        start_batch(&p, 1, "alone.jsonl", output, "--model", path, NULL);
        process_wait(&p);
        batching_read(&r, dir, output);
        case_check(p.status == 0 && r.n == N_LINES / N_MODELS, "%s: status %d, %d results: %s", fixture[i], p.status,
                   r.n, p.text[PROCESS_ERR]);
        (void)json_object_update(wanted.by_id, r.by_id);
        wanted.n += r.n;
        batching_free(&r);
        process_free(&p);
    }
    case_end();
}

static double switches(const char *output, const char *key)
{
    char path[60];
    (void)snprintf(path, sizeof path, "switches/%s", key);
    json_t *value = batching_manifest(dir, output, path);
    double n = json_is_number(value) ? json_number_value(value) : -1;
    json_decref(value);
    return n;
}

/* The good lines of an output equal those of the models alone. */
static void check_texts(const struct batch_results *r)
{
    int n_good = 0, n_other = 0;
    const char *id;
    json_t *line;
    json_object_foreach(wanted.by_id, id, line)
    {
        const json_t *found = json_object_get(r->by_id, id);
        n_good += found != NULL;
        n_other += found != NULL && strcmp(batching_text(found), batching_text(line)) != 0;
    }
    case_check(n_good == N_LINES && n_other == 0 && r->n_twice == 0 && r->torn == 0,
               "%d of %d results, %d with another text, %d twice", n_good, N_LINES, n_other, r->n_twice);
}

static int code_of(const struct batch_results *r, const char *id)
{
    return (int)json_integer_value(json_object_get(json_object_get(json_object_get(r->by_id, id), "error"), "code"));
}

static void in_turn(int ranks)
{
    struct process p;
    struct batch_results r;
    char output[20];
    case_begin("batch of %d models in turn with room for one, on %d ranks", N_MODELS, ranks);
    (void)snprintf(output, sizeof output, "turn.%d", ranks);
    write_lines("turn.jsonl", -1, true);
    run_batch(&p, ranks, "turn.jsonl", output, "--max-models=1");
    batching_read(&r, dir, output);
    case_check(p.status == 1 && r.n == N_LINES + 5, "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    check_texts(&r);
    case_check(code_of(&r, "cut") == 500 && code_of(&r, "none") == 400 && code_of(&r, "nobody") == 404 &&
                   code_of(&r, "number") == 400 && code_of(&r, "large") == 400,
               "codes %d %d %d %d %d", code_of(&r, "cut"), code_of(&r, "none"), code_of(&r, "nobody"),
               code_of(&r, "number"), code_of(&r, "large"));
    case_check(switches(output, "loads") == N_MODELS && switches(output, "unloads") == N_MODELS - 1 &&
                   switches(output, "seconds") > 0 && switches(output, "idle_seconds") > 0,
               "%g loads, %g unloads, %g s, %g s idle", switches(output, "loads"), switches(output, "unloads"),
               switches(output, "seconds"), switches(output, "idle_seconds"));
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* Several models fit at once: none is unloaded. */
static void side_by_side(void)
{
    struct process p;
    struct batch_results r;
    case_begin("batch of %d models side by side", N_MODELS);
    write_lines("side.jsonl", -1, false);
    run_batch(&p, 2, "side.jsonl", "side.out", "--ordered");
    batching_read(&r, dir, "side.out");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_texts(&r);
    case_check(strcmp(r.order[0], "r0") == 0 && strcmp(r.order[r.n - 1], "r119") == 0, "the order of the input");
    case_check(switches("side.out", "loads") == N_MODELS && switches("side.out", "unloads") == 0,
               "%g loads, %g unloads", switches("side.out", "loads"), switches("side.out", "unloads"));
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* Sets of one rank, each with room for one model: two models run at once. */
static void on_sets(void)
{
    static const char *const env[] = {"LOCKSTEP_TENSOR_PARALLEL=1", "LOCKSTEP_MAX_MODELS=1", NULL};
    struct process p;
    struct batch_results r;
    case_begin("batch of %d models on two sets of ranks", N_MODELS);
    write_lines("sets.jsonl", -1, true);
    start_with(&p, 2, "sets.jsonl", "sets.out", "--models-dir", models, NULL, env);
    process_wait(&p);
    batching_read(&r, dir, "sets.out");
    case_check(p.status == 1 && r.n == N_LINES + 5, "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    check_texts(&r);
    case_check(code_of(&r, "cut") == 500, "code %d", code_of(&r, "cut"));
    case_check(switches("sets.out", "loads") == N_MODELS && switches("sets.out", "unloads") == 1,
               "%g loads, %g unloads: %s", switches("sets.out", "loads"), switches("sets.out", "unloads"),
               p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* Lines of one model run on two of three sets of ranks. */
static void on_replicas(void)
{
    static const char *const env[] = {"LOCKSTEP_TENSOR_PARALLEL=1", "LOCKSTEP_REPLICAS=llama-bf16=2", NULL};
    struct process p;
    struct batch_results r;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    case_begin("batch of one model with two replicas");
    for (int i = 0; i < N_LINES; i++)
        fprintf(f, "{\"id\":%d,\"model\":\"llama-bf16\",\"prompt\":[%d],\"max_tokens\":90,\"ignore_eos\":true}\n", i,
                5 + i % 80);
    fclose(f);
    files_write(dir, "hot.jsonl", text, bytes);
    free(text);
    start_with(&p, 3, "hot.jsonl", "hot.out", "--models-dir", models, "--verbose", env);
    process_wait(&p);
    batching_read(&r, dir, "hot.out");
    case_check(p.status == 0 && r.n == N_LINES, "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    case_check(switches("hot.out", "loads") == 2 && strstr(p.text[PROCESS_ERR], "replica 0: ") != NULL &&
                   strstr(p.text[PROCESS_ERR], "replica 16: ") != NULL,
               "%g loads: %s", switches("hot.out", "loads"), p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

static void killed(void)
{
    struct process p;
    struct batch_results r;
    struct stat st;
    char path[300];
    case_begin("batch of %d models: a rank is killed, and the next run goes on", N_MODELS);
    write_lines("kill.jsonl", -1, false);
    (void)snprintf(path, sizeof path, "%s/kill.out", dir);
    start_batch(&p, 2, "kill.jsonl", "kill.out", "--models-dir", models, "--max-models=1");
    while (!p.ended && (stat(path, &st) != 0 || st.st_size < 500))
        process_watch(&p, 0.005, SIZE_MAX);
    pid_t rank = process_of_rank(&p, 1);
    case_check(rank > 0 && kill(rank, SIGKILL) == 0, "it ended before it was killed");
    process_wait(&p);
    case_check(p.status != 0, "status %d", p.status);
    process_free(&p);
    run_batch(&p, 3, "kill.jsonl", "kill.out", "--max-models=1");
    batching_read(&r, dir, "kill.out");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_texts(&r);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* Other weights stand under the name of a model that already has results. */
static void changed(void)
{
    struct process p;
    char path[700];
    case_begin("batch of %d models: one has changed", N_MODELS);
    (void)snprintf(path, sizeof path, "%s/%s", models, "opt-pre");
    models_edit(path, "config.json", "bos_token_id", "7");
    files_write_text(dir, "new.jsonl", "{\"id\":\"new\",\"model\":\"opt-pre\",\"prompt\":[5]}\n");
    run_batch(&p, 1, "new.jsonl", "kill.out", NULL);
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR], "models.opt-pre.config_sha256") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    run_batch(&p, 1, "new.jsonl", "kill.out", "--force");
    case_check(p.status == 0, "--force: status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* Contradictory options, and an option that cannot be obeyed. */
static void options(void)
{
    struct process p;
    case_begin("batch of many models: options");
    start_batch(&p, 1, "kill.jsonl", "options.out", "--model-memory", "1G", NULL);
    process_wait(&p);
    case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "batch needs --model DIR or --models-dir DIR") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    static const char *const lonely[] = {"--model-memory=1G", "--max-models=3", "--host-cache=1G",
                                         "--models-cache-bytes=1G", "--replicas=a=2"};
    for (size_t i = 0; i < sizeof lonely / sizeof *lonely; i++) {
        start_batch(&p, 1, "kill.jsonl", "options.out", "--model", models_demo(), lonely[i]);
        process_wait(&p);
        case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "needs --models-dir DIR") != NULL, "%s: status %d: %s",
                   lonely[i], p.status, p.text[PROCESS_ERR]);
        process_free(&p);
    }
    run_batch(&p, 1, "kill.jsonl", "options.out", "--model-memory=900T");
    case_check(p.status != 2 && strstr(p.text[PROCESS_ERR], "--model-memory: found 921600.00 GiB") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    run_batch(&p, 1, "kill.jsonl", "options.out", "--model=x");
    case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "expected one of them") != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    place_models();
    alone();
    for (int ranks = 1; ranks <= 3; ranks++)
        in_turn(ranks);
    side_by_side();
    on_sets();
    on_replicas();
    killed();
    options();
    changed();
    batching_free(&wanted);
    files_remove_dir(dir);
    return cases_done();
}
