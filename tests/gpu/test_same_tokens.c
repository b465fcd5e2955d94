/* tests/gpu/test_same_tokens.c - the demo model in float32: a device gives the tokens that one rank of the CPU backend
 * gives, on every number of ranks, greedy and sampled. argv: "cpu" (or nothing) or "cuda", and the most ranks (2). */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPTS 30

static const struct way {
    const char *name, *argument[9];
} ways[] = {
    {"greedy", {"--temperature", "0"}},
    {"sampled with top-p", {"--temperature", "0.8", "--top-p", "0.95", "--seed", "7"}},
    {"sampled with top-k and min-p", {"--temperature", "1", "--top-k", "40", "--min-p", "0.02", "--seed", "8"}},
    {"sampled with penalties",
     {"--temperature", "1.1", "--repetition-penalty", "1.2", "--presence-penalty", "0.2", "--seed", "9"}},
};

/* Writes short prompts, and every fifth of a few hundred tokens. */
static void make_prompts(char *text, size_t bytes)
{
    static const char *const begin[] = {"Once upon a time",  "The little dragon", "Long ago, in a small village",
                                        "Tom and Lily went", "One day a fox",     "In the forest"};
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < N_PROMPTS; i++) {
        for (int k = i % 5 == 0 ? 12 : 0; k >= 0; k--)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s ", begin[(i + k) % 6], i % 7 < 3 ? " there was" : "");
        n += (size_t)snprintf(text + n, bytes - n, "a\n");
    }
}

/* a CPU, which is compared with itself, generates half as many */
static const char *max_tokens = "50";

static void generate(struct process *p, const char *dir, const char *prompts, const char *device, int ranks,
                     const struct way *way)
{
    const char *argument[40] = {"generate", "--model",  dir,    "--prompts",    "-",
                                "--json",   "--device", device, "--max-tokens", max_tokens};
    struct process_setup setup = {.ranks = ranks, .input = prompts, .limit = 240};
    for (int i = 0, n = 10; way->argument[i] != NULL; i++)
        argument[n++] = way->argument[i];
    process_run(p, &setup, argument);
}

/* Counts tokens in JSON lines; -1 if a line is incomplete. */
static long count_tokens(const char *text)
{
    long n = 0;
    int lines = 0;
    for (const char *at = text; *at != '\0'; lines++) {
        size_t length = strcspn(at, "\n");
        json_t *o = json_loadb(at, length, JSON_ALLOW_NUL, NULL);
        if (o == NULL)
            return -1;
        n += (long)json_array_size(json_object_get(o, "token_ids"));
        json_decref(o);
        at += length + (at[length] == '\n');
    }
    return lines == N_PROMPTS ? n : -1;
}

static void compare(const struct process *want, const struct process *got)
{
    const char *a = want->text[PROCESS_OUT], *b = got->text[PROCESS_OUT];
    int line = 1;
    size_t i = 0;
    for (; a[i] != '\0' && a[i] == b[i]; i++)
        line += a[i] == '\n';
    case_check(a[i] == b[i], "line %d differs from byte %zu on: %.60s, expected %.60s", line, i,
               b + (i > 20 ? i - 20 : 0), a + (i > 20 ? i - 20 : 0));
}

int main(int argc, char **argv)
{
    static char prompts[1 << 16];
    char dir[256];
    const char *device = argc > 1 ? argv[1] : "cpu";
    int most = argc > 2 ? atoi(argv[2]) : 2;
    if (strcmp(device, "cpu") != 0)
        max_tokens = "100";
    files_make_dir(dir);
    models_write_wide(dir);
    make_prompts(prompts, sizeof prompts);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct process want, got;
        generate(&want, dir, prompts, "cpu", 1, &ways[i]);
        for (int ranks = 1; ranks <= most; ranks++) {
            case_begin("%s: %s on %d rank(s) as cpu on one", ways[i].name, device, ranks);
            generate(&got, dir, prompts, device, ranks, &ways[i]);
            long n = count_tokens(want.text[PROCESS_OUT]);
            case_check(want.status == 0 && n > 1000, "cpu: status %d, %ld tokens: %s", want.status, n,
                       want.text[PROCESS_ERR]);
            case_check(got.status == 0, "status %d: %s", got.status, got.text[PROCESS_ERR]);
            compare(&want, &got);
            case_end();
            process_free(&got);
        }
        process_free(&want);
    }
    files_remove_dir(dir);
    return cases_done();
}
