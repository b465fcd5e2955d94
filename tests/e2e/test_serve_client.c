/* tests/e2e/test_serve_client.c - lockstep-client and `lockstep serve` together, under mpirun on 1, 2 and 3 ranks: the
 * client prints the text of `lockstep generate`; keys from the rendezvous file; bench and top of a real server. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT "Once upon a time"
#define LIST(...)         \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

static struct serving s;

/* Runs the client with these arguments; --rendezvous comes before them, after the command if `command` is one. */
static void client(struct process *p, const char *command, const char *input, const char *const *more)
{
    const char *argument[40] = {command, "--rendezvous", s.rendezvous};
    int n = 3;
    for (; *more != NULL && n < 39; more++)
        argument[n++] = *more;
    process_run(p, &(struct process_setup){.program = "lockstep-client", .input = input}, argument);
}

static void check_good(const struct process *p)
{
    case_check(p->status == 0 && p->bytes[PROCESS_ERR] == 0, "status %d: %s", p->status, p->text[PROCESS_ERR]);
}

/* Returns the reference text; the caller frees it. */
static char *generated(void)
{
    struct process p;
    process_run(&p, &(struct process_setup){.ranks = 1},
                LIST("generate", "--model", models_demo(), "--prompt", PROMPT, "--max-tokens", "40", "--temperature",
                     "0", "--no-echo"));
    check_good(&p);
    char *text = strdup(p.text[PROCESS_OUT]);
    process_free(&p);
    return text;
}

static void same_text(const char *want)
{
    static const char *const how[] = {"--stream", "--no-stream", "-"};
    case_begin("the text of generate, on %d ranks", s.ranks);
    for (int i = 0; i < 3; i++) {
        struct process p;
        client(&p, "generate", PROMPT,
               LIST("--max-tokens", "40", "--temperature", "0", i < 2 ? how[i] : "--no-stream", i < 2 ? PROMPT : "-"));
        check_good(&p);
        case_check(strcmp(p.text[PROCESS_OUT], want) == 0, "%s: \"%s\", expected \"%s\"", how[i], p.text[PROCESS_OUT],
                   want);
        process_free(&p);
    }
    case_end();
}

static void tokens(void)
{
    struct process p, q;
    case_begin("a text to token ids and back, on %d ranks", s.ranks);
    client(&p, "tokenize", NULL, LIST("--add-special-tokens", "false", PROMPT));
    check_good(&p);
    p.text[PROCESS_OUT][strcspn(p.text[PROCESS_OUT], "\n")] = '\0';
    client(&q, "detokenize", NULL, LIST(p.text[PROCESS_OUT]));
    check_good(&q);
    case_check(strcmp(q.text[PROCESS_OUT], PROMPT "\n") == 0, "%s: %s", p.text[PROCESS_OUT], q.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
    process_free(&q);
}

static void candidates(void)
{
    struct process p;
    case_begin("several candidates, numbered, on %d ranks", s.ranks);
    client(&p, "generate", NULL, LIST("--n", "3", "--max-tokens", "5", "--seed", "1", PROMPT));
    check_good(&p);
    case_check(strncmp(p.text[PROCESS_OUT], "[0] ", 4) == 0 && strstr(p.text[PROCESS_OUT], "\n[2] ") != NULL, "%s",
               p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

static void refused(void)
{
    struct process p;
    case_begin("a refusal of the server is one line, on %d ranks", s.ranks);
    client(&p, "generate", NULL, LIST("--top-p", "7", PROMPT));
    case_check(p.status == 1 && strstr(p.text[PROCESS_ERR], "error 400: top_p: ") != NULL &&
                   process_count_lines(p.text[PROCESS_ERR]) == 1,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(p.bytes[PROCESS_OUT] == 0, "standard output: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

static double number_of(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Lengths are exact; the client and the server count the same tokens. */
static void bench(void)
{
    struct process p;
    case_begin("bench, on %d ranks", s.ranks);
    double before = serving_metric(&s, "generation_tokens_total");
    client(&p, "bench", NULL,
           LIST("--num-prompts", "20", "--random-input-len", "33", "--random-output-len", "9", "--max-concurrency", "4",
                "--num-warmups", "0", "--json"));
    check_good(&p);
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    case_check(number_of(o, "completed") == 20 && number_of(o, "total_input_tokens") == 20 * 33 &&
                   number_of(o, "total_output_tokens") == 20 * 9,
               "%s", p.text[PROCESS_OUT]);
    case_check(number_of(o, "max_concurrent_requests") >= 2 && number_of(o, "max_concurrent_requests") <= 4,
               "%g at once", number_of(o, "max_concurrent_requests"));
    case_check(number_of(o, "mean_e2el_ms") >= number_of(o, "mean_ttft_ms") + 7 * number_of(o, "mean_tpot_ms"),
               "times do not add up: %s", p.text[PROCESS_OUT]);
    double made = serving_metric(&s, "generation_tokens_total") - before;
    case_check(made == 20 * 9, "the server counts %g tokens", made);
    case_end();
    json_decref(o);
    process_free(&p);
}

static void top(void)
{
    struct process p;
    case_begin("top, on %d ranks", s.ranks);
    client(&p, "top", NULL, LIST("--once", "--interval", "0.2"));
    check_good(&p);
    case_check(strstr(p.text[PROCESS_OUT], " 0 running, 0 waiting") != NULL &&
                   strstr(p.text[PROCESS_OUT], "KV cache") != NULL,
               "%s", p.text[PROCESS_OUT]);
    const char *row = strstr(p.text[PROCESS_OUT], "\nrank ");
    case_check(row != NULL && process_count_lines(row + 1) == 1 + s.ranks, "not one row per rank: %s",
               p.text[PROCESS_OUT]);
    for (row = row != NULL ? strchr(row + 1, '\n') : NULL; row != NULL; row = strchr(row + 1, '\n')) {
        int rank = 0;
        char steps[32] = "", *end = strchr(row + 1, '\n');
        const char *mark = strstr(row, "slowest");
        if (sscanf(row, "%d %31s", &rank, steps) == 2 && strcmp(steps, "0") == 0)
            case_check(mark == NULL || (end != NULL && mark > end), "a rank without steps is the slowest: %s", row);
    }
    case_end();
    process_free(&p);
}

static void on_ranks(int ranks, const char *want)
{
    case_begin("serve on %d ranks", ranks);
    bool started = serving_start(&s, ranks, NULL, NULL);
    case_check(started, "no server");
    case_end();
    if (!started)
        return;
    same_text(want);
    tokens();
    candidates();
    refused();
    bench();
    top();
    case_begin("SIGUSR1 ends it, on %d ranks", ranks);
    case_check(serving_stop(&s) == 0, "a status other than 0");
    case_end();
}

/* The rendezvous file alone gives keys and endpoint; foreign keys are refused; shutdown needs CURVE or ipc. */
static void curve(const char *want)
{
    struct process p;
    char keys[320];
    case_begin("CURVE by the rendezvous file");
    bool started = serving_start(&s, 2, NULL, LIST("--curve"));
    case_check(started, "no server");
    if (!started) {
        case_end();
        return;
    }
    client(&p, "generate", NULL, LIST("--max-tokens", "40", "--temperature", "0", PROMPT));
    check_good(&p);
    case_check(strcmp(p.text[PROCESS_OUT], want) == 0, "%s", p.text[PROCESS_OUT]);
    process_free(&p);
    process_run(&p, &(struct process_setup){.program = "lockstep-client"},
                LIST("--endpoint", s.endpoint, "--connect-timeout", "1", PROMPT));
    case_check(p.status == 8, "without keys: status %d", p.status);
    process_free(&p);
    (void)snprintf(keys, sizeof keys, "%s.client", s.rendezvous);
    process_run(&p, &(struct process_setup){.program = "lockstep-client"},
                LIST("shutdown", "--endpoint", s.endpoint, "--curve-key", keys));
    check_good(&p);
    process_free(&p);
    process_wait(&s.p);
    case_check(s.p.status == 0, "status %d after shutdown: %s", s.p.status, s.p.text[PROCESS_ERR]);
    (void)serving_stop(&s);
    case_end();
}

int main(void)
{
    case_begin("the reference");
    char *want = generated();
    case_end();
    for (int ranks = 1; ranks <= 3; ranks++)
        on_ranks(ranks, want);
    curve(want);
    free(want);
    return cases_done();
}
