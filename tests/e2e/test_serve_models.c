/* tests/e2e/test_serve_models.c - `lockstep serve --models-dir`: forty tiny models of all families, more than fit at
 * once, asked for by Zipf's law; every answer is what transformers says of the model. Broken and too large models among
 * them, ranks that fail, die or are told to end while a model is being read. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static const char *const fixture[] = {"llama-bf16",
                                      "qwen3-f16",
                                      "gpt2-3h",
                                      "opt-pre",
                                      "bloom-8h",
                                      "neox-parallel",
                                      "gptj-3h",
                                      "mistral-window",
                                      "mixtral-5",
                                      "phi-3",
                                      "glm-5",
                                      "glm4moe-groups",
                                      "gptoss-5",
                                      "llama-7-1-tied",
                                      "qwen2-tied",
                                      "minimax-5",
                                      "gpt2-f16",
                                      "bloom-6h-bf16",
                                      "neox-tied-linear",
                                      "granite-5",
                                      "llama-yarn",
                                      "llama-llama3",
                                      "cohere2-pattern",
                                      "falcon-new-6-2",
                                      "qwen3moe-5",
                                      "olmo2-5",
                                      "ministral-f16",
                                      "gemma3-6",
                                      "opt-350m-noprefix",
                                      "gptneo-5",
                                      "opt-nobias-gelu",
                                      "qwen2-layertypes-bf16",
                                      "glm-nobias-f16",
                                      "gpt2-7h-untied-unscaled",
                                      "llama-6-2-bias",
                                      "neox-sequential",
                                      "mistral-window-bf16"};
#define N_GOOD ((int)(sizeof fixture / sizeof fixture[0]))
#define BROKEN (N_GOOD)     /* no JSON */
#define SHORT  (N_GOOD + 1) /* its weights end too early */
#define LARGE  (N_GOOD + 2)
#define N_ALL  (N_GOOD + 3)

#define N_TOKENS   32 /* that the fixtures expect */
#define N_REQUESTS 300
#define WINDOW     60 /* requests under way */
#define N_CLIENTS  6  /* connections */
#define MEMORY     "12M"

static char dir[256];
static struct model {
    char name[40];
    int32_t *prompt, *token; /* [N_TOKENS] expected */
    int n_prompt;
    bool there; /* the fixture exists in this tree */
} model[N_ALL];

static void place(const char *made, const char *name)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%.39s", dir, name);
    if (rename(made, path) != 0)
        exit(99);
}

static bool has_fixture(const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof path, "tests/parity/fixtures/%.39s/config.json", name);
    return access(path, R_OK) == 0;
}

static void make_models(void)
{
    char made[256], path[400];
    files_make_dir(dir);
    for (int i = 0; i < N_GOOD; i++) {
        struct model *m = &model[i];
        (void)snprintf(m->name, sizeof m->name, "%s", fixture[i]);
        m->there = has_fixture(m->name);
        if (!m->there)
            continue;
        models_fixture(made, m->name);
        place(made, m->name);
        models_expected(m->name, &m->prompt, &m->n_prompt, &m->token);
    }
    static const char *const bad[] = {"broken", "short", "large"};
    for (int i = BROKEN; i < N_ALL; i++)
        (void)snprintf(model[i].name, sizeof model[i].name, "%s", bad[i - BROKEN]);
    models_fixture(made, "llama-bf16");
    (void)snprintf(path, sizeof path, "%s/config.json", made);
    FILE *f = fopen(path, "we");
    if (f == NULL || fputs("{", f) < 0 || fclose(f) != 0)
        exit(99);
    place(made, "broken");
    models_fixture(made, "llama-bf16");
    (void)snprintf(path, sizeof path, "%s/model.safetensors", made);
    if (truncate(path, (off_t)models_weight_bytes(made) - 100) != 0)
        exit(99);
    place(made, "short");
    models_write_big(made);
    place(made, "large");
}

/* ---- traffic ---- */

static unsigned state = 1;

static int choose(void)
{
    double sum = 0;
    for (int i = 0; i < N_ALL; i++)
        sum += 1.0 / (i + 1);
    double x = sum * rand_r(&state) / RAND_MAX;
    int i = 0;
    while (i < N_ALL - 1 && (x -= 1.0 / (i + 1)) > 0)
        i++;
    i = (i * 7) % N_ALL; /* so that families and failures are among the frequent ones */
    return i < N_GOOD && !model[i].there ? 0 : i;
}

static void ask(struct talk *t, int number, int i)
{
    const struct model *m = &model[i];
    char ids[1000] = "5";
    for (int k = 0, n = 0; k < m->n_prompt; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "%s%d", k > 0 ? "," : "", m->prompt[k]);
    talk_say(t,
             "{\"request_id\":\"%d.%d\",\"model\":\"%s%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,"
             "\"ignore_eos\":true}",
             number, i, m->name, number % 5 == 0 ? ".tar.gz" : "", ids, N_TOKENS);
}

static bool is_right(const json_t *reply, const struct model *m)
{
    const json_t *ids = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids");
    bool same = json_array_size(ids) == N_TOKENS;
    for (size_t k = 0; k < N_TOKENS && same; k++)
        same = json_integer_value(json_array_get(ids, k)) == m->token[k];
    return same;
}

/* Is this the right reply to a request for model i? */
static bool judge(const json_t *reply, int i)
{
    int code = (int)talk_number(reply, "code");
    if (i == LARGE)
        return code == 507 && strstr(talk_text(reply, "error/message"), "--model-memory") != NULL;
    if (i == BROKEN)
        return code == 500 && strstr(talk_text(reply, "error/message"), "config.json") != NULL;
    if (i == SHORT)
        return code == 500 && strstr(talk_text(reply, "error/message"), "safetensors") != NULL;
    return is_right(reply, &model[i]);
}

static void traffic(const struct serving *s)
{
    struct talk t[N_CLIENTS];
    int n_sent = 0, n_heard = 0, n_wrong = 0, n_refused = 0;
    for (int c = 0; c < N_CLIENTS; c++)
        talk_open(&t[c], ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (double until = seconds_now() + 240; n_heard < N_REQUESTS && seconds_now() < until;) {
        for (; n_sent < N_REQUESTS && n_sent - n_heard < WINDOW; n_sent++)
            ask(&t[n_sent % N_CLIENTS], n_sent, choose());
        for (int c = 0; c < N_CLIENTS; c++)
            for (json_t *reply; (reply = talk_hear(&t[c], 0.002)) != NULL; json_decref(reply)) {
                int number = -1, i = 0;
                n_heard++;
                if (sscanf(talk_text(reply, "request_id"), "%d.%d", &number, &i) != 2 || i < 0 || i >= N_ALL ||
                    !judge(reply, i)) {
                    char *text = json_dumps(reply, JSON_COMPACT);
                    if (n_wrong++ < 3)
                        printf("# %.400s\n", text);
                    free(text);
                }
                n_refused += i >= N_GOOD;
            }
    }
    for (int c = 0; c < N_CLIENTS; c++)
        talk_close(&t[c]);
    case_check(n_heard == N_REQUESTS, "%d of %d requests were answered", n_heard, N_REQUESTS);
    case_check(n_wrong == 0, "%d answers are wrong", n_wrong);
    case_check(n_refused > 0, "no request for a model that cannot be loaded");
}

/* ---- operations ---- */

/* A number of model i in the answer to `models`. */
static double number_of(const struct serving *s, int i, const char *member)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"models\"}");
    double n = NAN;
    for (size_t k = 0; k < json_array_size(json_object_get(reply, "models")); k++) {
        const json_t *m = json_array_get(json_object_get(reply, "models"), k);
        if (strcmp(talk_text(m, "id"), model[i].name) == 0)
            n = json_number_value(json_object_get(m, member));
    }
    json_decref(reply);
    return n;
}

static bool is_state(const struct serving *s, int i, const char *wanted)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"models\"}");
    bool is = false;
    for (size_t k = 0; k < json_array_size(json_object_get(reply, "models")); k++) {
        const json_t *m = json_array_get(json_object_get(reply, "models"), k);
        is = is || (strcmp(talk_text(m, "id"), model[i].name) == 0 && strcmp(talk_text(m, "state"), wanted) == 0);
    }
    json_decref(reply);
    return is;
}

/* An operation on model i; 200 or the code of its error. */
static int operate(const struct serving *s, const char *op, int i, const char *more)
{
    char text[300];
    (void)snprintf(text, sizeof text, "{\"op\":\"%s\",\"model\":\"%s\"%s}", op, model[i].name, more);
    json_t *reply = talk_ask(s->endpoint, text);
    int code = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : (int)talk_number(reply, "code");
    json_decref(reply);
    return code;
}

static int story(const struct serving *s, int i, const char *more)
{
    char text[300];
    (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2%s}", model[i].name, more);
    json_t *reply = talk_ask(s->endpoint, text);
    int code = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : (int)talk_number(reply, "code");
    json_decref(reply);
    return code;
}

static void operations(const struct serving *s)
{
    case_begin("load, unload, pin, wait false, names, on %d ranks", s->ranks);
    for (int i = 0; i < N_GOOD; i++) /* whatever the traffic has left */
        (void)operate(s, "unload", i, "");
    case_check(operate(s, "unload", 0, "") == 404, "unload of a model that is not loaded");
    case_check(operate(s, "load", 0, "") == 200 && is_state(s, 0, "ready"), "load");
    case_check(operate(s, "load", 0, "") == 409, "load once more");
    case_check(number_of(s, 0, "bytes") > 0, "bytes");
    case_check(operate(s, "pin", 0, "") == 200 && operate(s, "unload", 0, "") == 409, "pinned");
    case_check(operate(s, "pin", 0, ",\"pinned\":false") == 200 && operate(s, "unload", 0, "") == 200 &&
                   is_state(s, 0, "known"),
               "not pinned any more");
    int code = story(s, 0, ",\"wait\":false");
    case_check(code == 503, "wait false: %d, expected 503", code);
    for (double until = seconds_now() + 30; !is_state(s, 0, "ready") && seconds_now() < until;)
        continue;
    case_check(story(s, 0, ",\"wait\":false") == 200, "wait false of a model that was loaded meanwhile");
    case_check(operate(s, "load", LARGE, "") == 507, "too large");
    json_t *reply = talk_ask(s->endpoint, "{\"model\":\"../broken\",\"prompt\":[5]}");
    case_check(talk_number(reply, "code") == 404, "a path is no name");
    json_decref(reply);
    reply = talk_ask(s->endpoint, "{\"prompt\":[5]}");
    case_check(talk_number(reply, "code") == 400, "no model named");
    json_decref(reply);
    case_end();
}

/* Model i's folder under another model's name. */
static void move_folder(int i, const char *name)
{
    char from[600], to[600];
    (void)snprintf(from, sizeof from, "%s/%s", dir, model[i].name);
    (void)snprintf(to, sizeof to, "%s/%s", dir, name);
    case_check(rename(from, to) == 0, "%s cannot become %s", from, to);
}

static bool answers_as(const struct serving *s, int i, const struct model *expected)
{
    char text[1200], ids[1000] = "5";
    for (int k = 0, n = 0; k < expected->n_prompt; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "%s%d", k > 0 ? "," : "", expected->prompt[k]);
    (void)snprintf(text, sizeof text,
                   "{\"model\":\"%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}",
                   model[i].name, ids, N_TOKENS);
    json_t *reply = talk_ask(s->endpoint, text);
    bool right = is_right(reply, expected);
    json_decref(reply);
    return right;
}

/* The parts kept of a model's first load belong to its files, not to its name. */
static void replaced(const struct serving *s)
{
    case_begin("a model whose files were replaced while it was unloaded, on %d ranks", s->ranks);
    case_check(answers_as(s, 0, &model[0]) && operate(s, "unload", 0, "") == 200, "%s as it was", model[0].name);
    case_check(answers_as(s, 0, &model[0]) && operate(s, "unload", 0, "") == 200, "%s once more", model[0].name);
    (void)operate(s, "unload", 2, "");
    move_folder(0, "moved");
    move_folder(2, model[0].name);
    case_check(answers_as(s, 0, &model[2]) && operate(s, "unload", 0, "") == 200, "the files of %s are loaded",
               model[2].name);
    move_folder(0, model[2].name);
    char from[600], to[600];
    (void)snprintf(from, sizeof from, "%s/moved", dir);
    (void)snprintf(to, sizeof to, "%s/%s", dir, model[0].name);
    case_check(rename(from, to) == 0 && answers_as(s, 0, &model[0]), "%s again", model[0].name);
    case_end();
}

/* Rounds of loading and unloading end with the memory that they began with. */
static void rounds(const struct serving *s, int n)
{
    case_begin("%d rounds of load and unload of mixed models keep no memory, on %d ranks", n, s->ranks);
    double before = 0, after;
    for (int k = 0; k < 2 * n; k++) {
        int i = k % 13;
        i = model[i].there ? i : 0;
        int loaded = operate(s, "load", i, ""), unloaded = operate(s, "unload", i, "");
        if (!case_check((loaded == 200 || loaded == 409) && unloaded == 200, "%s: load %d, unload %d", model[i].name,
                        loaded, unloaded))
            break;
        if (k == n - 1) /* libraries and allocators have what they keep */
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
    case_begin("metrics by model, with CloudWatch's names beside ours, on %d ranks", s->ranks);
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
    case_check(serving_metric(s, "models_used_bytes") <= serving_metric(s, "models_memory_bytes"),
               "more is used than may be");
    case_end();
}

static void endpoint(int ranks)
{
    static const char *const more[] = {"--model-memory",     MEMORY, "--max-models",    "4",  "--max-batch", "8",
                                       "--max-batch-tokens", "64",   "--max-model-len", "96", NULL};
    struct serving s;
    case_begin("%d requests for %d models by Zipf's law, four at once, on %d ranks", N_REQUESTS, N_ALL, ranks);
    bool started = serving_start_models(&s, dir, ranks, more, NULL);
    if (case_check(started, "no server"))
        traffic(&s);
    case_end();
    if (!started)
        return;
    metrics(&s);
    operations(&s);
    replaced(&s);
    rounds(&s, 26);
    case_begin("the end of a server of many models, on %d ranks", ranks);
    int status = serving_stop(&s);
    case_check(status == 0, "status %d", status);
    case_end();
}

/* ---- failures while a model is read ---- */

/* The ranks' environment: on `rank` reads of weights fail after so many bytes; elsewhere each takes `nap` seconds. */
static bool start_failing(struct serving *s, int ranks, const char *rank, size_t after, const char *nap)
{
    static char path[4096], full[4200], of[40], limit[60], slow[40];
    static const char *const env[] = {full, of, limit, slow, NULL};
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(path, sizeof path, "%s/tests/fail_read.so", build != NULL ? build : "build/cpu");
    char *real = realpath(path, NULL);
    (void)snprintf(full, sizeof full, "LD_PRELOAD=%s", real != NULL ? real : "");
    free(real);
    (void)snprintf(of, sizeof of, "FAIL_READ_RANK=%s", rank);
    (void)snprintf(limit, sizeof limit, "FAIL_READ_AFTER=%zu", after);
    (void)snprintf(slow, sizeof slow, "FAIL_READ_NAP=%s", nap);
    return case_check(serving_start_models(s, dir, ranks, NULL, env), "no server");
}

static void one_rank_cannot_read(void)
{
    struct serving s;
    case_begin("a model that one rank of three cannot read is an error reply; the others go on");
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", dir, model[0].name);
    /* More than its share: the first model is read. */
    if (start_failing(&s, 3, "1", models_weight_bytes(path), "0")) {
        case_check(story(&s, 0, "") == 200, "the first model");
        char text[200];
        int failed = 0;
        for (int i = 2; i < 14 && failed <= 0; i++) { /* until what rank 1 may read is used up */
            (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", model[i].name);
            json_t *reply = model[i].there ? talk_ask(s.endpoint, text) : NULL;
            failed = (int)talk_number(reply, "code");
            if (failed > 0)
                case_check(failed == 500 && strstr(talk_text(reply, "error/message"), "rank 1/3") != NULL, "%d: %s",
                           failed, talk_text(reply, "error/message"));
            json_decref(reply);
        }
        case_check(failed == 500, "no load has failed");
        case_check(story(&s, 0, "") == 200, "the first model goes on");
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* A request that waits for a model which is read slowly. */
static bool start_slowly(struct serving *s, struct talk *t)
{
    if (!start_failing(s, 2, "none", 0, "2"))
        return false;
    talk_open(t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    talk_say(t, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", model[0].name);
    for (double until = seconds_now() + 30; !is_state(s, 0, "loading") && seconds_now() < until;)
        continue;
    return true;
}

static void killed_while_reading(void)
{
    struct serving s;
    struct talk t;
    case_begin("a rank that is killed while a model is read ends the job, by name");
    if (start_slowly(&s, &t)) {
        (void)kill(process_of_rank(&s.p, 1), SIGKILL);
        s.p.limit = seconds_now() - s.p.started + 30;
        process_wait(&s.p);
        const char *said = s.p.text[PROCESS_ERR] != NULL ? s.p.text[PROCESS_ERR] : "";
        case_check(!s.p.timed_out && s.p.status != 0 && strstr(said, "rank 1/2") != NULL, "status %d: %s", s.p.status,
                   said);
        talk_close(&t);
        process_free(&s.p);
        files_remove_dir(s.dir);
    }
    case_end();
}

static void told_to_end_while_reading(void)
{
    struct serving s;
    struct talk t;
    case_begin("SIGTERM while a model is read: who waits gets 503, and the job ends");
    if (start_slowly(&s, &t)) {
        (void)kill(process_of_rank(&s.p, 0), SIGTERM);
        json_t *reply = talk_hear(&t, 30);
        case_check(talk_number(reply, "code") == 503, "code %g", talk_number(reply, "code"));
        json_decref(reply);
        s.p.limit = seconds_now() - s.p.started + 60;
        process_wait(&s.p);
        case_check(!s.p.timed_out && s.p.status == 1, "status %d, expected 1", s.p.status);
        talk_close(&t);
        process_free(&s.p);
        files_remove_dir(s.dir);
    }
    case_end();
}

/* argv[1]: the most ranks (default 3), for machines with fewer GPUs; then ranks do not fail. */
int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 3;
    make_models();
    for (int ranks = 1; ranks <= most; ranks++)
        endpoint(ranks);
    if (most == 3) {
        one_rank_cannot_read();
        killed_while_reading();
        told_to_end_while_reading();
    }
    files_remove_dir(dir);
    for (int i = 0; i < N_GOOD; i++) {
        free(model[i].prompt);
        free(model[i].token);
    }
    return cases_done();
}
