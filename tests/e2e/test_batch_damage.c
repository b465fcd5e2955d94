/* tests/e2e/test_batch_damage.c - an output that was damaged on disk: a run that resumes with it names the damaged
 * place, and does not modify the file. Requests whose results are merely missing at its end run again. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_LINES 12

static char dir[256];
static char *whole; /* the undamaged output */
static size_t whole_bytes;

static const char *line_begin(const char *text, int n)
{
    for (; n > 0; n--)
        text = strchr(text, '\n') + 1;
    return text;
}

/* Damages a text in place: `at` is the beginning of line 5. Returns its new number of bytes. */
static size_t quote(char *text, size_t bytes, size_t at)
{
    *strchr(strstr(text + at, "\"text\":\"") + 8, ' ') = '"';
    return bytes;
}

static size_t invalid(char *text, size_t bytes, size_t at)
{
    *strchr(strstr(text + at, "\"text\":\"") + 8, ' ') = '\xff';
    return bytes;
}

static size_t letter(char *text, size_t bytes, size_t at)
{
    *strchr(strstr(text + at, "\"text\":\"") + 8, ' ') = 'X';
    return bytes;
}

static size_t join(char *text, size_t bytes, size_t at)
{
    memmove(text + at - 1, text + at, bytes - at);
    return bytes - 1;
}

static size_t twice(char *text, size_t bytes, size_t at)
{
    size_t line = (size_t)(strchr(text + at, '\n') + 1 - (text + at));
    memmove(text + at + line, text + at, bytes - at);
    return bytes + line;
}

static size_t without(char *text, size_t bytes, size_t at)
{
    size_t line = (size_t)(strchr(text + at, '\n') + 1 - (text + at));
    memmove(text + at, text + at + line, bytes - at - line);
    return bytes - line;
}

static size_t zeros(char *text, size_t bytes, size_t at)
{
    memset(text + at, 0, 20);
    return bytes;
}

static const struct damage {
    const char *name;
    size_t (*make)(char *text, size_t bytes, size_t at);
    bool parses; /* only the hash reveals the damage */
    bool longer; /* the file has not become shorter, which alone means that results are missing at its end */
} damages[] = {
    {"a quote in a text", quote, false, true}, {"a byte that is no UTF-8", invalid, false, true},
    {"another letter", letter, true, true},    {"a lost newline", join, false, false},
    {"a doubled line", twice, false, true},    {"zeros in the midst", zeros, false, true},
};

static void make_whole(void)
{
    struct process p;
    case_begin("batch: %d results", N_LINES);
    batching_prompts(dir, "in.jsonl", N_LINES, 6);
    BATCHING_RUN(&p, dir, 1, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--plain", "--ordered");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    whole = files_read(dir, "out.jsonl", &whole_bytes);
    case_end();
}

/* Makes the manifest look like one of older builds, which did not hash the output. */
static void forget_hash(void)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/out.jsonl.manifest.json", dir);
    json_t *manifest = json_load_file(path, 0, NULL);
    case_check(json_is_object(json_object_get(manifest, "synced")), "the manifest has no hash of the output");
    (void)json_object_del(manifest, "synced");
    case_check(json_dump_file(manifest, path, 0) == 0, "%s cannot be written", path);
    json_decref(manifest);
}

/* The output is refused in one line that names the place, and is left unchanged. */
static void expect_refused(const char *text, size_t bytes, const char *words)
{
    struct process p;
    size_t left = 0;
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--plain");
    case_check(p.status == 3 && process_count_lines(p.text[PROCESS_ERR]) == 1 &&
                   strstr(p.text[PROCESS_ERR], words) != NULL,
               "status %d, expected 3 and \"%s\": %s", p.status, words, p.text[PROCESS_ERR]);
    process_free(&p);
    char *now = files_read(dir, "out.jsonl", &left);
    case_check(left == bytes && memcmp(now, text, bytes) == 0, "the output was changed");
    free(now);
}

static void damaged(const struct damage *d, bool hashed)
{
    char *text = calloc(2, whole_bytes);
    memcpy(text, whole, whole_bytes);
    size_t bytes = d->make(text, whole_bytes, (size_t)(line_begin(whole, 4) - whole));
    case_begin("batch: %s, %s", d->name, hashed ? "hashed" : "of an older build");
    files_write(dir, "out.jsonl", text, bytes);
    expect_refused(text, bytes,
                   hashed && d->longer ? "lines 1 to 12, have changed since they were written" : "--output");
    free(text);
    case_end();
}

/* Whole lines, or half a one, are missing at the end: after the next run all are there once. */
static void shorter(const char *name, size_t bytes)
{
    struct process p;
    struct batch_results r;
    case_begin("batch: %s runs again", name);
    files_write(dir, "out.jsonl", whole, bytes);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--plain", "--ordered");
    case_check(p.status == 0 && strstr(p.text[PROCESS_ERR], "are missing at its end") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    batching_read(&r, dir, "out.jsonl");
    case_check(r.n == N_LINES && r.n_twice == 0 && r.n_strange == 0 && r.torn == 0, "%d results", r.n);
    batching_free(&r);
    BATCHING_RUN(&p, dir, 1, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--plain");
    case_check(p.status == 0 && strstr(p.text[PROCESS_ERR], "gone") == NULL, "once more: status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* Damaged lines are removed by hand, and --force runs them again. */
static void repaired(void)
{
    struct process p;
    struct batch_results r;
    char *text = calloc(2, whole_bytes);
    case_begin("batch: a damaged line that was removed runs again with --force");
    memcpy(text, whole, whole_bytes);
    size_t bytes = without(text, whole_bytes, (size_t)(line_begin(whole, 4) - whole));
    files_write(dir, "out.jsonl", text, bytes);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl", "--plain", "--force");
    batching_read(&r, dir, "out.jsonl");
    case_check(p.status == 0 && r.n == N_LINES && r.n_twice == 0, "status %d, %d results: %s", p.status, r.n,
               p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    free(text);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    make_whole();
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++)
        damaged(&damages[i], true);
    shorter("the rest of the last line", whole_bytes - 5);
    shorter("a missing last line", (size_t)(line_begin(whole, N_LINES - 1) - whole));
    free(whole);
    whole = files_read(dir, "out.jsonl", &whole_bytes);
    repaired();
    free(whole);
    whole = files_read(dir, "out.jsonl", &whole_bytes);
    forget_hash();
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++)
        if (!damages[i].parses)
            damaged(&damages[i], false);
    free(whole);
    files_remove_dir(dir);
    return cases_done();
}
