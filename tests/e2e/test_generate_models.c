/* tests/e2e/test_generate_models.c - `generate --model-switch`: each model, one after the other in one job, answers as
 * it does alone, and the times of the switches are printed. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPTS   3
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static char folder[256], prompts[512], second[256], both[1200];

/* Returns the tokens that a model alone gives for prompt i. */
static json_t *alone(const char *model, int i)
{
    const struct process_setup setup = {.ranks = 1};
    struct process p;
    json_t *ids = NULL;
    process_run(&p, &setup, LIST("generate", "-m", model, "--prompts", prompts, "-n", "9", "--json"));
    const char *line = p.text[PROCESS_OUT];
    for (int k = 0; k < i && line != NULL; k++)
        line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL;
    json_t *o = line != NULL ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    ids = json_incref(json_object_get(o, "token_ids"));
    json_decref(o);
    process_free(&p);
    return ids;
}

/* Reads "to NAME 12.345" of the report. */
static double milliseconds(const char *report, const char *name)
{
    char line[300];
    (void)snprintf(line, sizeof line, "\nto %s ", name);
    const char *at = strstr(report, line);
    return at != NULL ? strtod(at + strlen(line), NULL) : -1;
}

static void check_line(const char *line, int i)
{
    const char *dir = i / PROMPTS == 1 ? second : models_demo();
    json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL), *want = alone(dir, i % PROMPTS);
    const char *name = json_string_value(json_object_get(o, "model"));
    case_check(name != NULL && strcmp(name, strrchr(dir, '/') + 1) == 0, "line %d: of %s", i, name);
    case_check(json_integer_value(json_object_get(o, "index")) == i % PROMPTS, "line %d: %.80s", i, line);
    case_check(want != NULL && json_equal(json_object_get(o, "token_ids"), want), "line %d: other tokens than alone",
               i);
    json_decref(want);
    json_decref(o);
}

/* Lines of three models, two of which are the same. */
static void answers(int ranks, const char *file)
{
    const struct process_setup setup = {.ranks = ranks};
    struct process p;
    char output[512];
    size_t bytes = 0;
    int n = 0;
    (void)snprintf(output, sizeof output, "%s/%s", folder, file != NULL ? file : "");
    case_begin("one model after the other on %d rank(s)%s", ranks, file != NULL ? ", to a file" : "");
    if (file != NULL)
        process_run(&p, &setup,
                    LIST("generate", "--model-switch", both, "--prompts", prompts, "-n", "9", "--json", "-o", output));
    else
        process_run(&p, &setup, LIST("generate", "--model-switch", both, "--prompts", prompts, "-n", "9", "--json"));
    const char *report = p.text[PROCESS_ERR];
    char *text = file != NULL ? files_read(folder, file, &bytes) : NULL;
    case_check(p.status == 0, "status %d: %s", p.status, report);
    for (const char *line = text != NULL ? text : p.text[PROCESS_OUT]; line != NULL && *line != '\0'; n++) {
        check_line(line, n);
        line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL;
    }
    case_check(n == 3 * PROMPTS, "%d lines", n);
    double first = milliseconds(report, strrchr(models_demo(), '/') + 1),
           next = milliseconds(report, strrchr(second, '/') + 1);
    case_check(first > 0 && next > 0, "switches of %g and %g ms: %s", first, next, report);
    case_check(strstr(report, "2 switches after the first model: ") != NULL, "%s", report);
    free(text);
    process_free(&p);
    case_end();
}

/* Without a token there is no time to it; failing prompts set the run's status. */
static void no_token(void)
{
    const struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("models that answer nothing");
    process_run(&p, &setup, LIST("generate", "--model-switch", both, "-p", "Once", "-n", "1000000"));
    case_check(p.status == ERR_REQUEST && strstr(p.text[PROCESS_ERR], "no token") != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void refused(const char *why, enum err_code code, const char *const *arguments)
{
    const struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("%s is refused", why);
    process_run(&p, &setup, arguments);
    case_check(p.status == (int)code && p.text[PROCESS_OUT][0] == '\0', "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(folder);
    (void)snprintf(prompts, sizeof prompts, "%s/prompts.txt", folder);
    files_write_text(folder, "prompts.txt", "Once upon a time\nThe little dragon\nLong ago\n");
    models_fixture(second, "gpt2-3h");
    (void)snprintf(both, sizeof both, "%s,%s,%s", models_demo(), second, models_demo());
    answers(1, NULL);
    answers(2, NULL);
    answers(2, "out.jsonl");
    no_token();
    refused("a switch without a model", ERR_USAGE, LIST("generate", "--model-switch", second, "-p", "x"));
    refused("an empty name", ERR_USAGE, LIST("generate", "--model-switch", "a,,b", "-p", "x"));
    refused("a missing folder", ERR_INPUT, LIST("generate", "--model-switch", "a,b", "-p", "x"));
    refused("a model beside others", ERR_USAGE, LIST("generate", "--model-switch", both, "-m", second, "-p", "x"));
    refused("a draft model", ERR_USAGE,
            LIST("generate", "--model-switch", both, "--draft-model", models_demo(), "-p", "x"));
    refused("prompts that are read once", ERR_USAGE, LIST("generate", "--model-switch", both, "--prompts", "-"));
    refused("fewer ranks for each", ERR_USAGE,
            LIST("generate", "--model-switch", both, "--tensor-parallel", "1", "-p", "x"));
    files_remove_dir(second);
    files_remove_dir(folder);
    return cases_done();
}
