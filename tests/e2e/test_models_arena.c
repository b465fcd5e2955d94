/* tests/e2e/test_models_arena.c - the KV cache memory that models of one job share: two models, which together need
 * more than there is, use it in turn and at once; every answer is the one that the model alone gives. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define N_REQUESTS 8
#define N_TOKENS   240
#define ARENA      (640 << 10)
#define MODEL_LEN  "300" /* limit of prompt and output, in tokens */

static const char *model[] = {"llama-bf16", "qwen3-f16"};
static char folder[256];
static char *alone[2][N_REQUESTS]; /* the token ids of each request, as text */

/* Prompts share their beginnings in pairs, so that the prefix cache takes part. */
static void ask(struct talk *t, int i, int number)
{
    char ids[400] = "5";
    int length = 3 + 5 * number;
    for (int k = 1, n = 1; k < length; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, ",%d", 6 + (number / 2 * 7 + k) % 90);
    talk_say(t,
             "{\"request_id\":\"%d.%d\",\"model\":\"%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,"
             "\"ignore_eos\":true}",
             i, number, model[i], ids, N_TOKENS);
}

/* Returns the token ids of the next reply, and the request that it answers. The caller frees them. */
static char *hear(struct talk *t, int *i, int *number)
{
    json_t *reply = talk_hear(t, 120);
    const json_t *ids = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids");
    char *text = ids != NULL ? json_dumps(ids, JSON_COMPACT) : NULL;
    *i = *number = -1;
    (void)sscanf(talk_text(reply, "request_id"), "%d.%d", i, number);
    if (text == NULL) {
        char *said = reply != NULL ? json_dumps(reply, JSON_COMPACT) : NULL;
        printf("# %.300s\n", said != NULL ? said : "no reply");
        free(said);
    }
    json_decref(reply);
    return text;
}

/* Obtains the answers of a server that has only model i, and memory for all of it. */
static void hear_alone(int i, int ranks)
{
    const char *const more[] = {"--served-model-name", model[i],  "--max-batch", "8", "--max-batch-tokens", "64",
                                "--max-model-len",     MODEL_LEN, NULL};
    char path[600];
    struct serving s;
    struct talk t;
    (void)snprintf(path, sizeof path, "%s/%s", folder, model[i]);
    case_begin("%s alone, on %d ranks", model[i], ranks);
    if (case_check(serving_start_model(&s, path, ranks, SERVING_IPC, more), "no server")) {
        talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
        for (int k = 0; k < N_REQUESTS; k++)
            ask(&t, i, k);
        for (int k = 0, m, number; k < N_REQUESTS; k++) {
            char *ids = hear(&t, &m, &number);
            if (!case_check(ids != NULL && number >= 0 && number < N_REQUESTS, "no answer"))
                break;
            free(alone[i][number]);
            alone[i][number] = ids;
        }
        talk_close(&t);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* Sends N_REQUESTS to each selected model, all at once. */
static void traffic(const struct serving *s, bool first, bool second)
{
    struct talk t;
    int n = (first + second) * N_REQUESTS, n_wrong = 0;
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (int k = 0; k < N_REQUESTS; k++) {
        if (first)
            ask(&t, 0, k);
        if (second)
            ask(&t, 1, k);
    }
    for (int k = 0, i, number; k < n; k++) {
        char *ids = hear(&t, &i, &number);
        bool known = i >= 0 && i < 2 && number >= 0 && number < N_REQUESTS;
        n_wrong += ids == NULL || !known || alone[i][number] == NULL || strcmp(ids, alone[i][number]) != 0;
        free(ids);
    }
    case_check(n_wrong == 0, "%d of %d answers are not those of the model alone", n_wrong, n);
    talk_close(&t);
}

/* Metrics follow answers with a short delay. value: a model; NULL: all. */
static bool comes_to(const struct serving *s, const char *metric, const char *value, double least, double most)
{
    double found = 0;
    for (double until = seconds_now() + process_patience(30); seconds_now() < until;) {
        found = value != NULL ? serving_metric_of(s, metric, "model", value) : serving_metric(s, metric);
        if (found >= least && found <= most)
            return true;
    }
    printf("# %s of %s is %g, expected %g to %g\n", metric, value != NULL ? value : "all", found, least, most);
    return false;
}

static bool comes_to_hold(const struct serving *s, int i, double least, double most)
{
    return comes_to(s, "model_kv_bytes", model[i], least, most);
}

static void unload(const struct serving *s, int i)
{
    char text[100];
    (void)snprintf(text, sizeof text, "{\"op\":\"unload\",\"model\":\"%s\"}", model[i]);
    json_t *reply = talk_ask(s->endpoint, text);
    case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "unload: %s", talk_text(reply, "error/message"));
    json_decref(reply);
}

static void share(int ranks)
{
    static const char *const more[] = {
        "--kv-cache-memory-bytes", "640K", "--model-memory",  "64M",     "--max-batch", "8",
        "--max-batch-tokens",      "64",   "--max-model-len", MODEL_LEN, NULL};
    struct serving s;
    case_begin("two models that need more memory than there is use it in turn and at once, on %d ranks", ranks);
    if (case_check(serving_start_models(&s, folder, ranks, more, NULL), "no server")) {
        case_check(serving_metric(&s, "models_kv_memory_bytes") == ARENA, "the arena");
        case_check(comes_to(&s, "models_kv_free_bytes", NULL, ARENA, ARENA), "not all is free");
        for (int round = 0; round < 2; round++) {
            traffic(&s, true, false);
            case_check(comes_to_hold(&s, 0, 0.3 * ARENA, ARENA), "the first model did not get enough");
            traffic(&s, false, true);
            case_check(comes_to_hold(&s, 1, 0.6 * ARENA, ARENA), "the second model did not get enough");
            case_check(comes_to_hold(&s, 0, 1, 0.25 * ARENA), "the first model has given units back");
        }
        traffic(&s, true, true);
        case_check(serving_metric(&s, "models_used_bytes") > 0, "both are loaded");
        for (int i = 0; i < 2; i++)
            unload(&s, i);
        case_check(comes_to(&s, "models_kv_free_bytes", NULL, ARENA, ARENA), "all is free again");
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* An invalid amount of memory, or one that leaves none for weights; a model for which no memory is left. */
static void refused(int ranks)
{
    static const char *const wrong[] = {"64M", "1K"};
    struct serving s;
    for (int k = 0; k < 2; k++) {
        struct process p;
        const char *const words[] = {
            "serve", "--models-dir", folder, "--model-memory", "64M", "--kv-cache-memory-bytes", wrong[k], NULL};
        case_begin("--kv-cache-memory-bytes %s is refused", wrong[k]);
        process_run(&p, &(struct process_setup){.ranks = ranks}, words);
        case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "--kv-cache-memory-bytes") != NULL, "status %d: %s",
                   p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
    case_begin("a model for which pinned models leave no unit is a 507 with the numbers");
    const char *const more[] = {"--kv-cache-memory-bytes", "64K", "--pin", model[0], NULL};
    if (case_check(serving_start_models(&s, folder, 1, more, NULL), "no server")) {
        char text[200];
        (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", model[0]);
        json_t *reply = talk_ask(s.endpoint, text);
        case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "%s", talk_text(reply, "error/message"));
        json_decref(reply);
        (void)snprintf(text, sizeof text, "{\"op\":\"load\",\"model\":\"%s\"}", model[1]);
        reply = talk_ask(s.endpoint, text);
        case_check(talk_number(reply, "code") == 507 &&
                       strstr(talk_text(reply, "error/message"), "(--kv-cache-memory-bytes)") != NULL,
                   "%g: %s", talk_number(reply, "code"), talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* A block of the demo model's keys and values is 72 KiB in float32 on one rank; units are 64 KiB. */
static void block_too_large(void)
{
    static const char *const more[] = {"--kv-cache-memory-bytes", "640K", "--model-memory", "64M", NULL};
    char path[600];
    struct serving s;
    case_begin("a model whose block is larger than a unit is a 507 with the numbers; another model runs");
    (void)snprintf(path, sizeof path, "%s/stories", folder);
    case_check(symlink(models_demo(), path) == 0, "cannot make %s", path);
    if (case_check(serving_start_models(&s, folder, 1, more, NULL), "no server")) {
        json_t *reply = talk_ask(s.endpoint, "{\"model\":\"stories\",\"prompt\":\"Once\",\"max_tokens\":2}");
        case_check(talk_number(reply, "code") == 507 &&
                       strstr(talk_text(reply, "error/message"),
                              "keys and values of 16 tokens do not fit into a unit of 65536 bytes") != NULL,
                   "%g: %s", talk_number(reply, "code"), talk_text(reply, "error/message"));
        json_decref(reply);
        (void)snprintf(path, sizeof path, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", model[0]);
        reply = talk_ask(s.endpoint, path);
        case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "%s", talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(serving_stop(&s) == 0, "status");
    }
    (void)snprintf(path, sizeof path, "%s/stories", folder);
    case_check(unlink(path) == 0, "cannot remove %s", path);
    case_end();
}

/* ---- layers with windows ---- */

#define LONG_TOKENS 20
#define LONG_ARENA  (40 * 65536)

static const char *const long_options[] = {
    "--kv-cache-memory-bytes", "2560K", "--max-batch", "8", "--max-batch-tokens", "64", "--max-model-len", "700",
    "--model-memory",          "64M",   NULL};

/* Prompts of 400 tokens or more, which begin alike in pairs. */
static void ask_long(struct talk *t, const char *name, int number)
{
    char ids[4000] = "5";
    int length = 400 + 30 * number, n = 1;
    for (int k = 1; k < length; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, ",%d", 6 + (number / 2 * 11 + k * k % 83) % 90);
    talk_say(t,
             "{\"request_id\":\"0.%d\",\"model\":\"%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,"
             "\"ignore_eos\":true}",
             number, name, ids, LONG_TOKENS);
}

/* Sends all requests at once; their answers are put into answer[number], or compared with those. */
static void long_traffic(const struct serving *s, const char *name, char *answer[N_REQUESTS])
{
    struct talk t;
    int n_wrong = 0;
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (int k = 0; k < N_REQUESTS; k++)
        ask_long(&t, name, k);
    for (int k = 0, i, number; k < N_REQUESTS; k++) {
        char *ids = hear(&t, &i, &number);
        bool known = ids != NULL && number >= 0 && number < N_REQUESTS;
        if (known && answer[number] == NULL) {
            answer[number] = ids;
            continue;
        }
        n_wrong += !known || strcmp(ids, answer[number]) != 0;
        free(ids);
    }
    case_check(n_wrong == 0, "%d of %d answers are not those of the model alone", n_wrong, N_REQUESTS);
    talk_close(&t);
}

/* A model with windows beside another one that takes as much as it can get. most: bytes of units that it comes to
 * hold. */
static void windows(const char *name, int ranks, double least, double most)
{
    char path[600], *answer[N_REQUESTS] = {0};
    const char *const other[] = {"--served-model-name", name, "--max-batch", "8", "--max-model-len", "700", NULL};
    struct serving s;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    case_begin("%s has windows in the memory that models share, on %d ranks", name, ranks);
    if (case_check(serving_start_model(&s, path, ranks, SERVING_IPC, other), "no server")) {
        long_traffic(&s, name, answer);
        case_check(serving_stop(&s) == 0, "status");
    }
    if (case_check(serving_start_models(&s, folder, ranks, long_options, NULL), "no server")) {
        long_traffic(&s, name, answer);
        case_check(comes_to(&s, "model_kv_bytes", name, least, most), "it holds more than windows need");
        traffic(&s, true, false);
        long_traffic(&s, name, answer);
        json_t *reply = talk_ask(s.endpoint, "{\"op\":\"models\"}");
        case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "%s", talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(serving_stop(&s) == 0, "status");
    }
    for (int k = 0; k < N_REQUESTS; k++)
        free(answer[k]);
    case_end();
}

/* Copies a fixture to the folder, under its own name. */
static void place(const char *name)
{
    char made[256], path[600];
    models_fixture(made, name);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (rename(made, path) != 0)
        exit(99);
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 3;
    if (argc > 1) { /* on GPUs only float32 gives the same tokens in any batch */
        model[0] = "llama-6-2-bias";
        model[1] = "llama-mha";
    }
    files_make_dir(folder);
    for (int i = 0; i < 2; i++)
        place(model[i]);
    place("gptoss-5");
    place("mistral-window");
    for (int ranks = 1; ranks <= most; ranks++) {
        for (int i = 0; i < 2; i++)
            hear_alone(i, ranks);
        share(ranks);
    }
    for (int ranks = 1; ranks <= most && ranks <= 2; ranks++) {
        windows("gptoss-5", ranks, 1, 24 * 65536);
        windows("mistral-window", ranks, 1, LONG_ARENA);
    }
    refused(most > 1 ? 2 : 1);
    if (most == 3) /* float32 */
        block_too_large();
    files_remove_dir(folder);
    return cases_done();
}
