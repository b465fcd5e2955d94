/* tests/e2e/test_batch.c - `lockstep batch` from outside: what lines may look like and what comes of them, standard input and
 * output, patterns, bad lines, duplicates, going on with an output, and what is refused. On one, two and three ranks. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WORDS 40

static char dir[256];

/* Runs in the folder, so that names are short. words end with NULL. */
static void run(struct process *p, int ranks, const char *input, const char *const *words)
{
    const char *all[MAX_WORDS] = {"batch", "--model", models_demo(), "--threads", "1", "--progress", "never"};
    static char path[8][300];
    const struct process_setup setup = {.ranks = ranks, .input = input};
    int n = 7, k = 0;
    for (; *words != NULL && n < MAX_WORDS - 1; words++) {
        all[n] = *words;
        if (strncmp(*words, "@", 1) == 0) { /* @name: in our folder */
            (void)snprintf(path[k], sizeof path[k], "%s/%s", dir, *words + 1);
            all[n] = path[k++];
        }
        n++;
    }
    process_run(p, &setup, all);
}

#define RUN(p, ranks, input, ...) run((p), (ranks), (input), (const char *const[]){__VA_ARGS__, NULL})

static void write_lines(const char *name, const char *text)
{
    files_write(dir, name, text, strlen(text));
}

static void forget(const char *name)
{
    static const char *const suffix[] = {"", ".manifest.json", ".status.json"};
    char path[400];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix[i]);
        (void)unlink(path);
    }
}

/* The member of a result at "a/b/0/c". */
static const json_t *at(const struct batch_results *r, const char *id, const char *path)
{
    const json_t *value = json_object_get(r->by_id, id);
    char key[64];
    while (value != NULL && *path != '\0') {
        size_t n = strcspn(path, "/");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(key)) : json_object_get(value, key);
        path += n + (path[n] == '/');
    }
    return value;
}

static const char *text_at(const struct batch_results *r, const char *id, const char *path)
{
    const char *text = json_string_value(at(r, id, path));
    return text != NULL ? text : "";
}

static long long number_at(const struct batch_results *r, const char *id, const char *path)
{
    return json_integer_value(at(r, id, path));
}

/* ---- what lines may look like ---- */

static const char mixed[] =
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"lockstep-stories\","
    "\"prompt\":\"Once upon a time\",\"max_tokens\":6,\"temperature\":0,\"logprobs\":2}}\n"
    "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/chat/"
    "completions\",\"body\":{\"messages\":[{\"role\":\"user\","
    "\"content\":\"Tell me of a dragon\"}],\"max_tokens\":5,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":1}}\n"
    "\n"
    "{\"prompt\":\"Long ago\",\"n\":2,\"max_tokens\":4,\"id\":17,\"echo\":true}\n"
    "{\"prompt\":[\"Once\",\"Long\"],\"max_tokens\":3,\"temperature\":0}\n"
    "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\",\"top_p\":3}}\n"
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"}}\n"
    "{\"prompt\":\"x\",\"stream\":true}\n"
    "not JSON\n"
    "{\"prompt\":\"Once\",\"max_tokens\":100000,\"id\":\"long\"}\n"
    "{\"custom_id\":\"long body\",\"method\":\"POST\",\"url\":\"/v1/completions\","
    "\"body\":{\"prompt\":\"Once\",\"max_tokens\":100000}}\n";

static void check_good(const struct batch_results *r, const char *made)
{
    case_check(number_at(r, "a", "response/status_code") == 200 && json_is_null(at(r, "a", "error")) &&
                   strncmp(text_at(r, "a", "id"), "batch_req_", 10) == 0 &&
                   strcmp(text_at(r, "a", "response/body/object"), "text_completion") == 0 &&
                   strcmp(text_at(r, "a", "response/body/model"), "lockstep-stories") == 0 &&
                   strcmp(text_at(r, "a", "response/body/choices/0/finish_reason"), "length") == 0 &&
                   json_array_size(at(r, "a", "response/body/choices/0/logprobs/tokens")) == 6 &&
                   json_array_size(at(r, "a", "response/body/choices/0/logprobs/token_logprobs")) == 6 &&
                   json_object_size(at(r, "a", "response/body/choices/0/logprobs/top_logprobs/0")) == 2 &&
                   strlen(text_at(r, "a", "response/body/choices/0/text")) > 5,
               "the completion");
    case_check(number_at(r, "a", "response/body/usage/completion_tokens") == 6 &&
                   number_at(r, "a", "response/body/usage/total_tokens") ==
                       6 + number_at(r, "a", "response/body/usage/prompt_tokens") &&
                   json_real_value(at(r, "a", "response/body/timing/total_ms")) > 0,
               "its usage and timing");
    case_check(strcmp(text_at(r, "b", "response/body/object"), "chat.completion") == 0 &&
                   strcmp(text_at(r, "b", "response/body/choices/0/message/role"), "assistant") == 0 &&
                   strlen(text_at(r, "b", "response/body/choices/0/message/content")) > 0 &&
                   json_array_size(at(r, "b", "response/body/choices/0/logprobs/content")) == 5,
               "the chat: %s", text_at(r, "b", "error/message"));
    case_check(json_is_integer(at(r, "17", "custom_id")) &&
                   json_array_size(at(r, "17", "response/body/choices")) == 2 &&
                   strncmp(text_at(r, "17", "response/body/choices/1/text"), "Long ago", 8) == 0 &&
                   number_at(r, "17", "response/body/usage/completion_tokens") == 8,
               "n = 2 with echo");
    case_check(json_array_size(at(r, made, "response/body/choices")) == 2, "two prompts in a line without an id");
}

/* The error names file, line and field. */
static void check_error(const struct batch_results *r, const char *id, int code, const char *field, const char *part)
{
    const char *message = text_at(r, id, "error/message"), *param = text_at(r, id, "error/param");
    case_check(number_at(r, id, "response/status_code") == code && json_is_null(at(r, id, "response/body")) &&
                   strcmp(param, field) == 0 && strstr(message, part) != NULL &&
                   strstr(message, "in.jsonl: line") != NULL,
               "%s: %lld, %s: %s", id, number_at(r, id, "response/status_code"), param, message);
}

static void formats(int ranks)
{
    struct process p;
    struct batch_results r;
    char made[300], last[300], bad[300];
    case_begin("batch: OpenAI lines, plain and bad ones on %d ranks", ranks);
    write_lines("in.jsonl", mixed);
    forget("out.jsonl");
    RUN(&p, ranks, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--chat-template", "chatml");
    (void)snprintf(made, sizeof made, "%s/in.jsonl:5", dir);
    (void)snprintf(last, sizeof last, "%s/in.jsonl:8", dir);
    (void)snprintf(bad, sizeof bad, "%s/in.jsonl:9", dir);
    batching_read(&r, dir, "out.jsonl");
    case_check(p.status == 1, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(r.n == 9 && r.n_twice == 0 && r.n_strange == 0 && r.torn == 0, "%d results, %d twice, %d strange", r.n,
               r.n_twice, r.n_strange);
    check_good(&r, made);
    check_error(&r, "c", 400, "body.top_p", "found 3");
    check_error(&r, last, 400, "stream", "whole results");
    check_error(&r, bad, 400, "", "line 9: text: not valid JSON");
    check_error(&r, "long", 413, "max_tokens", "100000");
    check_error(&r, "long body", 413, "body.max_tokens", "100000");
    case_check(strstr(p.text[PROCESS_ERR], "line 7: id \"a\" is that of") != NULL &&
                   strstr(p.text[PROCESS_ERR], "line 1; it is not run again") != NULL,
               "the duplicate: %s", p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* The same texts, sampled ones too, on every number of ranks, in any batch, in both forms of results. */
static void same_texts(void)
{
    struct batch_results first = {0};
    batching_prompts(dir, "many.jsonl", 40, 12);
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct process p;
        struct batch_results r;
        case_begin("batch: the same texts on %d ranks", ranks);
        forget("many.out");
        RUN(&p, ranks, NULL, "--input", "@many.jsonl", "--output", "@many.out", "--seed", "3", "--temperature", "0.9",
            "--max-batch", ranks == 1 ? "3" : "32", ranks == 2 ? "--ordered" : "--plain");
        batching_read(&r, dir, "many.out");
        case_check(p.status == 0 && r.n == 40 && r.n_twice == 0, "status %d, %d results: %s", p.status, r.n,
                   p.text[PROCESS_ERR]);
        if (ranks == 1)
            first = r;
        else
            case_check(batching_differences(&r, &first) == 0, "%d texts differ", batching_differences(&r, &first));
        int unordered = 0, same = 0;
        for (int i = 0; i < r.n; i++)
            unordered += atoi(r.order[i] + 1) != i;
        for (int i = 4; ranks == 1 && i < 40; i += 4) { /* every fourth prompt is alike, their seeds are not */
            char id[16];
            (void)snprintf(id, sizeof id, "r%d", i);
            same += strcmp(text_at(&r, id, "text"), text_at(&r, "r0", "text")) == 0;
        }
        case_check(ranks != 2 || unordered == 0, "%d results are out of order", unordered);
        case_check(same < 9, "requests with different ids got the same text");
        if (ranks > 1)
            batching_free(&r);
        process_free(&p);
        case_end();
    }
    batching_free(&first);
}

/* ---- files ---- */

static void streams(void)
{
    struct process p;
    case_begin("batch: standard input to standard output");
    RUN(&p, 2, "{\"prompt\":\"Once\",\"max_tokens\":3}\n{\"prompt\":\"Long\",\"max_tokens\":3,\"id\":\"x\"}", "--input",
        "-", "--output", "-", "--plain");
    case_check(p.status == 0 && process_count_lines(p.text[PROCESS_OUT]) == 2 &&
                   strstr(p.text[PROCESS_OUT], "{\"id\":\"stdin:1\",\"text\":\"") != NULL &&
                   strstr(p.text[PROCESS_OUT], "{\"id\":\"x\",\"text\":\"") != NULL,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void patterns(void)
{
    struct process p;
    struct batch_results r;
    case_begin("batch: several files and patterns, in the order of the input");
    write_lines("part-2.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":2,\"id\":\"2\"}");
    write_lines("part-1.jsonl",
                "{\"prompt\":\"Once\",\"max_tokens\":9,\"id\":\"1\"}\n{\"prompt\":\"Once\",\"max_tokens\":"
                "1,\"id\":\"1b\"}\n");
    write_lines("more.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":9,\"id\":\"0\"}\n");
    forget("parts.out");
    RUN(&p, 1, NULL, "--input", "@more.jsonl", "--input", "@part-*.jsonl", "--output", "@parts.out", "--ordered");
    batching_read(&r, dir, "parts.out");
    case_check(p.status == 0 && r.n == 4 && strcmp(r.order[0], "0") == 0 && strcmp(r.order[1], "1") == 0 &&
                   strcmp(r.order[2], "1b") == 0 && strcmp(r.order[3], "2") == 0,
               "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* ---- going on ---- */

static void append_to(const char *name, const char *text)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    case_check(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be extended", path);
}

/* An input that grows, an output that ends in half a line: only what is missing runs. */
static void goes_on(void)
{
    struct process p;
    struct batch_results whole, r;
    case_begin("batch: goes on with what is there");
    batching_prompts(dir, "grow.jsonl", 30, 6);
    forget("grow.whole");
    forget("grow.out");
    RUN(&p, 2, NULL, "--input", "@grow.jsonl", "--output", "@grow.whole", "--plain");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    batching_read(&whole, dir, "grow.whole");
    batching_prompts(dir, "grow.jsonl", 12, 6);
    RUN(&p, 2, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    append_to("grow.out", "{\"id\":\"r12\",\"text\":\"half a li");
    batching_prompts(dir, "grow.jsonl", 30, 6);
    RUN(&p, 3, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--resume", "always", "--ordered");
    batching_read(&r, dir, "grow.out");
    case_check(p.status == 0 &&
                   strstr(p.text[PROCESS_ERR], "12 results are there; an unfinished line was cut off") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(r.n == 30 && r.n_twice == 0 && r.torn == 0 && batching_differences(&r, &whole) == 0,
               "%d results, %d twice, %d differ", r.n, r.n_twice, batching_differences(&r, &whole));
    json_t *results = batching_manifest(dir, "grow.out", "counts/results"),
           *runs = batching_manifest(dir, "grow.out", "runs"),
           *tokens = batching_manifest(dir, "grow.out", "tokens/output"),
           *ranks = batching_manifest(dir, "grow.out", "ranks");
    case_check(json_integer_value(results) == 30 && json_integer_value(runs) == 2 && json_integer_value(ranks) == 3 &&
                   json_integer_value(tokens) > 0 && json_integer_value(tokens) <= 180,
               "the manifest: %lld results, %lld runs, %lld tokens", (long long)json_integer_value(results),
               (long long)json_integer_value(runs), (long long)json_integer_value(tokens));
    json_decref(results);
    json_decref(runs);
    json_decref(tokens);
    json_decref(ranks);
    process_free(&p);
    batching_free(&r);
    batching_free(&whole);
    case_end();
}

static void expect_refused(const char *what, int status, const char *const *words, const char *part)
{
    struct process p;
    case_begin("batch: %s", what);
    run(&p, 2, NULL, words);
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], part) != NULL &&
                   process_count_lines(p.text[PROCESS_ERR]) == 1,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

#define REFUSED(what, status, part, ...) \
    expect_refused((what), (status), (const char *const[]){__VA_ARGS__, NULL}, (part))

/* Lines without ids are known by their place: they may be followed by others, not preceded. */
static void nameless(void)
{
    struct process p;
    struct batch_results r;
    static const char line[] = "{\"prompt\":\"Once\",\"max_tokens\":2}\n";
    char text[3 * sizeof line];
    case_begin("batch: lines without ids");
    for (int n = 1; n <= 2; n++) {
        (void)snprintf(text, sizeof text, "%s%s", line, n == 2 ? line : "");
        write_lines("nameless.jsonl", text);
        RUN(&p, 1, NULL, "--input", "@nameless.jsonl", "--output", "@nameless.out", "--plain");
        batching_read(&r, dir, "nameless.out");
        case_check(p.status == 0 && r.n == n, "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
        batching_free(&r);
        process_free(&p);
    }
    case_end();
    (void)snprintf(text, sizeof text, "{\"prompt\":\"New\",\"max_tokens\":1}\n%s%s", line, line);
    write_lines("nameless.jsonl", text);
    REFUSED("a line before lines without ids", 3, "nameless.jsonl has changed between bytes 0 and", "--input",
            "@nameless.jsonl", "--output", "@nameless.out", "--plain");
    for (int again = 0; again < 2; again++) {
        case_begin("batch: a pipe of lines without ids, %s", again ? "again" : "first");
        RUN(&p, 1, again ? text : line, "--input", "-", "--output", "@piped.out", "--plain");
        case_check(p.status == (again ? 3 : 0) && (!again || strstr(p.text[PROCESS_ERR], "can be read again") != NULL),
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
}

#define N_WIDE     500
#define WIDE_BYTES 8192

/* Lines without ids that are mostly blanks: some MB of them. The one of this number is another one. */
static void write_wide(int other)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/wide.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 1; f != NULL && i <= N_WIDE; i++)
        (void)fprintf(f, "%-*s\n", WIDE_BYTES - 1,
                      i == other ? "{\"prompt\":\"Long\",\"max_tokens\":4}" : "{\"prompt\":\"Once\",\"max_tokens\":4}");
    case_check(f != NULL && fclose(f) == 0, "%s cannot be written", path);
}

/* A run is drained when it has read a part of its input: there every byte has to be what it was, and behind it none. */
static void partly_read(void)
{
    struct process p;
    struct batch_results r = {0};
    char input[300], output[300];
    (void)snprintf(input, sizeof input, "%s/wide.jsonl", dir);
    (void)snprintf(output, sizeof output, "%s/wide.out", dir);
    const char *const words[] = {"batch",       "--model", models_demo(), "--input",   input,
                                 "--output",    output,    "--plain",     "--threads", "1",
                                 "--max-batch", "1",       "--progress",  "never",     NULL};
    const struct process_setup setup = {.ranks = 2};
    case_begin("batch: lines without ids, changed where they were read, and where not");
    write_wide(0);
    process_start(&p, &setup, words);
    while (!p.ended && r.n < 2) {
        process_watch(&p, 0.005, SIZE_MAX);
        batching_free(&r);
        batching_read(&r, dir, "wide.out");
    }
    (void)kill(p.pid, SIGUSR1);
    process_wait(&p);
    batching_free(&r);
    case_check(p.status == 75, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    write_wide(9);
    RUN(&p, 2, NULL, "--input", "@wide.jsonl", "--output", "@wide.out", "--plain");
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR],
                                       "wide.jsonl has changed between bytes 65536 and 131072, lines 9 and 16") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    write_wide(N_WIDE);
    RUN(&p, 2, NULL, "--input", "@wide.jsonl", "--output", "@wide.out", "--plain");
    batching_read(&r, dir, "wide.out");
    case_check(p.status == 0 && r.n == N_WIDE && r.n_twice == 0, "status %d, %d results: %s", p.status, r.n,
               p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* A chat that takes what fits: the context's length decides over its text. And a failure stays one in the next run. */
static void context(void)
{
    struct process p;
    write_lines("fill.jsonl", "{\"id\":\"f\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n"
                              "{\"id\":\"bad\",\"prompt\":7}\n");
    for (int again = 0; again < 2; again++) {
        case_begin("batch: what fits, and a failure, %s", again ? "again" : "first");
        RUN(&p, 2, NULL, "--input", "@fill.jsonl", "--output", "@fill.out", "--plain", "--chat-template", "chatml",
            "--max-model-len", "48");
        case_check(p.status == 1 && strstr(p.text[PROCESS_ERR], "2 of 2 requests (100 %), 1 failed") != NULL,
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
    case_begin("batch: another context's length is refused");
    RUN(&p, 2, NULL, "--input", "@fill.jsonl", "--output", "@fill.out", "--plain", "--chat-template", "chatml",
        "--max-model-len", "32");
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR], "up to 48 tokens together") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

#define N_BAD  200
#define N_GOOD 40

/* Lines "r0", "r1", ..: the last N_BAD are not valid, or so they are now. */
static void write_mended(bool mended)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/retry.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; f != NULL && i < N_GOOD + N_BAD; i++)
        (void)fprintf(f, "{\"id\":\"r%d\",\"prompt\":\"Once\",\"max_tokens\":%d}\n", i, mended || i < N_GOOD ? 8 : 0);
    case_check(f != NULL && fclose(f) == 0, "%s cannot be written", path);
}

static void run_retry(int status, const char *retry)
{
    struct process p;
    RUN(&p, 2, NULL, "--input", "@retry.jsonl", "--output", "@retry.out", "--plain", retry);
    case_check(p.status == status, "status %d, expected %d: %s", p.status, status, p.text[PROCESS_ERR]);
    process_free(&p);
}

static bool has_new_results(const char *output, int n)
{
    struct batch_results r;
    batching_read(&r, dir, output);
    bool has = r.n >= n && r.n < N_GOOD + N_BAD;
    batching_free(&r);
    return has;
}

/* Errors are run again when that is asked for; and a run that is killed meanwhile has lost nothing. */
static void retried(void)
{
    struct process p;
    struct batch_results whole, r;
    char input[300], output[300];
    (void)snprintf(input, sizeof input, "%s/retry.jsonl", dir);
    (void)snprintf(output, sizeof output, "%s/retry.out", dir);
    const char *const words[] = {"batch", "--model",    models_demo(),    "--input",   input, "--output",
                                 output,  "--plain",    "--retry-failed", "--threads", "1",   "--max-batch",
                                 "4",     "--progress", "never",          NULL};
    const struct process_setup setup = {.ranks = 2};
    case_begin("batch: --retry-failed, killed in the middle");
    write_mended(true);
    run_retry(0, NULL);
    batching_read(&whole, dir, "retry.out");
    forget("retry.out");
    write_mended(false);
    run_retry(1, "--retry-failed"); /* nothing is there to be tried again */
    write_mended(true);
    run_retry(1, NULL);
    process_start(&p, &setup, words);
    while (!p.ended && !has_new_results("retry.out", N_GOOD + 5))
        process_watch(&p, 0.005, SIZE_MAX);
    pid_t pid = process_of_rank(&p, 0);
    case_check(pid > 0 && kill(pid, SIGKILL) == 0, "it cannot be killed");
    process_wait(&p);
    batching_read(&r, dir, "retry.out");
    case_check(p.status != 0 && r.n >= N_GOOD && r.n < N_GOOD + N_BAD && r.n_twice == 0 &&
                   batching_differences(&r, &whole) == 0,
               "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    run_retry(0, NULL);
    batching_read(&r, dir, "retry.out");
    json_t *failed = batching_manifest(dir, "retry.out", "counts/failed"),
           *results = batching_manifest(dir, "retry.out", "counts/results");
    case_check(r.n == N_GOOD + N_BAD && r.n_twice == 0 && r.n_strange == 0 && batching_differences(&r, &whole) == 0 &&
                   json_integer_value(results) == r.n && json_is_integer(failed) && json_integer_value(failed) == 0,
               "%d results, %d twice, %d differ", r.n, r.n_twice, batching_differences(&r, &whole));
    json_decref(failed);
    json_decref(results);
    batching_free(&r);
    batching_free(&whole);
    case_end();
}

/* After goes_on: there is an output of 30 plain results. */
static void refused(void)
{
    struct process p;
    REFUSED("another sampling default is refused", 3, "defaults.temperature not set, this run has 0.5", "--input",
            "@grow.jsonl", "--output", "@grow.out", "--plain", "--temperature", "0.5");
    REFUSED("another form of results is refused", 3, "format \"plain\", this run has \"openai\"", "--input",
            "@grow.jsonl", "--output", "@grow.out");
    REFUSED("another seed is refused", 3, "seed 0, this run has 9", "--input", "@grow.jsonl", "--output", "@grow.out",
            "--plain", "--seed", "9");
    case_begin("batch: --force goes on all the same");
    RUN(&p, 1, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--seed", "9", "--force");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
    REFUSED("--resume never", 2, "there is a file", "--input", "@grow.jsonl", "--output", "@grow.out", "--plain",
            "--resume", "never");
    REFUSED("--resume always", 2, "there is no file", "--input", "@grow.jsonl", "--output", "@gone.out", "--resume",
            "always");
    REFUSED("an output that is an input", 2, "the same file as --input", "--input", "@grow.jsonl", "--output",
            "@grow.jsonl");
    REFUSED("a status file that is the output", 2, "the same file as --output", "--input", "@grow.jsonl", "--output",
            "@new.out", "--status-file", "@./new.out");
    REFUSED("a metrics file that is an input", 2, "the same file as --input", "--input", "@grow.jsonl", "--output",
            "@new.out", "--metrics-file", "@grow.jsonl");
    REFUSED("another batch's output as an input", 2, "a batch's output", "--input", "@grow.out", "--output",
            "@new.out");
    REFUSED("results without a manifest", 3, "that says what made them", "--input", "@grow.jsonl", "--output",
            "@part-1.jsonl");
    REFUSED("a foreign file, in spite of --force", 3, "line 1 is not a result of a batch", "--input", "@grow.jsonl",
            "--output", "@foreign.out", "--force");
    REFUSED("a foreign line, in spite of --force", 3, "line 1 is not a result of a batch", "--input", "@grow.jsonl",
            "--output", "@note.out", "--force");
    REFUSED("no such input", 5, "no file of this name", "--input", "@gone-*.jsonl", "--output", "@new.out");
    REFUSED("an output that cannot be made", 5, "cannot open", "--input", "@grow.jsonl", "--output", "@no/such/out");
    REFUSED("--ordered on standard output", 2, "--ordered needs", "--input", "@grow.jsonl", "--output", "-",
            "--ordered");
    REFUSED("--sync-seconds on standard output", 2, "--sync-seconds needs", "--input", "@grow.jsonl", "--output", "-",
            "--sync-seconds", "5");
    REFUSED("--force on standard output", 2, "--force needs", "--input", "@grow.jsonl", "--output", "-", "--force");
    REFUSED("--retry-failed where nothing may be there", 2, "--retry-failed and --resume never", "--input",
            "@grow.jsonl", "--output", "@new.out", "--retry-failed", "--resume", "never");
    REFUSED("--force where nothing may be there", 2, "--force and --resume never", "--input", "@grow.jsonl", "--output",
            "@new.out", "--force", "--resume", "never");
    REFUSED("--max-restarts alone", 2, "--max-restarts belongs to --requeue-self", "--input", "@grow.jsonl", "--output",
            "@new.out", "--max-restarts", "20");
    REFUSED("--walltime-reserve alone", 2, "--walltime-reserve belongs to a walltime", "--input", "@grow.jsonl",
            "--output", "@new.out", "--walltime-reserve", "5");
    REFUSED("lines beside a bar", 2, "--status-seconds and --progress always", "--input", "@grow.jsonl", "--output",
            "@new.out", "--status-seconds", "5", "--progress", "always");
    REFUSED("pieces of one thread", 2, "--load-piece-bytes needs --load-threads", "--input", "@grow.jsonl", "--output",
            "@new.out", "--load-piece-bytes", "1M");
    REFUSED("no --input", 2, "needs --input", "--output", "@new.out");
    REFUSED("no --output", 2, "needs --output", "--input", "@grow.jsonl");
}

/* The model does not fit: the status file says so, no metrics file stays, and the empty output is in nobody's way. Its name is no
 * UTF-8. */
static void failed_start(void)
{
    struct process p;
    struct batch_results r;
    struct stat st;
    char path[300];
    size_t bytes;
    case_begin("batch: a start that fails, and the next one");
    (void)snprintf(path, sizeof path, "%s/m.prom", dir);
    RUN(&p, 2, NULL, "--input", "@second.jsonl", "--output", "@start-\xff.out", "--metrics-file", "@m.prom",
        "--kv-cache-memory-bytes", "1K");
    char *text = files_read(dir, "start-\xff.out.status.json", &bytes);
    case_check(p.status != 0 && strstr(text, "\"state\": \"failed\"") != NULL && stat(path, &st) != 0,
               "status %d: %s%s", p.status, p.text[PROCESS_ERR], text);
    free(text);
    process_free(&p);
    RUN(&p, 2, NULL, "--input", "@second.jsonl", "--output", "@start-\xff.out", "--plain", "--resume", "never",
        "--served-model-name", "m-\xff");
    batching_read(&r, dir, "start-\xff.out");
    text = files_read(dir, "start-\xff.out.status.json", &bytes);
    json_t *status = json_loads(text, 0, NULL);
    const char *model = json_string_value(json_object_get(status, "model"));
    case_check(p.status == 0 && r.n == 1 && strstr(text, "\"state\": \"ended\"") != NULL && model != NULL &&
                   strcmp(model, "m-\xef\xbf\xbd") == 0,
               "status %d, %d results: %s%s", p.status, r.n, p.text[PROCESS_ERR], text);
    json_decref(status);
    free(text);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* An input that is gone when its turn comes: one line, the results so far stay, the next run goes on. */
static void lost_input(void)
{
    struct process p;
    struct batch_results r;
    struct stat st;
    char path[4][300];
    static const char *const name[] = {"first.jsonl", "second.jsonl", "lost.out", "second.away"};
    for (int i = 0; i < 4; i++)
        (void)snprintf(path[i], sizeof path[i], "%s/%s", dir, name[i]);
    case_begin("batch: an input is gone in the middle of a run");
    batching_prompts(dir, "first.jsonl", 300, 8);
    write_lines("second.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":3,\"id\":\"last\"}\n");
    const char *const words[] = {"batch",       "--model",  models_demo(), "--input", path[0],     "--input",
                                 path[1],       "--output", path[2],       "--plain", "--threads", "1",
                                 "--max-batch", "8",        "--progress",  "never",   NULL};
    const struct process_setup setup = {.ranks = 2};
    process_start(&p, &setup, words);
    while (!p.ended && (stat(path[2], &st) != 0 || st.st_size < 500))
        process_watch(&p, 0.002, SIZE_MAX);
    case_check(rename(path[1], path[3]) == 0, "rename");
    process_wait(&p);
    batching_read(&r, dir, "lost.out");
    case_check(p.status == 5 && strstr(p.text[PROCESS_ERR], "lockstep: fatal: rank 0/2") != NULL &&
                   strstr(p.text[PROCESS_ERR], "second.jsonl: cannot open: No such file") != NULL && p.n_left == 0,
               "status %d, %d processes left: %s", p.status, p.n_left, p.text[PROCESS_ERR]);
    case_check(r.n > 0 && r.n <= 300 && r.torn == 0 && r.n_strange == 0, "%d results, %zu torn bytes", r.n, r.torn);
    batching_free(&r);
    process_free(&p);
    case_check(rename(path[3], path[1]) == 0, "rename");
    process_run(&p, &setup, words);
    batching_read(&r, dir, "lost.out");
    case_check(p.status == 0 && r.n == 301 && r.n_twice == 0, "status %d, %d results, %d twice: %s", p.status, r.n,
               r.n_twice, p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    for (int ranks = 1; ranks <= 3; ranks++)
        formats(ranks);
    same_texts();
    streams();
    patterns();
    goes_on();
    nameless();
    partly_read();
    context();
    write_lines("foreign.out", "some notes\nof somebody\n");
    write_lines("note.out", "a note");
    retried();
    refused();
    lost_input();
    failed_start();
    case_begin("batch: files of others are left alone");
    size_t bytes[2];
    char *text[2] = {files_read(dir, "foreign.out", &bytes[0]), files_read(dir, "note.out", &bytes[1])};
    case_check(strcmp(text[0], "some notes\nof somebody\n") == 0 && strcmp(text[1], "a note") == 0, "%s%s", text[0],
               text[1]);
    free(text[0]);
    free(text[1]);
    case_end();
    files_remove_dir(dir);
    return cases_done();
}
