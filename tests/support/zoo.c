/* tests/support/zoo.c - see zoo.h. */
#include "tests/support/zoo.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct zoo zoo = {.random = 1};

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

_Static_assert(sizeof fixture / sizeof fixture[0] == ZOO_GOOD, "a fixture for every model");

static void place(const char *made, const char *name)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%.39s", zoo.dir, name);
    if (rename(made, path) != 0)
        exit(99);
}

static bool has_fixture(const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof path, "tests/parity/fixtures/%.39s/config.json", name);
    return access(path, R_OK) == 0;
}

void zoo_open(void)
{
    char made[256], path[400];
    files_make_dir(zoo.dir);
    for (int i = 0; i < ZOO_GOOD; i++) {
        struct zoo_model *m = &zoo.model[i];
        (void)snprintf(m->name, sizeof m->name, "%s", fixture[i]);
        m->there = has_fixture(m->name);
        if (!m->there)
            continue;
        models_fixture(made, m->name);
        place(made, m->name);
        models_expected(m->name, &m->prompt, &m->n_prompt, &m->token);
    }
    static const char *const bad[] = {"broken", "short", "large"};
    for (int i = ZOO_BROKEN; i < ZOO_ALL; i++)
        (void)snprintf(zoo.model[i].name, sizeof zoo.model[i].name, "%s", bad[i - ZOO_BROKEN]);
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

void zoo_close(void)
{
    files_remove_dir(zoo.dir);
    for (int i = 0; i < ZOO_GOOD; i++) {
        free(zoo.model[i].prompt);
        free(zoo.model[i].token);
    }
}

/* ---- traffic ---- */

int zoo_choose(void)
{
    double sum = 0;
    for (int i = 0; i < ZOO_ALL; i++)
        sum += 1.0 / (i + 1);
    double x = sum * rand_r(&zoo.random) / RAND_MAX;
    int i = 0;
    while (i < ZOO_ALL - 1 && (x -= 1.0 / (i + 1)) > 0)
        i++;
    i = (i * 7) % ZOO_ALL; /* so that families and failures are among the frequent ones */
    return i < ZOO_GOOD && !zoo.model[i].there ? 0 : i;
}

void zoo_ask(struct talk *t, int number, int i)
{
    const struct zoo_model *m = &zoo.model[i];
    char ids[1000] = "5";
    for (int k = 0, n = 0; k < m->n_prompt; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "%s%d", k > 0 ? "," : "", m->prompt[k]);
    talk_say(t,
             "{\"request_id\":\"%d.%d\",\"model\":\"%s%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,"
             "\"ignore_eos\":true}",
             number, i, m->name, number % 5 == 0 ? ".tar.gz" : "", ids, ZOO_TOKENS);
}

static bool is_right(const json_t *reply, const struct zoo_model *m)
{
    const json_t *ids = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids");
    bool same = json_array_size(ids) == ZOO_TOKENS;
    for (size_t k = 0; k < ZOO_TOKENS && same; k++)
        same = json_integer_value(json_array_get(ids, k)) == m->token[k];
    return same;
}

/* Tells whether this is the right reply to a request for model i. */
bool zoo_judge(const json_t *reply, int i)
{
    int code = (int)talk_number(reply, "code");
    if (i == ZOO_LARGE)
        return code == 507 && strstr(talk_text(reply, "error/message"), "--model-memory") != NULL;
    if (i == ZOO_BROKEN)
        return code == 500 && strstr(talk_text(reply, "error/message"), "config.json") != NULL;
    if (i == ZOO_SHORT)
        return code == 500 && strstr(talk_text(reply, "error/message"), "safetensors") != NULL;
    return is_right(reply, &zoo.model[i]);
}

/* ---- operations ---- */

/* Returns a number of model i in the answer to `models`. */
double zoo_number(const struct serving *s, int i, const char *member)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"models\"}");
    double n = NAN;
    for (size_t k = 0; k < json_array_size(json_object_get(reply, "models")); k++) {
        const json_t *m = json_array_get(json_object_get(reply, "models"), k);
        if (strcmp(talk_text(m, "id"), zoo.model[i].name) == 0)
            n = json_number_value(json_object_get(m, member));
    }
    json_decref(reply);
    return n;
}

bool zoo_is(const struct serving *s, int i, const char *wanted)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"models\"}");
    bool is = false;
    for (size_t k = 0; k < json_array_size(json_object_get(reply, "models")); k++) {
        const json_t *m = json_array_get(json_object_get(reply, "models"), k);
        is = is || (strcmp(talk_text(m, "id"), zoo.model[i].name) == 0 && strcmp(talk_text(m, "state"), wanted) == 0);
    }
    json_decref(reply);
    return is;
}

/* Does an operation on model i; returns 200 or the code of its error. */
int zoo_operate(const struct serving *s, const char *op, int i, const char *more)
{
    char text[300];
    (void)snprintf(text, sizeof text, "{\"op\":\"%s\",\"model\":\"%s\"%s}", op, zoo.model[i].name, more);
    json_t *reply = talk_ask(s->endpoint, text);
    int code = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : (int)talk_number(reply, "code");
    json_decref(reply);
    return code;
}

int zoo_story(const struct serving *s, int i, const char *more)
{
    char text[300];
    (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2%s}", zoo.model[i].name, more);
    json_t *reply = talk_ask(s->endpoint, text);
    int code = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : (int)talk_number(reply, "code");
    json_decref(reply);
    return code;
}

bool zoo_answers_as(const struct serving *s, int i, const struct zoo_model *expected)
{
    char text[1200], ids[1000] = "5";
    for (int k = 0, n = 0; k < expected->n_prompt; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "%s%d", k > 0 ? "," : "", expected->prompt[k]);
    (void)snprintf(text, sizeof text,
                   "{\"model\":\"%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}",
                   zoo.model[i].name, ids, ZOO_TOKENS);
    json_t *reply = talk_ask(s->endpoint, text);
    bool right = is_right(reply, expected);
    json_decref(reply);
    return right;
}

const char *const *zoo_slow_reads(const char *rank, size_t after, const char *nap)
{
    static char full[4200], of[40], limit[60], slow[40];
    static const char *const env[] = {full, of, limit, slow, NULL};
    char path[4096];
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(path, sizeof path, "%s/tests/fail_read.so", build != NULL ? build : "build/cpu");
    char *real = realpath(path, NULL);
    (void)snprintf(full, sizeof full, "LD_PRELOAD=%s", real != NULL ? real : "");
    free(real);
    (void)snprintf(of, sizeof of, "FAIL_READ_RANK=%s", rank);
    (void)snprintf(limit, sizeof limit, "FAIL_READ_AFTER=%zu", after);
    (void)snprintf(slow, sizeof slow, "FAIL_READ_NAP=%s", nap);
    return env;
}
