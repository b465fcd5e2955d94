/* tests/e2e/test_gateway_models.c - a job of several models behind the gateway: requests by name, states, and the
 * management calls of multi-model endpoints and of Triton. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct web_gateway gate;

/* Checks the answer's status, and that its body contains `part`. */
static void expect(const char *method, const char *path, const char *fields, const char *body, int status,
                   const char *part)
{
    struct web_answer a;
    case_begin("%s %s %.60s: %d", method, path, body, status);
    web_ask(&gate, method, path, fields, body, &a);
    case_check(a.status == status, "status %d: %s", a.status, a.body);
    case_check(strstr(a.body != NULL ? a.body : "", part) != NULL, "\"%s\" is not in %s", part, a.body);
    web_free(&a);
    case_end();
}

/* Repeats the request until its answer contains `part`: the gateway asks its backends only at intervals. */
static void await(const char *path, const char *part)
{
    bool found = false;
    case_begin("%s shows %s", path, part);
    for (double until = seconds_now() + process_patience(30); !found && seconds_now() < until;) {
        struct web_answer a;
        web_ask(&gate, strstr(path, "index") != NULL ? "POST" : "GET", path, "", "", &a);
        found = strstr(a.body != NULL ? a.body : "", part) != NULL;
        web_free(&a);
    }
    case_check(found, "not within 30 s");
    case_end();
}

static const char story[] = "{\"model\":\"%s\",\"prompt\":\"Once upon a time\",\"max_tokens\":4,\"temperature\":0}";

static void ask(const char *model, int status, const char *part)
{
    char body[300];
    (void)snprintf(body, sizeof body, story, model);
    expect("POST", "/v1/completions", "", body, status, part);
}

/* A prompt without room for an answer. */
static void too_long(void)
{
    enum { WORDS_OF_PROMPT = 3000 };
    char body[8 * WORDS_OF_PROMPT + 200];
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"two\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < WORDS_OF_PROMPT; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "once ");
    (void)snprintf(body + n, sizeof body - (size_t)n, "\"}]}");
    expect("POST", "/v1/messages", "", body, 400, "\"message\":\"prompt is too long: ");
}

static void requests(void)
{
    expect("GET", "/v1/models", "", "", 200, "\"id\":\"one\"");
    expect("GET", "/v1/models/two", "", "", 200, "\"state\":\"known\"");
    expect("GET", "/models", "", "", 200, "{\"models\":[]}");
    expect("GET", "/models/one", "", "", 404, "is not loaded");
    ask("one", 200, "\"text\":\", there was a\"");
    await("/v1/models/one", "\"state\":\"ready\"");
    expect("GET", "/models", "", "", 200, "\"modelName\":\"one\"");
    ask("broken", 500, "config.json");
    ask("three", 404, "three");
    expect("POST", "/v1/chat/completions", "",
           "{\"model\":\"two\",\"messages\":[{\"role\":\"user\",\"content\":\"A fox\"}],\"max_tokens\":2}", 200,
           "\"model\":\"two\"");
    /* Token 174 is the first byte of characters beyond U+FFFF. */
    expect("POST", "/v1/chat/completions", "",
           "{\"model\":\"two\",\"messages\":[{\"role\":\"user\",\"content\":\"A "
           "fox\"}],\"max_tokens\":1,\"temperature\":0,"
           "\"logprobs\":true,\"logit_bias\":{\"174\":100}}",
           200, "\"bytes\":[240]");
    expect("POST", "/tokenize", "", "{\"model\":\"two\",\"prompt\":\"Once upon\"}", 200, "\"count\":3");
    expect("POST", "/v1/completions", "", "{\"prompt\":\"a\"}", 400, "several models");
    expect("POST", "/models", "", "{\"url\":\"a\"}", 400, "model_name: missing");
    expect("POST", "/v1/messages", "",
           "{\"model\":\"two\",\"messages\":[{\"role\":\"user\",\"content\":\"A fox\"}],\"max_tokens\":9000}", 400,
           "\"message\":\"input length and `max_tokens` exceed context limit: ");
    expect("POST", "/v1/completions", "", "{\"model\":\"two\",\"prompt\":\"Hi\",\"max_tokens\":9000}", 400,
           "This model's maximum context length is ");
    too_long();
    expect("POST", "/invocations", "X-Amzn-SageMaker-Target-Model: one.tar.gz\r\n",
           "{\"inputs\":\"Once upon a time\",\"parameters\":{\"max_new_tokens\":4,\"do_sample\":false}}", 200,
           ", there was a");
}

static void management(void)
{
    expect("DELETE", "/models/two", "", "", 200, "{\"status\":");
    expect("GET", "/v1/models/two", "", "", 200, "\"state\":\"known\"");
    expect("DELETE", "/models/two", "", "", 404, "not loaded");
    expect("POST", "/models", "", "{\"model_name\":\"two\",\"url\":\"/opt/ml/models/two/model\"}", 200, "{\"status\":");
    expect("POST", "/models", "", "{\"model_name\":\"two\",\"url\":\"/opt/ml/models/two/model\"}", 409,
           "loaded already");
    expect("POST", "/models", "", "{\"model_name\":\"three\",\"url\":\"/etc\"}", 404, "three");
    expect("POST", "/models", "", "{\"model_name\":\"broken\",\"url\":\"x\"}", 500, "config.json");
    expect("DELETE", "/models/three", "", "", 404, "not served");
    expect("POST", "/v2/repository/models/two/unload", "", "{}", 200, "");
    expect("POST", "/v2/repository/index", "", "{}", 200,
           "\"name\":\"two\",\"version\":\"1\",\"state\":\"UNAVAILABLE\"");
    expect("POST", "/v2/repository/models/two/load", "", "{}", 200, "");
    expect("POST", "/v2/repository/index", "", "{}", 200, "\"name\":\"two\",\"version\":\"1\",\"state\":\"READY\"");
}

static void make_models(char *dir)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json"};
    static const char *const folder[] = {"one", "two", "broken"};
    files_make_dir(dir);
    for (int k = 0; k < 3; k++) {
        char made[256], path[600];
        files_make_dir(made);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            files_copy(models_demo(), made, names[i]);
        if (k == 2)
            models_edit(made, "config.json", "model_type", "\"nothing\"");
        (void)snprintf(path, sizeof path, "%s/%s", dir, folder[k]);
        if (rename(made, path) != 0)
            exit(99);
    }
}

/* Names of metrics that jobs and gateway share ("Invocations") included; strict parsers refuse a page that repeats
 * one. */
static void check_heads(void)
{
    struct web_answer a;
    int n = 0;
    case_begin("in the metrics each # HELP and # TYPE of a name comes once");
    web_ask(&gate, "GET", "/metrics", "", "", &a);
    for (const char *line = a.body, *end; line != NULL; line = end != NULL ? end + 1 : NULL) {
        char head[160] = "\n";
        end = strchr(line, '\n');
        if (line[0] != '#')
            continue;
        n++;
        size_t bytes = 7 + strcspn(line + 7, " ") + 1; /* "# HELP name " */
        (void)snprintf(head + 1, sizeof head - 1, "%.*s", (int)bytes, line);
        case_check(strstr(line, head) == NULL, "\"%s\" comes again", head + 1);
    }
    case_check(n > 100, "%d lines", n);
    case_check(n > 0 && strstr(a.body, "\nInvocations ") != NULL && strstr(a.body, "\nInvocations{backend=") != NULL,
               "\"Invocations\" of gateway and jobs");
    web_free(&a);
    case_end();
}

/* Two jobs serve one folder: each model is loaded in only one of them, and the two models in different jobs; requests
 * for a model that both have go to both. */
static void two_jobs(const char *dir)
{
    struct serving s[2];
    double loads = 0;
    case_begin("two jobs start");
    bool first = serving_start_models(&s[0], dir, 1, NULL, NULL);
    bool both = first && serving_start_models(&s[1], dir, 1, NULL, NULL);
    case_check(both, "they did not start");
    case_end();
    if (first && !both)
        (void)serving_stop(&s[0]);
    if (!both)
        return;
    const char *const more[] = {"--backend", s[0].rendezvous, "--backend", s[1].rendezvous, NULL};
    web_start(&gate, true, more);
    await("/metrics", "lockstep_gateway_backends 2");
    for (int i = 0; i < 12; i++)
        ask(i % 2 == 0 ? "one" : "two", 200, "\"text\":\", there was a\"");
    check_heads();
    case_begin("two jobs behind a gateway: each model is loaded once, in a job of its own");
    for (int k = 0; k < 2; k++) {
        double here = serving_metric(&s[k], "model_loads_total");
        case_check(here == 1, "%g loads in job %d", here, k);
        loads += here;
    }
    case_check(loads == 2, "%g loads", loads);
    case_end();
    case_begin("both jobs end with status 0");
    case_check(web_stop(&gate) == 0, "the gateway");
    for (int k = 0; k < 2; k++)
        case_check(serving_stop(&s[k]) == 0, "server %d", k);
    case_end();
}

int main(void)
{
    char dir[256];
    struct serving s;
    make_models(dir);
    if (!serving_start_models(&s, dir, 2, NULL, NULL))
        return 99;
    const char *const more[] = {"--backend", s.rendezvous, NULL};
    web_start(&gate, true, more);
    requests();
    management();
    case_begin("gateway and server end with status 0");
    case_check(web_stop(&gate) == 0, "the gateway");
    case_check(serving_stop(&s) == 0, "the server");
    case_end();
    two_jobs(dir);
    files_remove_dir(dir);
    return cases_done();
}
