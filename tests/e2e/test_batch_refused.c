/* tests/e2e/test_batch_refused.c - batches that are refused, each by one line that says why; existing files are left
 * alone. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <string.h>

static char dir[256];

static void expect_refused(const char *what, int status, const char *const *words, const char *part)
{
    struct process p;
    case_begin("batch: %s", what);
    batching_run(&p, dir, 2, NULL, words);
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], part) != NULL &&
                   process_count_lines(p.text[PROCESS_ERR]) == 1,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

#define REFUSED(what, status, part, ...) \
    expect_refused((what), (status), (const char *const[]){__VA_ARGS__, NULL}, (part))

/* Makes an output of 30 plain results. */
static void make_output(void)
{
    struct process p;
    case_begin("batch: 30 results");
    batching_prompts(dir, "grow.jsonl", 30, 6);
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void other_settings(void)
{
    struct process p;
    REFUSED("another sampling default is refused", 3, "defaults.temperature not set, this run has 0.5", "--input",
            "@grow.jsonl", "--output", "@grow.out", "--plain", "--temperature", "0.5");
    REFUSED("another form of results is refused", 3, "format \"plain\", this run has \"openai\"", "--input",
            "@grow.jsonl", "--output", "@grow.out");
    REFUSED("keys and values in FP8 are refused", 3, "model.variant not set, this run has \"kv-fp8\"", "--input",
            "@grow.jsonl", "--output", "@grow.out", "--plain", "--kv-cache-dtype", "fp8");
    REFUSED("weights and a head in FP8 are refused", 3, "model.variant not set, this run has \"weights-head-fp8\"",
            "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--quantization", "fp8", "--head-dtype",
            "fp8");
    REFUSED("another seed is refused", 3, "seed 0, this run has 9", "--input", "@grow.jsonl", "--output", "@grow.out",
            "--plain", "--seed", "9");
    case_begin("batch: --force resumes nevertheless");
    BATCHING_RUN(&p, dir, 1, NULL, "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--seed", "9",
                 "--force");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void files(void)
{
    files_write_text(dir, "foreign.out", "some notes\nof somebody\n");
    files_write_text(dir, "note.out", "a note");
    files_write_text(dir, "alone.out", "{\"id\":\"r1\",\"text\":\" upon\",\"finish_reason\":\"length\"}\n");
    files_write_text(dir, "other.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":9,\"id\":\"1\"}\n");
    REFUSED("--resume never", 2, "the file", "--input", "@grow.jsonl", "--output", "@grow.out", "--plain", "--resume",
            "never");
    REFUSED("--resume always", 2, "there is no file", "--input", "@grow.jsonl", "--output", "@gone.out", "--resume",
            "always");
    REFUSED("an output that is an input", 2, "the same file as --input", "--input", "@grow.jsonl", "--output",
            "@grow.jsonl");
    REFUSED("a status file that is the output", 2, "the same file as --output", "--input", "@grow.jsonl", "--output",
            "@new.out", "--status-file", "@./new.out");
    REFUSED("a metrics file that is an input", 2, "the same file as --input", "--input", "@grow.jsonl", "--output",
            "@new.out", "--metrics-file", "@grow.jsonl");
    REFUSED("another batch's output as an input", 2, "the output of a batch", "--input", "@grow.out", "--output",
            "@new.out");
    REFUSED("results without a manifest", 3, "that records what made them", "--input", "@grow.jsonl", "--output",
            "@alone.out");
    REFUSED("requests as an output", 3, "not a result file: line 1 is not a result", "--input", "@grow.jsonl",
            "--output", "@other.jsonl");
    REFUSED("a text as an output", 3, "not a result file: line 1 is not a result", "--input", "@grow.jsonl", "--output",
            "@foreign.out");
    REFUSED("a text of one line as an output", 3, "not a result file: line 1 is not a result", "--input", "@grow.jsonl",
            "--output", "@note.out");
    REFUSED("a foreign file, in spite of --force", 3, "line 1 is not a result of a batch", "--input", "@grow.jsonl",
            "--output", "@foreign.out", "--force");
    REFUSED("a foreign line, in spite of --force", 3, "line 1 is not a result of a batch", "--input", "@grow.jsonl",
            "--output", "@note.out", "--force");
    REFUSED("no such input", 5, "no file has this name", "--input", "@gone-*.jsonl", "--output", "@new.out");
    REFUSED("an output that cannot be created", 5, "cannot open", "--input", "@grow.jsonl", "--output", "@no/such/out");
}

static void options(void)
{
    REFUSED("--ordered on standard output", 2, "--ordered needs", "--input", "@grow.jsonl", "--output", "-",
            "--ordered");
    REFUSED("--sync-seconds on standard output", 2, "--sync-seconds needs", "--input", "@grow.jsonl", "--output", "-",
            "--sync-seconds", "5");
    REFUSED("--force on standard output", 2, "--force needs", "--input", "@grow.jsonl", "--output", "-", "--force");
    REFUSED("--retry-failed with --resume never", 2, "--retry-failed and --resume never", "--input", "@grow.jsonl",
            "--output", "@new.out", "--retry-failed", "--resume", "never");
    REFUSED("--force with --resume never", 2, "--force and --resume never", "--input", "@grow.jsonl", "--output",
            "@new.out", "--force", "--resume", "never");
    REFUSED("--max-restarts alone", 2, "--max-restarts belongs to --requeue-self", "--input", "@grow.jsonl", "--output",
            "@new.out", "--max-restarts", "20");
    REFUSED("--walltime-reserve alone", 2, "--walltime-reserve needs a walltime", "--input", "@grow.jsonl", "--output",
            "@new.out", "--walltime-reserve", "5");
    REFUSED("a reserve of the whole walltime", 2,
            "--walltime-reserve 60: expected less than the 60 s of --max-walltime 1:00", "--input", "@grow.jsonl",
            "--output", "@new.out", "--walltime-reserve", "60", "--max-walltime", "1:00");
    REFUSED("progress lines beside a bar", 2, "--status-seconds and --progress always", "--input", "@grow.jsonl",
            "--output", "@new.out", "--status-seconds", "5", "--progress", "always");
    REFUSED("pieces of one thread", 2, "--load-piece-bytes needs --load-threads", "--input", "@grow.jsonl", "--output",
            "@new.out", "--load-piece-bytes", "1M");
    REFUSED("no --input", 2, "needs --input", "--output", "@new.out");
    REFUSED("no --output", 2, "needs --output", "--input", "@grow.jsonl");
}

static void others_files(void)
{
    case_begin("batch: unrelated files are left alone");
    size_t bytes[2];
    char *text[2] = {files_read(dir, "foreign.out", &bytes[0]), files_read(dir, "note.out", &bytes[1])};
    case_check(strcmp(text[0], "some notes\nof somebody\n") == 0 && strcmp(text[1], "a note") == 0, "%s%s", text[0],
               text[1]);
    free(text[0]);
    free(text[1]);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    make_output();
    other_settings();
    files();
    options();
    others_files();
    files_remove_dir(dir);
    return cases_done();
}
