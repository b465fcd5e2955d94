/* tests/e2e/test_terminal.c - output for a person: progress bars and streamed text on a terminal, neither in a pipe;
 * the time to the first token; help and version. */
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
    const char *name;
    int ranks;
    bool terminal[2]; /* standard output, standard error */
    const char *progress;
    bool json;
    bool bar, streams; /* expected */
};

static bool has_bar(const char *text)
{
    const char *at = strstr(text, "loading [");
    return at != NULL && strstr(at, "#] 100%") != NULL && strstr(at, "MiB of 5.40 MiB") != NULL &&
           strstr(at, "iB/s") != NULL;
}

/* Streaming text arrives in many pieces, in fewer if the reader is late, as on a busy machine. Other text arrives in
 * few, but Open MPI 5 may pass it on by lines. One thread a rank: waiting threads spin, which would be slow. */
static void check_view(const struct view *v)
{
    struct process_setup setup = {.ranks = v->ranks, .terminal = {v->terminal[0], v->terminal[1]}};
    struct process p;
    case_begin("%s", v->name);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once upon a time", "--ignore-eos",
                                 "--max-tokens", "250", "--threads", "1", "--progress", v->progress,
                                 v->json ? "--json" : NULL, NULL});
    const char *out = p.text[PROCESS_OUT], *err = p.text[PROCESS_ERR];
    case_check(p.status == 0, "status %d: %s", p.status, err);
    case_check(has_bar(err) == v->bar, "standard error: %s", err);
    case_check(v->bar || p.bytes[PROCESS_ERR] == 0, "standard error: %s", err);
    int most = 4 + (v->ranks > 0 && process_has_open_mpi_5() ? process_count_lines(out) : 0);
    case_check(v->streams ? process_patience(p.n_pieces) >= 5 : p.n_pieces <= most, "standard output came in %d pieces",
               p.n_pieces);
    case_check(strstr(out, "loading") == NULL && strstr(out, "\x1b[K") == NULL, "a bar on standard output: %s", out);
    case_check(strncmp(out, v->json ? "{" : "Once upon a time", v->json ? 1 : 16) == 0, "standard output: %s", out);
    case_check(p.bytes[PROCESS_OUT] > 500 && out[p.bytes[PROCESS_OUT] - 1] == '\n', "standard output: %s", out);
    if (v->bar) { /* removed at the end */
        const char *last = strrchr(err, '\r');
        case_check(last != NULL && strcmp(last, "\r\x1b[K") == 0, "the bar was not removed: %s",
                   last != NULL ? last : err);
    }
    case_end();
    process_free(&p);
}

static void views(void)
{
    static const struct view table[] = {
        {"a terminal, 1 rank", 1, {true, true}, "auto", false, true, true},
        {"a terminal, 2 ranks", 2, {true, true}, "auto", false, true, true},
        {"a terminal, without mpirun", 0, {true, true}, "auto", false, true, true},
        {"pipes", 2, {false, false}, "auto", false, false, false},
        {"pipes, without mpirun", 0, {false, false}, "auto", false, false, false},
        {"standard output in a pipe, standard error on a terminal", 2, {false, true}, "auto", false, true, false},
        {"JSON in a pipe, standard error on a terminal", 2, {false, true}, "auto", true, true, false},
        {"standard error in a pipe, standard output on a terminal", 2, {true, false}, "auto", false, false, true},
        {"--progress always in pipes", 2, {false, false}, "always", false, true, true},
        {"--progress never on a terminal", 2, {true, true}, "never", false, false, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        check_view(&table[i]);
}

/* A measurement has several runs, between which the bar is drawn. */
static void bench_view(const char *progress, bool terminal, bool bar)
{
    struct process_setup setup = {.ranks = 2, .terminal = {true, terminal}};
    struct process p;
    case_begin("bench --progress %s, standard error %s", progress, terminal ? "on a terminal" : "in a pipe");
    process_run(&p, &setup,
                (const char *[]){"bench", "--model", models_demo(), "--n-prompt", "8", "--n-gen", "4", "--repetitions",
                                 "2", "--threads", "1", "--progress", progress, NULL});
    const char *err = p.text[PROCESS_ERR], *last = strrchr(err, '\r');
    case_check(p.status == 0, "status %d: %s", p.status, err);
    case_check((strstr(err, "measuring [") != NULL) == bar, "standard error: %s", err);
    case_check(!bar || strstr(err, "100%  6 runs of 6 runs") != NULL, "standard error: %s", err);
    case_check(bar ? last != NULL && strcmp(last, "\r\x1b[K") == 0 : p.bytes[PROCESS_ERR] == 0, "standard error: %s",
               err);
    case_check(strstr(p.text[PROCESS_OUT], "\x1b[K") == NULL, "a bar on standard output: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

static void tell_story(struct process *p, const struct process_setup *setup)
{
    process_start(p, setup,
                  (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once upon a time", "--ignore-eos",
                                   "--seed", "7", "--max-tokens", "500", "--threads", "1", "--progress", "auto", NULL});
}

/* Checks that the output is the beginning of the story, up to any character, and ends with a newline (one is added if
 * the last character is none). */
static void check_line_ended(const struct process *p, const char *story)
{
    const char *out = p->text[PROCESS_OUT];
    size_t same = 0, bytes = p->bytes[PROCESS_OUT];
    while (same < bytes && out[same] == story[same])
        same++;
    bool added = same + 1 == bytes && same > 0 && out[same - 1] != '\n';
    case_check(bytes > 16 && out[bytes - 1] == '\n' && (same == bytes || added), "not a beginning of the story: %s",
               out);
}

/* ^C: the streamed text ends with a complete line, and the status is that of the signal; mpirun's own is 1 or 130.
 * mpirun kills ranks a second after ^C, which is too early for them on a busy machine. */
static void interrupted(int ranks)
{
    struct process_setup setup = {.ranks = ranks, .terminal = {true, true}};
    struct process p, whole;
    if (ranks > 0 && process_has_open_mpi_5()) {
        case_skip("^C while text streams, under mpirun", "Open MPI 5's drops output that ranks write after ^C");
        return;
    }
    case_begin("^C while text streams%s: the line is ended", ranks > 0 ? ", under mpirun" : "");
    tell_story(&whole, &(struct process_setup){0});
    process_wait(&whole);
    process_delay_kill(5);
    tell_story(&p, &setup);
    process_delay_kill(0);
    process_watch(&p, process_patience(60), 20);
    case_check(!p.ended && kill(p.pid, SIGINT) == 0, "it ended before the signal: status %d", p.status);
    process_wait(&p);
    case_check(ranks > 0 ? p.status != 0 : p.status == 128 + SIGINT, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_line_ended(&p, whole.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
    process_free(&whole);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures from the start of mpirun to the end of a run of one token, which includes more than the promise does. */
static void first_token(int ranks)
{
    double seconds[3];
    case_begin("one token in less than a second, %d ranks", ranks);
    for (int i = 0; i < 3; i++) {
        struct process_setup setup = {.ranks = ranks};
        struct process p;
        process_run(
            &p, &setup,
            (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once", "--max-tokens", "1", NULL});
        case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        seconds[i] = p.first_output;
        process_free(&p);
    }
    qsort(seconds, 3, sizeof seconds[0], ascending);
    case_check(process_in_time(seconds[1], 1), "%.2f s, the median of 3", seconds[1]);
    printf("# %d ranks: %.3f s to the first token\n", ranks, seconds[1]);
    case_end();
}

/* Exactly one warning for the variable that resembles an option's; none for variables of tests and of the other
 * programs. */
static void unknown_variable(const char *command, int ranks)
{
    static const char *const env[] = {"LOCKSTEP_MAX_TOKEN=3",       "LOCKSTEP_GATEWAY_BACKEND=x", "LOCKSTEP_BUILD=y",
                                      "LOCKSTEP_CLIENT_ENDPOINT=x", "LOCKSTEP_MAX_TOKENS=1",      NULL};
    static const char said[] = "LOCKSTEP_MAX_TOKEN is not an option; did you mean LOCKSTEP_MAX_TOKENS?";
    struct process_setup setup = {.ranks = ranks, .env = env};
    struct process p;
    const char *words[] = {command, "--model", models_demo(), "--prompt", "Once", NULL};
    if (ranks == 0)
        words[3] = NULL;
    case_begin("a variable without an option: %s", command);
    process_run(&p, &setup, words);
    const char *err = p.text[PROCESS_ERR], *first = strstr(err, said);
    case_check(p.status == 0, "status %d: %s", p.status, err);
    case_check(first != NULL && strstr(first + sizeof said, "is not an option") == NULL, "standard error: %s", err);
    case_end();
    process_free(&p);
}

/* Every option of the table in commands/options.c, by command. */
static const char *const generate_options[] = {"model",
                                               "prompt",
                                               "prompts",
                                               "prompt-ids",
                                               "max-tokens",
                                               "min-tokens",
                                               "temperature",
                                               "top-k",
                                               "top-p",
                                               "min-p",
                                               "repetition-penalty",
                                               "presence-penalty",
                                               "frequency-penalty",
                                               "logit-bias",
                                               "seed",
                                               "stop",
                                               "stop-token-ids",
                                               "include-stop-str-in-output",
                                               "ignore-eos",
                                               "json-schema",
                                               "regex",
                                               "choice",
                                               "logprobs",
                                               "prompt-logprobs",
                                               "output",
                                               "model-switch",
                                               "json",
                                               "no-echo",
                                               "no-add-special-tokens",
                                               "plain-text",
                                               "keep-special-tokens",
                                               "revision",
                                               "tensor-parallel",
                                               "tensor-parallel-size",
                                               "expert-parallel",
                                               "enable-expert-parallel",
                                               "load-way",
                                               "load-threads",
                                               "load-slots",
                                               "load-piece-bytes",
                                               "max-batch",
                                               "max-num-seqs",
                                               "max-batch-tokens",
                                               "max-num-batched-tokens",
                                               "no-enable-prefix-caching",
                                               "enable-prefix-caching",
                                               "speculative-config",
                                               "draft-model",
                                               "draft-tensor-parallel-size",
                                               "num-speculative-tokens",
                                               "prompt-lookup-max",
                                               "prompt-lookup-min",
                                               "speculative",
                                               "max-model-len",
                                               "kv-cache-memory-bytes",
                                               "kv-cache-dtype",
                                               "quantization",
                                               "head-dtype",
                                               "quantized-activations",
                                               "preflight",
                                               "min-read-share",
                                               "max-broadcast-us",
                                               "min-file-rate",
                                               "preflight-timeout",
                                               "accept-throttling",
                                               "threads",
                                               "device",
                                               "step",
                                               "sum-pieces",
                                               "batch-invariant",
                                               "step-timeout",
                                               "verbose",
                                               "progress",
                                               NULL};
static const char *const inspect_options[] = {"quantization",
                                              "head-dtype",
                                              "model",
                                              "json",
                                              "ranks",
                                              "revision",
                                              "tensor-parallel",
                                              "tensor-parallel-size",
                                              "expert-parallel",
                                              "enable-expert-parallel",
                                              "device",
                                              "kv-cache-dtype",
                                              "read-rate",
                                              "sum-us",
                                              NULL};
static const char *const bench_options[] = {"model",
                                            "json",
                                            "revision",
                                            "tensor-parallel",
                                            "tensor-parallel-size",
                                            "expert-parallel",
                                            "enable-expert-parallel",
                                            "config",
                                            "load-format",
                                            "quantization",
                                            "load-way",
                                            "load-threads",
                                            "load-slots",
                                            "load-piece-bytes",
                                            "n-prompt",
                                            "n-gen",
                                            "n-depth",
                                            "batch",
                                            "latency",
                                            "throughput",
                                            "num-prompts",
                                            "shared-prefix",
                                            "read-limit-bytes",
                                            "step-times",
                                            "max-step-ms",
                                            "max-batch",
                                            "max-num-seqs",
                                            "num-speculative-tokens",
                                            "draft-model",
                                            "draft-tensor-parallel-size",
                                            "draft-acceptance",
                                            "speculative",
                                            "tokenizer",
                                            "json-schema",
                                            "model-switch",
                                            "beside",
                                            "repetitions",
                                            "warmup",
                                            "profile",
                                            "max-batch-tokens",
                                            "max-num-batched-tokens",
                                            "kv-cache-memory-bytes",
                                            "kv-cache-dtype",
                                            "quantized-activations",
                                            "preflight",
                                            "min-read-share",
                                            "max-broadcast-us",
                                            "min-file-rate",
                                            "preflight-timeout",
                                            "accept-throttling",
                                            "threads",
                                            "device",
                                            "step",
                                            "sum-pieces",
                                            "batch-invariant",
                                            "step-timeout",
                                            "verbose",
                                            "progress",
                                            NULL};

/* Returns the name of the next option that is listed after `at`, as " --name" or " -n, --name"; NULL: none. */
static const char *next_option(const char *at)
{
    while ((at = strstr(at, "\n  -")) != NULL) {
        at += strlen("\n  ");
        if (at[0] == '-' && at[1] != '-' && strncmp(at + 2, ", ", 2) == 0)
            at += strlen("-n, ");
        if (strncmp(at, "--", 2) == 0)
            return at + 2;
    }
    return NULL;
}

static void help(const char *command, const char *const *options)
{
    struct process_setup setup = {.ranks = 0};
    struct process p, q;
    int n = 0, listed = 0;
    case_begin("lockstep %s --help", command);
    process_run(&p, &setup, (const char *[]){command, "--help", NULL});
    process_run(&q, &setup, (const char *[]){"help", command, NULL});
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strcmp(p.text[PROCESS_OUT], q.text[PROCESS_OUT]) == 0, "lockstep help %s differs", command);
    for (; options[n] != NULL; n++) {
        const char *at = p.text[PROCESS_OUT];
        while ((at = next_option(at)) != NULL &&
               (strcspn(at, " \n") != strlen(options[n]) || strncmp(at, options[n], strlen(options[n])) != 0))
            continue;
        case_check(at != NULL, "--%s is missing", options[n]);
    }
    for (const char *at = p.text[PROCESS_OUT]; (at = next_option(at)) != NULL;)
        listed++;
    case_check(listed == n, "%d options are listed, this test knows %d", listed, n);
    case_end();
    process_free(&p);
    process_free(&q);
}

static void overview(void)
{
    static const char *const asks[] = {"--help", "help", "-h"};
    static const char *const words[] = {
        "lockstep generate", "lockstep inspect",    "lockstep bench", "lockstep version",
        "Exit status",       "LOCKSTEP_MAX_TOKENS", "  70  "};
    struct process_setup setup = {.ranks = 0};
    struct process p;
    for (int i = 0; i < 3; i++) {
        case_begin("lockstep %s", asks[i]);
        process_run(&p, &setup, (const char *[]){asks[i], NULL});
        case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            case_check(strstr(p.text[PROCESS_OUT], words[k]) != NULL, "\"%s\" is missing: %s", words[k],
                       p.text[PROCESS_OUT]);
        case_end();
        process_free(&p);
    }
    for (int i = 0; i < 2; i++) {
        case_begin("lockstep %s", i == 0 ? "--version" : "version");
        process_run(&p, &setup, (const char *[]){i == 0 ? "--version" : "version", NULL});
        case_check(p.status == 0 && strcmp(p.text[PROCESS_OUT], "lockstep " LOCKSTEP_VERSION "\n") == 0,
                   "status %d: %s", p.status, p.text[PROCESS_OUT]);
        case_end();
        process_free(&p);
    }
}

int main(void)
{
    (void)signal(SIGINT, SIG_DFL); /* a shell ignores it in background commands */
    first_token(1);
    first_token(2);
    views();
    bench_view("auto", true, true);
    bench_view("auto", false, false);
    bench_view("always", false, true);
    bench_view("never", true, false);
    interrupted(0);
    interrupted(2);
    unknown_variable("inspect", 0);
    unknown_variable("generate", 2);
    overview();
    help("generate", generate_options);
    help("inspect", inspect_options);
    help("bench", bench_options);
    return cases_done();
}
