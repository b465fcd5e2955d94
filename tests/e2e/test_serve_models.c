/* tests/e2e/test_serve_models.c - `lockstep serve --models-dir`: forty tiny models of all families, more than fit at
 * once, requested by Zipf's law; every answer is the one of transformers. Broken and too large models among them, ranks
 * that fail, die or are told to end while a model is being read. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/zoo.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define N_REQUESTS 300
#define WINDOW     60 /* requests in flight */
#define N_CLIENTS  6  /* connections */

/* ---- traffic ---- */

static void traffic(const struct serving *s)
{
    struct talk t[N_CLIENTS];
    int n_sent = 0, n_heard = 0, n_wrong = 0, n_refused = 0;
    for (int c = 0; c < N_CLIENTS; c++)
        talk_open(&t[c], ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (double until = seconds_now() + process_patience(240); n_heard < N_REQUESTS && seconds_now() < until;) {
        for (; n_sent < N_REQUESTS && n_sent - n_heard < WINDOW; n_sent++)
            zoo_ask(&t[n_sent % N_CLIENTS], n_sent, zoo_choose());
        for (int c = 0; c < N_CLIENTS; c++)
            for (json_t *reply; (reply = talk_hear(&t[c], 0.002)) != NULL; json_decref(reply)) {
                int number = -1, i = 0;
                n_heard++;
                if (sscanf(talk_text(reply, "request_id"), "%d.%d", &number, &i) != 2 || i < 0 || i >= ZOO_ALL ||
                    !zoo_judge(reply, i)) {
                    char *text = json_dumps(reply, JSON_COMPACT);
                    if (n_wrong++ < 3)
                        printf("# %.400s\n", text);
                    free(text);
                }
                n_refused += i >= ZOO_GOOD;
            }
    }
    for (int c = 0; c < N_CLIENTS; c++)
        talk_close(&t[c]);
    case_check(n_heard == N_REQUESTS, "%d of %d requests were answered", n_heard, N_REQUESTS);
    case_check(n_wrong == 0, "%d answers are wrong", n_wrong);
    case_check(n_refused > 0, "no request for a model that cannot be loaded");
}

/* ---- operations ---- */

static void operations(const struct serving *s)
{
    case_begin("load, unload, pin, wait false, names, on %d ranks", s->ranks);
    for (int i = 0; i < ZOO_GOOD; i++) /* whatever the traffic has left loaded */
        (void)zoo_operate(s, "unload", i, "");
    case_check(zoo_operate(s, "unload", 0, "") == 404, "unload of a model that is not loaded");
    char text[100];
    (void)snprintf(text, sizeof text, "{\"op\":\"load\",\"model\":\"%s\"}", zoo.model[0].name);
    json_t *loaded = talk_ask(s->endpoint, text), *state = json_object_get(loaded, "model");
    case_check(strcmp(talk_text(state, "state"), "ready") == 0 && talk_number(state, "running") == 0,
               "load: state %s, %g running", talk_text(state, "state"), talk_number(state, "running"));
    json_decref(loaded);
    case_check(zoo_operate(s, "load", 0, "") == 409, "load once more");
    case_check(zoo_number(s, 0, "bytes") > 0, "bytes");
    case_check(zoo_operate(s, "pin", 0, "") == 200 && zoo_operate(s, "unload", 0, "") == 409, "pinned");
    case_check(zoo_operate(s, "pin", 0, ",\"pinned\":false") == 200 && zoo_operate(s, "unload", 0, "") == 200 &&
                   zoo_is(s, 0, "known"),
               "still pinned");
    double before = zoo_number(s, 0, "free_before_bytes"), after = zoo_number(s, 0, "free_after_bytes");
    case_check(before > 0 && after - before == zoo_number(s, 0, "freed_bytes") &&
                   serving_metric_of(s, "model_unload_free_after_bytes", "model", zoo.model[0].name) == after,
               "%.0f bytes free before it was unloaded, %.0f after", before, after);
    int code = zoo_story(s, 0, ",\"wait\":false");
    case_check(code == 503, "wait false: %d, expected 503", code);
    for (double until = seconds_now() + process_patience(30); !zoo_is(s, 0, "ready") && seconds_now() < until;)
        continue;
    case_check(zoo_story(s, 0, ",\"wait\":false") == 200, "wait false for a model that was loaded meanwhile");
    case_check(zoo_operate(s, "load", ZOO_LARGE, "") == 507, "too large");
    json_t *reply = talk_ask(s->endpoint, "{\"model\":\"../broken\",\"prompt\":[5]}");
    case_check(talk_number(reply, "code") == 404, "a path is not a name");
    json_decref(reply);
    reply = talk_ask(s->endpoint, "{\"prompt\":[5]}");
    case_check(talk_number(reply, "code") == 400, "no model named");
    json_decref(reply);
    case_end();
}

/* Moves model i's folder to another model's name. */
static void move_folder(int i, const char *name)
{
    char from[600], to[600];
    (void)snprintf(from, sizeof from, "%s/%s", zoo.dir, zoo.model[i].name);
    (void)snprintf(to, sizeof to, "%s/%s", zoo.dir, name);
    case_check(rename(from, to) == 0, "%s cannot become %s", from, to);
}

/* The cached parts of a model's first load belong to its files, not to its name. */
static void replaced(const struct serving *s)
{
    case_begin("a model whose files were replaced while it was unloaded, on %d ranks", s->ranks);
    case_check(zoo_answers_as(s, 0, &zoo.model[0]) && zoo_operate(s, "unload", 0, "") == 200, "%s before any change",
               zoo.model[0].name);
    case_check(zoo_answers_as(s, 0, &zoo.model[0]) && zoo_operate(s, "unload", 0, "") == 200, "%s after an unload",
               zoo.model[0].name);
    (void)zoo_operate(s, "unload", 2, "");
    move_folder(0, "moved");
    move_folder(2, zoo.model[0].name);
    case_check(zoo_answers_as(s, 0, &zoo.model[2]) && zoo_operate(s, "unload", 0, "") == 200,
               "the files of %s were not loaded", zoo.model[2].name);
    move_folder(0, zoo.model[2].name);
    char from[600], to[600];
    (void)snprintf(from, sizeof from, "%s/moved", zoo.dir);
    (void)snprintf(to, sizeof to, "%s/%s", zoo.dir, zoo.model[0].name);
    case_check(rename(from, to) == 0 && zoo_answers_as(s, 0, &zoo.model[0]), "%s again", zoo.model[0].name);
    case_end();
}

/* Two clients load and unload the same models at once: each gets an answer that fits some order of the two, and the
 * final state is the initial one. */
static void two_managers(const struct serving *s)
{
    static const char *const op[] = {"load", "unload"};
    struct talk t[2];
    int strange = 0;
    case_begin("two clients that load and unload at once, on %d ranks", s->ranks);
    for (int k = 0; k < 2; k++)
        talk_open(&t[k], ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (int round = 0; round < 60; round++) {
        for (int k = 0; k < 2; k++)
            talk_say(&t[k], "{\"op\":\"%s\",\"model\":\"%s\"}", op[(round + k * (round / 4)) % 2],
                     zoo.model[2 * (round / 2 % 3)].name);
        for (int k = 0; k < 2; k++) {
            json_t *reply = talk_hear(&t[k], 60);
            double code = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : talk_number(reply, "code");
            strange += code != 200 && code != 404 && code != 409;
            json_decref(reply);
        }
    }
    case_check(strange == 0, "%d answers fit no order", strange);
    for (int i = 0; i < ZOO_GOOD; i++)
        (void)zoo_operate(s, "unload", i, "");
    case_check(serving_metric(s, "models_used_bytes") == 0, "%g bytes are still used",
               serving_metric(s, "models_used_bytes"));
    case_check(zoo_answers_as(s, 2, &zoo.model[2]), "%s answers", zoo.model[2].name);
    for (int k = 0; k < 2; k++)
        talk_close(&t[k]);
    case_end();
}

/* After rounds of loading and unloading, memory has its former size. */
static void rounds(const struct serving *s, int n)
{
    case_begin("%d rounds of load and unload of mixed models leak no memory, on %d ranks", n, s->ranks);
    double before = 0, after;
    for (int k = 0; k < 2 * n; k++) {
        int i = k % 13;
        i = zoo.model[i].there ? i : 0;
        int loaded = zoo_operate(s, "load", i, ""), unloaded = zoo_operate(s, "unload", i, "");
        if (!case_check((loaded == 200 || loaded == 409) && unloaded == 200, "%s: load %d, unload %d",
                        zoo.model[i].name, loaded, unloaded))
            break;
        if (k == n - 1) /* libraries and allocators have filled their caches */
            before = serving_resident(s, s->ranks - 1);
    }
    after = serving_resident(s, s->ranks - 1);
    case_check(after < before + (8 << 20), "%.1f MB resident after %d rounds, %.1f after as many more", before / 1e6, n,
               after / 1e6);
    case_end();
}

/* Every request was counted, and most found their model loaded. */
static void metrics(const struct serving *s)
{
    case_begin("metrics by model, with CloudWatch's names beside Lockstep's, on %d ranks", s->ranks);
    double asked = serving_metric(s, "model_invocations_total"), hits = serving_metric(s, "ModelCacheHit");
    double loads = serving_metric(s, "model_loads_total"), gone = serving_metric(s, "model_unloads_total");
    double failed = serving_metric_of(s, "model_load_failures_total", "model", "broken");
    case_check(asked == N_REQUESTS && serving_metric(s, "Invocations") == asked, "%g requests, expected %d", asked,
               N_REQUESTS);
    case_check(hits > 0 && hits < asked, "%g of %g found their model loaded", hits, asked);
    case_check(loads >= 5 && loads - gone == serving_metric(s, "LoadedModelCount"), "%g loads, %g unloads", loads,
               gone);
    double phases = serving_metric(s, "model_load_phase_seconds_total"),
           loading = serving_metric(s, "ModelLoadingTime");
    case_check(phases > 0 && phases < loading / 1e6, "phases of %g s, expected less than the %g s of loading", phases,
               loading / 1e6);
    case_check(failed >= 1, "%g failures of the broken model", failed);
    double ready = serving_metric_of(s, "model_state", "state", "ready");
    case_check(ready == serving_metric(s, "LoadedModelCount"), "%g models in the state ready", ready);
    case_check(serving_metric(s, "model_idle_seconds") >= 0, "no time since the last use");
    case_check(serving_metric(s, "models_used_bytes") <= serving_metric(s, "models_memory_bytes"),
               "more memory is used than allowed");
    case_end();
}

/* A model that leaves takes nothing from the totals of its place, so that a difference of two scrapes is right. */
static void totals(const struct serving *s)
{
    static const char *const name[] = {"generation_tokens_total", "prompt_tokens_total", "request_success_total",
                                       "engine_steps_total", "engine_step_seconds_total"};
    double before[sizeof name / sizeof name[0]];
    case_begin("totals stay when models are unloaded, on %d ranks", s->ranks);
    case_check(zoo_answers_as(s, 2, &zoo.model[2]), "%s answers", zoo.model[2].name);
    for (size_t k = 0; k < sizeof name / sizeof name[0]; k++)
        before[k] = serving_metric(s, name[k]);
    for (int i = 0; i < ZOO_GOOD; i++)
        (void)zoo_operate(s, "unload", i, "");
    for (size_t k = 0; k < sizeof name / sizeof name[0]; k++) {
        double after = serving_metric(s, name[k]);
        case_check(before[k] > 0 && after >= before[k], "%s: %g after %g", name[k], after, before[k]);
    }
    case_end();
}

/* The server runs warm-up requests before the model counts as loaded: three times two prompts of 16 tokens, with four
 * generated each. */
static void warmups(const struct serving *s)
{
    char path[600];
    case_begin("model_warmup runs before a model counts as loaded, on %d ranks", s->ranks);
    (void)snprintf(path, sizeof path, "%s/%s", zoo.dir, zoo.model[0].name);
    files_write_text(path, "config.pbtxt",
                     "model_warmup { name: \"ids\" batch_size: 2 count: 3 inputs { key: \"ids\" value { data_type: "
                     "TYPE_INT32 dims: [ 16 ] random_data: true } } }\n");
    (void)zoo_operate(s, "unload", 0, "");
    double fed = serving_metric(s, "prompt_tokens_total"), made = serving_metric(s, "generation_tokens_total");
    case_check(zoo_operate(s, "load", 0, "") == 200, "load");
    fed = serving_metric(s, "prompt_tokens_total") - fed;
    made = serving_metric(s, "generation_tokens_total") - made;
    case_check(fed == 3 * 2 * 16 && made == 3 * 2 * 4, "%g prompt tokens, %g generated", fed, made);
    case_check(serving_metric_of(s, "model_load_phase_seconds_total", "phase", "warmup") > 0, "no time is reported");
    case_check(zoo_answers_as(s, 0, &zoo.model[0]), "%s answers", zoo.model[0].name);
    (void)snprintf(path, sizeof path, "%s/%s/config.pbtxt", zoo.dir, zoo.model[0].name);
    case_check(unlink(path) == 0 && zoo_operate(s, "unload", 0, "") == 200, "unload");
    case_end();
}

/* The client's `top` shows the models of a real job. */
static void top(const struct serving *s)
{
    static const char *const argument[] = {"top", "--rendezvous", NULL, "--once", "--interval", "0.1", NULL};
    const char *words[7];
    struct process p;
    char want[100];
    case_begin("top shows the models, on %d ranks", s->ranks);
    case_check(zoo_story(s, 0, "") == 200, "%s is not in use", zoo.model[0].name);
    memcpy(words, argument, sizeof words);
    words[2] = s->rendezvous;
    process_run(&p, &(struct process_setup){.program = "lockstep-client"}, words);
    (void)snprintf(want, sizeof want, "\nmodels     %.0f of %.0f loaded, ", serving_metric(s, "LoadedModelCount"),
                   serving_metric(s, "models_known"));
    const char *at = strstr(p.text[PROCESS_OUT], want);
    case_check(p.status == 0 && at != NULL, "status %d, not \"%s\": %s", p.status, want + 1, p.text[PROCESS_OUT]);
    char state[20] = "", name[64] = "";
    double bytes = 0, kv = -1, idle = -1, loads = 0;
    at = at != NULL ? strstr(at, "  model\n") : NULL; /* the header; the first row was used last */
    case_check(
        at != NULL &&
            sscanf(at, "  model %19s %lf MiB %lf MiB %lf s %lf %63s", state, &bytes, &kv, &idle, &loads, name) == 6 &&
            strcmp(state, "ready") == 0 && bytes > 0 && idle >= 0 && loads >= 1 && strcmp(name, zoo.model[0].name) == 0,
        "%s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

/* The client's bench measures the model that it is told to, and makes the server load it. */
static void measured(const struct serving *s, const char *model, int status, const char *word)
{
    const char *argument[] = {"bench",       "--rendezvous",
                              s->rendezvous, "--num-prompts",
                              "3",           "--random-input-len",
                              "5",           "--random-output-len",
                              "4",           model != NULL ? "--model" : NULL,
                              model,         NULL};
    struct process p;
    process_run(&p, &(struct process_setup){.program = "lockstep-client"}, argument);
    case_check(p.status == status && strstr(p.text[status == 0 ? PROCESS_OUT : PROCESS_ERR], word) != NULL,
               "status %d, expected %d and \"%s\": %s%s", p.status, status, word, p.text[PROCESS_OUT],
               p.text[PROCESS_ERR]);
    process_free(&p);
}

static void bench(const struct serving *s)
{
    case_begin("the client's bench of one of many models, on %d ranks", s->ranks);
    (void)zoo_operate(s, "unload", 0, "");
    measured(s, zoo.model[0].name, 0, "Total generated tokens                             12\n");
    measured(s, NULL, ERR_USAGE, "models, expected --model NAME");
    measured(s, "nobody", ERR_USAGE, "--model nobody: ");
    measured(s, zoo.model[ZOO_BROKEN].name, ERR_REQUEST, zoo.model[ZOO_BROKEN].name);
    case_end();
}

/* size: of a set of ranks. */
static void endpoint(int ranks, const char *size)
{
    const char *const more[] = {
        "--model-memory",  ZOO_MEMORY, "--max-models",      "4",  "--max-batch", "8", "--max-batch-tokens", "64",
        "--max-model-len", "96",       "--tensor-parallel", size, NULL};
    struct serving s;
    case_begin("%d requests for %d models by Zipf's law, four at once, on %d ranks in sets of %s", N_REQUESTS, ZOO_ALL,
               ranks, size);
    bool started = serving_start_models(&s, zoo.dir, ranks, more, NULL);
    if (case_check(started, "no server"))
        traffic(&s);
    case_end();
    if (!started)
        return;
    metrics(&s);
    top(&s);
    bench(&s);
    warmups(&s);
    operations(&s);
    replaced(&s);
    totals(&s);
    two_managers(&s);
    rounds(&s, 26);
    case_begin("shutdown of a server of many models, on %d ranks", ranks);
    int status = serving_stop(&s);
    case_check(status == 0, "status %d", status);
    case_end();
}

/* ---- failures while a model is read ---- */

/* See zoo_slow_reads. */
static bool start_failing(struct serving *s, int ranks, const char *rank, size_t after, const char *nap)
{
    return case_check(serving_start_models(s, zoo.dir, ranks, NULL, zoo_slow_reads(rank, after, nap)), "no server");
}

static void one_rank_cannot_read(void)
{
    struct serving s;
    case_begin("a model that one rank of three cannot read is an error reply; the others go on");
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", zoo.dir, zoo.model[0].name);
    /* Its limit is more than its share of the first model, which is read. */
    if (start_failing(&s, 3, "1", models_weight_bytes(path), "0")) {
        case_check(zoo_story(&s, 0, "") == 200, "the first model");
        char text[200];
        int failed = 0;
        for (int i = 2; i < 14 && failed <= 0; i++) { /* until rank 1 has used up its limit */
            (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", zoo.model[i].name);
            json_t *reply = zoo.model[i].there ? talk_ask(s.endpoint, text) : NULL;
            failed = (int)talk_number(reply, "code");
            if (failed > 0)
                case_check(failed == 500 && strstr(talk_text(reply, "error/message"), "rank 1/3") != NULL, "%d: %s",
                           failed, talk_text(reply, "error/message"));
            json_decref(reply);
        }
        case_check(failed == 500, "no load has failed");
        case_check(zoo_story(&s, 0, "") == 200, "the first model goes on");
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* Sends a request that waits for a model whose every read takes `nap` seconds. */
static bool start_slowly(struct serving *s, struct talk *t, const char *nap)
{
    if (!start_failing(s, 2, "none", 0, nap))
        return false;
    talk_open(t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    talk_say(t, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", zoo.model[0].name);
    for (double until = seconds_now() + process_patience(30); !zoo_is(s, 0, "loading") && seconds_now() < until;)
        continue;
    return true;
}

static void killed_while_reading(void)
{
    struct serving s;
    struct talk t;
    case_begin("a rank that is killed while a model is read ends the job, by name");
    if (start_slowly(&s, &t, "2")) {
        (void)process_signal_rank(&s.p, 1, SIGKILL);
        serving_wait(&s);
        const char *said = s.p.text[PROCESS_ERR] != NULL ? s.p.text[PROCESS_ERR] : "";
        case_check(!s.p.timed_out && s.p.status != 0 && strstr(said, "rank 1/2") != NULL, "status %d: %s", s.p.status,
                   said);
        talk_close(&t);
        serving_free(&s);
    }
    case_end();
}

static void told_to_end_while_reading(void)
{
    struct serving s;
    struct talk t;
    case_begin("SIGTERM while a model is read: waiting requests get 503, and the job ends");
    if (start_slowly(&s, &t, "2")) {
        (void)process_signal_rank(&s.p, 0, SIGTERM);
        json_t *reply = talk_hear(&t, 30);
        case_check(talk_number(reply, "code") == 503, "code %g", talk_number(reply, "code"));
        json_decref(reply);
        serving_wait(&s);
        case_check(!s.p.timed_out && s.p.status == 1, "status %d, expected 1", s.p.status);
        talk_close(&t);
        serving_free(&s);
    }
    case_end();
}

/* Bytes vanish before they are read. */
static void truncated_while_reading(void)
{
    struct serving s;
    struct talk t;
    char folder[400], path[500], kept[256];
    case_begin("a file that is truncated while it is read is an error reply; the job goes on");
    (void)snprintf(folder, sizeof folder, "%s/%s", zoo.dir, zoo.model[0].name);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    files_make_dir(kept);
    files_copy(folder, kept, "model.safetensors");
    if (start_slowly(&s, &t, "2")) {
        for (double until = seconds_now() + process_patience(60);
             !(zoo_number(&s, 0, "bytes") > 0) && seconds_now() < until;)
            continue; /* headers have been read; each read takes 2 s */
        case_check(truncate(path, 700) == 0, "truncate");
        json_t *reply = talk_hear(&t, 60);
        case_check(talk_number(reply, "code") == 500 &&
                       strstr(talk_text(reply, "error/message"), "safetensors") != NULL,
                   "code %g: %s", talk_number(reply, "code"), talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(zoo_is(&s, 0, "failed"), "its state");
        talk_close(&t);
        case_check(serving_stop(&s) == 0, "status");
    }
    files_copy(kept, folder, "model.safetensors");
    files_remove_dir(kept);
    case_end();
}

static bool comes_to_be(const struct serving *s, int i, const char *state)
{
    for (double until = seconds_now() + process_patience(60); seconds_now() < until;)
        if (zoo_is(s, i, state))
            return true;
    return false;
}

/* All clients that wait for two models leave: the load in progress completes without a token, the other one never
 * begins. */
static void left_while_reading(void)
{
    enum { N = 20, OTHER = 2 };
    struct serving s;
    struct talk first, t[N];
    case_begin("clients that leave while a model is read cause neither a token nor another load");
    if (start_slowly(&s, &first, "0.1")) {
        for (int i = 0; i < N; i++) {
            talk_open(&t[i], ZMQ_DEALER, s.endpoint, NULL, NULL);
            talk_say(&t[i], "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":8}",
                     zoo.model[i % 2 == 0 ? 0 : OTHER].name);
        }
        for (double until = seconds_now() + process_patience(30);
             !(zoo_number(&s, 0, "waiting") == 1 + N / 2 && zoo_number(&s, OTHER, "waiting") == N / 2 &&
               zoo_number(&s, 0, "bytes") > 0) &&
             seconds_now() < until;)
            continue; /* headers have been read, and the load has begun */
        case_check(zoo_is(&s, 0, "loading") && zoo_is(&s, OTHER, "waiting"), "no client waits for both models");
        talk_close(&first);
        for (int i = 0; i < N; i++)
            talk_close(&t[i]);
        case_check(comes_to_be(&s, OTHER, "known"), "requests still wait for the second model");
        case_check(zoo_number(&s, 0, "waiting") == 0, "%g wait for the first", zoo_number(&s, 0, "waiting"));
        case_check(comes_to_be(&s, 0, "ready"), "the first model was not loaded");
        case_check(serving_metric(&s, "generation_tokens_total") == 0, "%g tokens",
                   serving_metric(&s, "generation_tokens_total"));
        case_check(serving_metric(&s, "model_loads_total") == 1, "%g loads", serving_metric(&s, "model_loads_total"));
        case_check(zoo_answers_as(&s, 0, &zoo.model[0]), "the first model does not answer");
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* A link without a target among the models is named, and no model. */
static void link_to_nothing(void)
{
    char dir[256], path[300];
    struct process p;
    files_make_dir(dir);
    (void)snprintf(path, sizeof path, "%s/gone", dir);
    case_begin("a link to nothing in --models-dir is left out by name");
    case_check(symlink("/nowhere", path) == 0, "cannot make %s", path);
    process_run(&p, &(struct process_setup){.ranks = 1}, (const char *const[]){"serve", "--models-dir", dir, NULL});
    const char *said = p.text[PROCESS_ERR];
    case_check(p.status == ERR_INPUT && strstr(said, "gone is left out: it is a link to nothing") != NULL &&
                   strstr(said, "found no folder with a config.json") != NULL,
               "status %d: %s", p.status, said);
    process_free(&p);
    files_remove_dir(dir);
    case_end();
}

/* argv[1]: the most ranks (default 3), for machines with fewer GPUs; with it no failures of ranks are tested. */
int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 3;
    link_to_nothing();
    zoo_open();
    for (int ranks = 1; ranks <= most; ranks++) {
        char size[12];
        (void)snprintf(size, sizeof size, "%d", ranks);
        endpoint(ranks, size);
    }
    if (most > 1)
        endpoint(2, "1");
    if (most == 3) {
        one_rank_cannot_read();
        left_while_reading();
        killed_while_reading();
        told_to_end_while_reading();
        truncated_while_reading();
    }
    zoo_close();
    return cases_done();
}
