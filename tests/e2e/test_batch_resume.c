/* tests/e2e/test_batch_resume.c - a batch that resumes with an output: inputs that grow, lines without ids, failures,
 * and starts and runs that fail. */
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

static char dir[256];

static void append_to(const char *name, const char *text)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    case_check(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s cannot be extended", path);
}

/* The input has grown, and the output ends in half a line: only the missing lines run. */
static void goes_on(void)
{
    struct process p;
    struct batch_results whole, r;
    case_begin("batch: resumes after the existing results");
    batching_prompts(dir, "grow.jsonl", 30, 6);
    batching_forget(dir, "grow.whole");
    batching_forget(dir, "grow.out");
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@grow.jsonl", "--output", "@grow.whole", "--plain");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    batching_read(&whole, dir, "grow.whole");
    batching_prompts(dir, "grow.jsonl", 12, 6);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    append_to("grow.out", "{\"id\":\"r12\",\"text\":\"half a li");
    batching_prompts(dir, "grow.jsonl", 30, 6);
    BATCHING_RUN(&p, dir, 3, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--resume", "always",
                 "--ordered");
    batching_read(&r, dir, "grow.out");
    case_check(p.status == 0 && strstr(p.text[PROCESS_ERR], "which has 12 results; a partial line was removed") != NULL,
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

/* Lines without ids are identified by their position: lines may be added after them, not before. */
static void nameless(void)
{
    struct process p;
    struct batch_results r;
    static const char line[] = "{\"prompt\":\"Once\",\"max_tokens\":2}\n";
    char text[3 * sizeof line];
    case_begin("batch: lines without ids");
    for (int n = 1; n <= 2; n++) {
        (void)snprintf(text, sizeof text, "%s%s", line, n == 2 ? line : "");
        files_write_text(dir, "nameless.jsonl", text);
        BATCHING_RUN(&p, dir, 1, NULL, "--input", "@nameless.jsonl", "--output", "@nameless.out", "--plain");
        batching_read(&r, dir, "nameless.out");
        case_check(p.status == 0 && r.n == n, "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
        batching_free(&r);
        process_free(&p);
    }
    case_end();
    (void)snprintf(text, sizeof text, "{\"prompt\":\"New\",\"max_tokens\":1}\n%s%s", line, line);
    files_write_text(dir, "nameless.jsonl", text);
    case_begin("batch: a line before lines without ids");
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@nameless.jsonl", "--output", "@nameless.out", "--plain");
    case_check(p.status == 3 && process_count_lines(p.text[PROCESS_ERR]) == 1 &&
                   strstr(p.text[PROCESS_ERR], "nameless.jsonl has changed between bytes 0 and") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
    for (int again = 0; again < 2; again++) {
        case_begin("batch: a pipe of lines without ids, %s", again ? "again" : "first");
        BATCHING_RUN(&p, dir, 1, again ? text : line, "--input", "-", "--output", "@piped.out", "--plain");
        case_check(p.status == (again ? 3 : 0) && (!again || strstr(p.text[PROCESS_ERR], "can be read again") != NULL),
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
}

#define N_WIDE     500
#define WIDE_BYTES 8192

/* Writes some MB of lines without ids, mostly blanks. Line number `other` has another prompt. */
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

/* A run is drained after it has read a part of its input: that part must stay unchanged byte by byte, the rest may
 * change. */
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
    case_begin("batch: lines without ids, changed in the part that was read, and after it");
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
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@wide.jsonl", "--output", "@wide.out", "--plain");
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR],
                                       "wide.jsonl has changed between bytes 65536 and 131072, lines 9 and 16") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    write_wide(N_WIDE);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@wide.jsonl", "--output", "@wide.out", "--plain");
    batching_read(&r, dir, "wide.out");
    case_check(p.status == 0 && r.n == N_WIDE && r.n_twice == 0, "status %d, %d results: %s", p.status, r.n,
               p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* A chat without max_tokens, whose text depends on the context's length. A failure stays a failure in the next run. */
static void context(void)
{
    struct process p;
    files_write_text(dir, "fill.jsonl",
                     "{\"id\":\"f\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n"
                     "{\"id\":\"bad\",\"prompt\":7}\n");
    for (int again = 0; again < 2; again++) {
        case_begin("batch: a chat up to the context's end, and a failure, %s", again ? "again" : "first");
        BATCHING_RUN(&p, dir, 2, NULL, "--input", "@fill.jsonl", "--output", "@fill.out", "--plain", "--max-model-len",
                     "48");
        case_check(p.status == 1 && strstr(p.text[PROCESS_ERR], "2 of 2 requests (100 %), 1 failed") != NULL,
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
    case_begin("batch: another context length is refused");
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@fill.jsonl", "--output", "@fill.out", "--plain", "--max-model-len",
                 "32");
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR], "up to 48 tokens together") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

#define N_BAD  200
#define N_GOOD 40

/* Writes lines "r0", "r1", ..: the last N_BAD are invalid unless `mended`. */
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
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@retry.jsonl", "--output", "@retry.out", "--plain", retry);
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

/* Failed lines run again if --retry-failed asks for it; killing that run loses nothing. */
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
    batching_forget(dir, "retry.out");
    write_mended(false);
    run_retry(1, "--retry-failed"); /* nothing is left to retry */
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

/* An input file has vanished when its turn comes: one line says so, the results so far stay, the next run resumes. */
static void lost_input(void)
{
    struct process p;
    struct batch_results r;
    struct stat st;
    char path[4][300];
    static const char *const name[] = {"first.jsonl", "second.jsonl", "lost.out", "second.away"};
    for (int i = 0; i < 4; i++)
        (void)snprintf(path[i], sizeof path[i], "%s/%s", dir, name[i]);
    case_begin("batch: an input vanishes in the middle of a run");
    batching_prompts(dir, "first.jsonl", 300, 8);
    files_write_text(dir, "second.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":3,\"id\":\"last\"}\n");
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

/* The model does not fit: the status file says so, no metrics file stays, and the empty output does not hinder the next
 * run. Its name is not UTF-8. */
static void failed_start(void)
{
    struct process p;
    struct batch_results r;
    struct stat st;
    char path[300];
    size_t bytes;
    files_write_text(dir, "one.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":3}\n");
    case_begin("batch: a start that fails, and the next one");
    (void)snprintf(path, sizeof path, "%s/m.prom", dir);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@one.jsonl", "--output", "@start-\xff.out", "--metrics-file", "@m.prom",
                 "--kv-cache-memory-bytes", "1K");
    char *text = files_read(dir, "start-\xff.out.status.json", &bytes);
    case_check(p.status != 0 && strstr(text, "\"state\": \"failed\"") != NULL && stat(path, &st) != 0,
               "status %d: %s%s", p.status, p.text[PROCESS_ERR], text);
    free(text);
    process_free(&p);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@one.jsonl", "--output", "@start-\xff.out", "--plain", "--resume",
                 "never", "--served-model-name", "m-\xff");
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

int main(void)
{
    files_make_dir(dir);
    goes_on();
    nameless();
    partly_read();
    context();
    retried();
    lost_input();
    failed_start();
    files_remove_dir(dir);
    return cases_done();
}
