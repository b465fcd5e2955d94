/* tests/e2e/test_prompts.c - many prompts, from text files, JSON lines and standard input, on the demo model: samples
 * drawn with a seed are the same on every number of ranks, alone and in every batch. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPTS 6

static const char *const prompts[N_PROMPTS] = {"Once upon a time",
                                               "The little fox",
                                               "In a village by the sea there lived an old woman who",
                                               "One",
                                               "Tom and the dragon went to the market, and then they",
                                               "\"Where are you going?\" asked the"};

static char folder[256];
static char *texts[N_PROMPTS]; /* of the reference run */

#define DRAW "--temperature", "0.9", "--top-p", "0.95", "--seed"

static json_t *read_line(const char **at)
{
    size_t n = strcspn(*at, "\n");
    json_t *o = n > 0 ? json_loadb(*at, n, JSON_ALLOW_NUL, NULL) : NULL;
    *at += n + ((*at)[n] == '\n');
    return o;
}

/* Checks all prompts, in order, against these texts. */
static void check_texts(const struct process *p, int n, const int *which)
{
    const char *at = p->text[PROCESS_OUT];
    case_check(p->status == 0 && p->bytes[PROCESS_ERR] == 0, "status %d: %s", p->status, p->text[PROCESS_ERR]);
    for (int i = 0; i < n; i++) {
        json_t *o = read_line(&at);
        const char *text = json_string_value(json_object_get(o, "text"));
        case_check(json_integer_value(json_object_get(o, "index")) == i, "line %d has another index", i);
        case_check(text != NULL && texts[which[i]] != NULL && strcmp(text, texts[which[i]]) == 0,
                   "prompt %d: \"%s\", expected \"%s\"", which[i], text != NULL ? text : "none",
                   texts[which[i]] != NULL ? texts[which[i]] : "none");
        json_decref(o);
    }
    case_check(*at == '\0', "more lines: %s", at);
}

static void write_files(void)
{
    char text[2000] = "", lines[4000] = "";
    for (int i = 0; i < N_PROMPTS; i++) {
        strcat(text, prompts[i]);
        strcat(text, i == 2 ? "\r\n\n" : i == N_PROMPTS - 1 ? "" : "\n"); /* an empty line; no final newline */
        json_t *o = json_pack("{s:s}", "prompt", prompts[i]);
        char *line = json_dumps(o, JSON_COMPACT);
        strcat(lines, line);
        strcat(lines, "\n");
        free(line);
        json_decref(o);
    }
    files_write(folder, "prompts.txt", text, strlen(text));
    files_write(folder, "prompts.jsonl", lines, strlen(lines));
    files_write(folder, "prompts.any", lines, strlen(lines));
}

/* The reference: all prompts in one batch on one rank. */
static void reference(const char *file)
{
    struct process_setup setup = {.ranks = 1};
    struct process p;
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompts", file, DRAW, "7", "--max-tokens",
                                 "40", "--json", NULL});
    const char *at = p.text[PROCESS_OUT];
    case_begin("%d prompts in one batch", N_PROMPTS);
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    for (int i = 0; i < N_PROMPTS; i++) {
        json_t *o = read_line(&at);
        const char *text = json_string_value(json_object_get(o, "text"));
        case_check(text != NULL && *text != '\0', "no text %d: %s", i, p.text[PROCESS_OUT]);
        texts[i] = strdup(text != NULL ? text : "");
        json_decref(o);
    }
    case_end();
    process_free(&p);
}

struct variant {
    const char *name;
    int ranks;
    const char *file, *input; /* prompts; input: a file whose content goes to standard input instead */
    const char *more[6];
};

static void variants(void)
{
    static const int all[N_PROMPTS] = {0, 1, 2, 3, 4, 5};
    static const struct variant table[] = {
        {"a text file on 2 ranks", 2, "prompts.txt", NULL, {NULL}},
        {"a text file on 3 ranks, 2 at once", 3, "prompts.txt", NULL, {"--max-batch", "2", NULL}},
        {"a text file on 4 ranks", 4, "prompts.txt", NULL, {NULL}},
        {"JSON lines, one at a time", 1, "prompts.jsonl", NULL, {"--max-batch", "1", NULL}},
        {"JSON lines without the name, chunks of 5 tokens",
         2,
         "prompts.any",
         NULL,
         {"--max-batch", "3", "--max-batch-tokens", "5", NULL}},
        {"a text on standard input, 2 ranks", 2, "-", "prompts.txt", {NULL}},
        {"JSON lines on standard input, 3 ranks", 3, "-", "prompts.jsonl", {"--max-batch", "4", NULL}},
        {"few KV blocks", 2, "prompts.txt", NULL, {"--kv-cache-memory-bytes", "400K", NULL}},
    };
    enum { N = sizeof table / sizeof table[0] };
    struct process p[2];
    for (int i = 0; i < N + 2; i++) {
        struct process *mine = &p[i % 2];
        char path[300];
        size_t bytes = 0;
        if (i >= 2) {
            case_begin("the same texts from %s", table[i - 2].name);
            process_wait(mine);
            check_texts(mine, N_PROMPTS, all);
            case_end();
            process_free(mine);
        }
        if (i >= N)
            continue;
        const struct variant *v = &table[i];
        const char *argument[24] = {"generate", "--model", models_demo(),  "--prompts", path,
                                    DRAW,       "7",       "--max-tokens", "40",        "--json"};
        int n = 14;
        for (int k = 0; k < 6 && v->more[k] != NULL; k++)
            argument[n++] = v->more[k];
        char *input = v->input != NULL ? files_read(folder, v->input, &bytes) : NULL;
        (void)snprintf(path, sizeof path, "%s%s%s", v->input != NULL ? "" : folder, v->input != NULL ? "" : "/",
                       v->file);
        struct process_setup setup = {.ranks = v->ranks, .input = input};
        process_start(mine, &setup, argument);
        free(input);
    }
}

/* Each prompt runs alone; and once with another seed. */
static void alone(void)
{
    struct process p[3];
    const int which[3] = {0, 2, 5};
    for (int k = 0; k < 3; k++) {
        struct process_setup setup = {.ranks = k + 1};
        process_start(&p[k], &setup,
                      (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[which[k]], DRAW, "7",
                                       "--max-tokens", "40", "--json", NULL});
    }
    for (int k = 0; k < 3; k++) {
        case_begin("prompt %d alone on %d ranks gives the same text", which[k], k + 1);
        process_wait(&p[k]);
        check_texts(&p[k], 1, &which[k]);
        case_end();
        process_free(&p[k]);
    }
    struct process_setup setup = {.ranks = 2};
    case_begin("another seed gives another text");
    process_run(&p[0], &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[0], DRAW, "8",
                                 "--max-tokens", "40", "--json", NULL});
    json_t *o = json_loads(p[0].text[PROCESS_OUT], 0, NULL);
    const char *text = json_string_value(json_object_get(o, "text"));
    case_check(text != NULL && strcmp(text, texts[0]) != 0, "the same: %s", p[0].text[PROCESS_OUT]);
    case_end();
    json_decref(o);
    process_free(&p[0]);
}

/* A string and a list of its ids in one file: both give the same text. */
static void ids_in_lines(void)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    char path[300];
    const int twice[2] = {0, 0};
    case_begin("JSON lines of a string and of its ids");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[0], "--max-tokens", "1",
                                 "--json", NULL});
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL), *ids = json_object_get(o, "prompt_ids");
    process_free(&p);
    json_t *first = json_pack("{s:O}", "prompt", ids), *second = json_pack("{s:s}", "prompt", prompts[0]);
    char *a = json_dumps(first, JSON_COMPACT), *b = json_dumps(second, JSON_COMPACT), both[2000];
    (void)snprintf(both, sizeof both, "%s\n%s\n", a != NULL ? a : "", b);
    files_write(folder, "ids.jsonl", both, strlen(both));
    (void)snprintf(path, sizeof path, "%s/ids.jsonl", folder);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompts", path, DRAW, "7", "--max-tokens",
                                 "40", "--json", NULL});
    check_texts(&p, 2, twice);
    case_end();
    process_free(&p);
    json_decref(o);
    json_decref(first);
    json_decref(second);
    free(a);
    free(b);
}

/* --output FILE holds the text that standard output would have held, which stays empty. */
static void output_file(void)
{
    struct process_setup setup = {.ranks = 2};
    struct process p, q;
    char path[300];
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/out.jsonl", folder);
    case_begin("--output FILE");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[0], DRAW, "7",
                                 "--max-tokens", "8", "--json", "--output", path, NULL});
    process_run(&q, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[0], DRAW, "7",
                                 "--max-tokens", "8", "--json", NULL});
    char *file = files_read(folder, "out.jsonl", &bytes);
    case_check(p.status == 0 && p.bytes[PROCESS_OUT] == 0, "status %d, standard output: %s", p.status,
               p.text[PROCESS_OUT]);
    case_check(bytes > 0 && strcmp(file, q.text[PROCESS_OUT]) == 0, "the file holds: %s", file);
    case_end();
    free(file);
    process_free(&p);
    process_free(&q);
}

/* Plain text on standard output: the prompt and its continuation, with headers if there are several prompts. */
static void plain_text(void)
{
    static const char *const last[2] = {"--no-echo", NULL};
    struct process_setup setup = {.ranks = 2};
    struct process p;
    char want[4000], path[300];
    for (int k = 0; k < 2; k++) {
        case_begin("plain text of one prompt%s", k == 0 ? ", --no-echo" : "");
        process_run(&p, &setup,
                    (const char *[]){"generate", "--model", models_demo(), "--prompt", prompts[0], DRAW, "7",
                                     "--max-tokens", "40", last[k], NULL});
        (void)snprintf(want, sizeof want, "%s%s\n", k == 0 ? "" : prompts[0], texts[0]);
        case_check(strcmp(p.text[PROCESS_OUT], want) == 0, "%s, expected %s", p.text[PROCESS_OUT], want);
        case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        case_end();
        process_free(&p);
    }
    size_t used = 0;
    for (int i = 0; i < N_PROMPTS; i++)
        used += (size_t)snprintf(want + used, sizeof want - used, "%s==> prompt %d of %d <==\n%s%s\n",
                                 i > 0 ? "\n" : "", i + 1, N_PROMPTS, prompts[i], texts[i]);
    (void)snprintf(path, sizeof path, "%s/prompts.txt", folder);
    case_begin("plain text of %d prompts", N_PROMPTS);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompts", path, DRAW, "7", "--max-tokens",
                                 "40", NULL});
    case_check(strcmp(p.text[PROCESS_OUT], want) == 0, "%s, expected %s", p.text[PROCESS_OUT], want);
    case_end();
    process_free(&p);
}

/* The environment sets an option, and the command line overrides it. */
static void environment(void)
{
    const char *env[] = {"LOCKSTEP_MAX_TOKENS=3", NULL};
    struct process_setup setup = {.ranks = 2, .env = env};
    for (int k = 0; k < 2; k++) {
        struct process p;
        case_begin("LOCKSTEP_MAX_TOKENS%s", k == 0 ? "" : " beside --max-tokens");
        process_run(&p, &setup,
                    (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once", "--json",
                                     k == 0 ? NULL : "--max-tokens", "5", NULL});
        json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
        case_check(json_array_size(json_object_get(o, "token_ids")) == (k == 0 ? 3 : 5), "%s%s", p.text[PROCESS_OUT],
                   p.text[PROCESS_ERR]);
        case_end();
        json_decref(o);
        process_free(&p);
    }
}

int main(void)
{
    char path[300];
    files_make_dir(folder);
    write_files();
    (void)snprintf(path, sizeof path, "%s/prompts.txt", folder);
    reference(path);
    variants();
    alone();
    ids_in_lines();
    output_file();
    plain_text();
    environment();
    files_remove_dir(folder);
    for (int i = 0; i < N_PROMPTS; i++)
        free(texts[i]);
    return cases_done();
}
