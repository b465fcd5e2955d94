/* tests/e2e/test_batch_end.c - a batch on two ranks that is told to end before its work is done: signals to the
 * launcher and to either rank, a walltime. Every time the exit status is the documented one, the output is complete up
 * to that point, and the next run finishes with the texts of an undisturbed run. */
#include "base/clock.h"
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_PROMPTS  160
#define MAX_TOKENS 24

static char dir[256];
static struct batch_results wanted;

/* last_env: a variable for rank 1 alone, or NULL. */
static void start_with(struct process *p, const char *output, const char *const *more, const char *last_env)
{
    static char input[300], path[300];
    const char *arguments[40] = {"batch",   "--model",     models_demo(), "--input",   input, "--output",   path,
                                 "--plain", "--max-batch", "16",          "--threads", "1",   "--progress", "never"};
    const struct process_setup setup = {.ranks = 2, .limit = 60, .last_env = last_env};
    size_t n = 14;
    (void)snprintf(input, sizeof input, "%s/in.jsonl", dir);
    (void)snprintf(path, sizeof path, "%s/%s", dir, output);
    while (more != NULL && *more != NULL)
        arguments[n++] = *more++;
    process_start(p, &setup, arguments);
}

static void start_batch(struct process *p, const char *output, const char *const *more)
{
    start_with(p, output, more, NULL);
}

static long bytes_of(const char *name)
{
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

/* Waits until the output has results. */
static void await_results(struct process *p, const char *output)
{
    while (!p->ended && bytes_of(output) < 500)
        process_watch(p, 0.005, SIZE_MAX);
}

/* Returns a member of the output's status file as text; "": it has none. */
static const char *status_of(const char *output, const char *object, const char *key)
{
    static char text[100];
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s.status.json", dir, output);
    json_t *o = json_load_file(path, 0, NULL);
    const json_t *value = json_object_get(object != NULL ? json_object_get(o, object) : o, key);
    (void)snprintf(text, sizeof text, "%s", json_is_string(value) ? json_string_value(value) : "");
    if (json_is_number(value))
        (void)snprintf(text, sizeof text, "%g", json_number_value(value));
    json_decref(o);
    return text;
}

/* The lines in the output are complete and correct, and the next run adds the missing ones. */
static void check_and_resume(const char *output)
{
    struct batch_results r;
    struct process p;
    batching_read(&r, dir, output);
    case_check(r.torn == 0 && r.n_twice == 0 && r.n_strange == 0 && batching_differences(&r, &wanted) == 0,
               "of %d results %d occur twice, %d are unexpected, %d differ, %zu torn bytes", r.n, r.n_twice,
               r.n_strange, batching_differences(&r, &wanted), r.torn);
    case_check(r.n > 0 && r.n < N_PROMPTS, "%d results of %d at the end", r.n, N_PROMPTS);
    batching_free(&r);
    start_batch(&p, output, NULL);
    process_wait(&p);
    batching_read(&r, dir, output);
    case_check(p.status == 0, "resumed: status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(r.n == N_PROMPTS && r.n_twice == 0 && batching_differences(&wanted, &r) == 0,
               "resumed: %d results, %d twice, %d differ", r.n, r.n_twice, batching_differences(&wanted, &r));
    batching_free(&r);
    process_free(&p);
}

static void undisturbed(void)
{
    struct process p;
    case_begin("batch of %d prompts, undisturbed", N_PROMPTS);
    batching_prompts(dir, "in.jsonl", N_PROMPTS, MAX_TOKENS);
    start_batch(&p, "whole.jsonl", NULL);
    process_wait(&p);
    batching_read(&wanted, dir, "whole.jsonl");
    case_check(p.status == 0 && wanted.n == N_PROMPTS && wanted.n_twice == 0, "status %d, %d results: %s", p.status,
               wanted.n, p.text[PROCESS_ERR]);
    case_check(strcmp(status_of("whole.jsonl", NULL, "state"), "ended") == 0 &&
                   strcmp(status_of("whole.jsonl", "requests", "done"), "160") == 0,
               "the status file says %s", status_of("whole.jsonl", NULL, "state"));
    process_free(&p);
    case_end();
}

/* rank -1: mpirun. last_env: a variable for rank 1 alone, or NULL. */
static void signalled(int number, const char *name, int rank, int status, const char *last_env)
{
    struct process p;
    char output[40];
    (void)snprintf(output, sizeof output, "%s%d%s.jsonl", name, rank + 1, last_env != NULL ? "e" : "");
    case_begin("SIG%s to %s%s%s: exit status %d, complete lines, resumed to the same texts", name,
               rank < 0    ? "mpirun"
               : rank == 0 ? "rank 0"
                           : "rank 1",
               last_env != NULL ? ", with " : "", last_env != NULL ? last_env : "", status);
    const char *const slowly[] = {"--max-batch", "1", NULL}; /* mpirun passes SIGTERM on after a second */
    start_with(&p, output, slowly, last_env);
    await_results(&p, output);
    double sent = seconds_now();
    case_check(rank < 0 ? kill(p.pid, number) == 0 : process_signal_rank(&p, rank, number), "no process to signal");
    process_wait(&p);
    double took = seconds_now() - sent;
    case_check(p.status == status && p.n_left == 0, "status %d, %d processes left: %s", p.status, p.n_left,
               p.text[PROCESS_ERR]);
    case_check(strcmp(status_of(output, NULL, "exit_status"), "75") == 0, "the status file says exit_status %s",
               status_of(output, NULL, "exit_status"));
    bool drained = strstr(p.text[PROCESS_ERR], "draining (SIGUSR1)") != NULL,
         cut = strstr(p.text[PROCESS_ERR], "ending (") != NULL;
    case_check(drained == (number == SIGUSR1) && cut == (number != SIGUSR1), "%s", p.text[PROCESS_ERR]);
    printf("# SIG%s to %d: %.2f s to the end\n", name, rank, took);
    process_free(&p);
    check_and_resume(output);
    case_end();
}

/* Writes a walltime of `seconds` on an idle machine to *text and returns it; *n_prompts: far more prompts than fit.
 * Both are multiplied by the number of processes that want each core, up to sixteen, so that a start that waits for a
 * core leaves some of the time. */
static int walltime_for(int seconds, int max_tokens, char text[16], int *n_prompts)
{
    int most = 16 * seconds, walltime = (int)process_patience(seconds);
    walltime = walltime < most ? walltime : most;
    *n_prompts = 5000 * walltime / seconds;
    (void)snprintf(text, 16, "%d:%02d", walltime / 60, walltime % 60);
    batching_prompts(dir, "in.jsonl", *n_prompts, max_tokens);
    return walltime;
}

static void walltime(void)
{
    struct process p;
    char text[16];
    int n_prompts, limit = walltime_for(7, 40, text, &n_prompts);
    const char *const more[] = {"--max-walltime", text, "--ignore-eos", "--seed", "3", NULL};
    struct batch_results r;
    case_begin("--max-walltime: ends in time, exit status 75, no finished work is lost");
    start_batch(&p, "walltime.jsonl", more);
    process_wait(&p);
    case_check(p.status == 75 && p.n_left == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(process_in_time(p.seconds - limit, 1), "it took %.2f s",
               p.seconds); /* includes mpirun's own start and end */
    batching_read(&r, dir, "walltime.jsonl");
    case_check(r.torn == 0 && r.n_twice == 0 && r.n_strange == 0 && r.n > 0 && r.n < n_prompts,
               "%d results, %d twice, %zu torn bytes", r.n, r.n_twice, r.torn);
    case_check(strcmp(status_of("walltime.jsonl", NULL, "cause"), "--max-walltime") == 0, "the cause is %s",
               status_of("walltime.jsonl", NULL, "cause"));
    printf("# --max-walltime %s: over after %.2f s with %d results: %s", text, p.seconds, r.n, p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    batching_prompts(dir, "in.jsonl", N_PROMPTS, MAX_TOKENS);
    case_end();
}

/* The first wave alone takes longer than the walltime: each run nevertheless has results, and the next one resumes. */
static void long_wave(void)
{
    char text[16];
    int before = 0, n_prompts;
    (void)walltime_for(10, 30, text, &n_prompts);
    const char *const more[] = {"--max-batch",        "2000", "--max-batch-tokens", "2000", "--max-walltime", text,
                                "--walltime-reserve", "1",    "--ignore-eos",       NULL};
    case_begin("a first wave longer than the walltime: every run has results");
    for (int i = 0; i < 2; i++) {
        struct process p;
        struct batch_results r;
        start_batch(&p, "wave.jsonl", more);
        process_wait(&p);
        batching_read(&r, dir, "wave.jsonl");
        case_check(p.status == 75 && r.n > before && r.n_twice == 0, "status %d, %d results after %d: %s", p.status,
                   r.n, before, p.text[PROCESS_ERR]);
        printf("# --max-walltime %s, run %d: %d results\n", text, i + 1, r.n - before);
        before = r.n;
        batching_free(&r);
        process_free(&p);
    }
    batching_prompts(dir, "in.jsonl", N_PROMPTS, MAX_TOKENS);
    case_end();
}

/* SLURM_JOB_END_TIME counts as well, the earlier of the two; a job whose time is already over does nothing and loses
 * nothing. */
static void no_time_left(void)
{
    struct process p;
    char input[300], path[300];
    case_begin("no time left: exit status 75 at once, without a result");
    (void)snprintf(input, sizeof input, "%s/in.jsonl", dir);
    (void)snprintf(path, sizeof path, "%s/late.jsonl", dir);
    const char *const env[] = {"SLURM_JOB_END_TIME=1000000000", NULL};
    const struct process_setup setup = {.ranks = 2, .env = env};
    const char *const arguments[] = {"batch",    "--model", models_demo(),    "--input", input,
                                     "--output", path,      "--max-walltime", "1:00:00", NULL};
    process_run(&p, &setup, arguments);
    case_check(p.status == 75 && bytes_of("late.jsonl") == 0, "status %d, %ld bytes: %s", p.status,
               bytes_of("late.jsonl"), p.text[PROCESS_ERR]);
    case_check(strcmp(status_of("late.jsonl", NULL, "cause"), "SLURM_JOB_END_TIME") == 0, "the cause is %s",
               status_of("late.jsonl", NULL, "cause"));
    process_free(&p);
    case_end();
}

/* Tells whether the status file of a running batch says that its results are on disk. The file is replaced every 5
 * s. */
static bool is_synced(const char *output)
{
    char path[300];
    const char *state = NULL;
    double bytes = 0, unsynced = 0;
    (void)snprintf(path, sizeof path, "%s/%s.status.json", dir, output);
    json_t *o = json_load_file(path, 0, NULL);
    bool read = json_unpack(o, "{s:s, s:{s:F, s:F}}", "state", &state, "journal", "bytes", &bytes, "unsynced_bytes",
                            &unsynced) == 0;
    bool synced = read && strcmp(state, "running") == 0 && bytes > 0 && unsynced == 0;
    json_decref(o);
    return synced;
}

/* Nothing is synced automatically here; SIGUSR2 requests it. If new results arrive before the file is read, it is sent
 * again. */
static void tell(void)
{
    struct process p;
    const char *const more[] = {"--sync-seconds", "3600", NULL};
    bool synced = false;
    case_begin("SIGUSR2 to rank 1: one line, a status file, everything on disk; the batch goes on");
    start_batch(&p, "tell.jsonl", more);
    await_results(&p, "tell.jsonl");
    while (!p.ended && !synced) {
        (void)process_signal_rank(&p, 1, SIGUSR2);
        process_watch(&p, 0.1, SIZE_MAX);
        synced = is_synced("tell.jsonl");
    }
    case_check(synced, "ended before the status file said that everything is on disk");
    process_wait(&p);
    case_check(strstr(p.text[PROCESS_ERR], "running: ") != NULL, "no line: %s", p.text[PROCESS_ERR]);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* The output is a pipe that holds about one line. The signal arrives through rank 1, because rank 0 is blocked in a
 * write. */
static void stalled_reader(void)
{
    struct process p;
    char path[300];
    int held = 0;
    const char *const more[] = {"--drain-seconds", "2", NULL};
    case_begin("SIGUSR1 is obeyed although nobody reads the output, a pipe");
    (void)snprintf(path, sizeof path, "%s/pipe", dir);
    int fd = mkfifo(path, 0600) == 0 ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    case_check(fd >= 0 && fcntl(fd, F_SETPIPE_SZ, 4096) >= 0, "no pipe");
    start_batch(&p, "pipe", more);
    while (!p.ended && (ioctl(fd, FIONREAD, &held) != 0 || held == 0))
        process_watch(&p, 0.005, SIZE_MAX);
    double sent = seconds_now();
    case_check(process_signal_rank(&p, 1, SIGUSR1), "no process to signal");
    process_wait(&p);
    double took = seconds_now() - sent;
    case_check(p.status == 5 && p.n_left == 0 &&
                   strstr(p.text[PROCESS_ERR], "results had no reader before the end (SIGUSR1)") != NULL,
               "status %d, %d processes left: %s", p.status, p.n_left, p.text[PROCESS_ERR]);
    case_check(process_in_time(took, 5), "it took %.2f s", took);
    printf("# a stalled reader: over %.2f s after SIGUSR1\n", took);
    process_free(&p);
    (void)close(fd);
    case_end();
}

/* The counts of requests in a status file named `output`.status.json. */
struct counted {
    int read, before, done, open, left;
};

static struct counted count_requests(const char *output)
{
    static const char *const key[] = {"read", "done_before", "done", "open", "left"};
    int n[5];
    for (int i = 0; i < 5; i++)
        n[i] = atoi(status_of(output, "requests", key[i]));
    return (struct counted){n[0], n[1], n[2], n[3], n[4]};
}

/* Every line that was read is done or left to the next run: none is under way after the end. */
static void check_counts(const struct process *p, const char *output)
{
    const struct counted c = count_requests(output);
    const char *last = strstr(p->text[PROCESS_ERR], "ended");
    case_check(last != NULL && strstr(last, "under way") == NULL && c.read > 0 && c.open == 0 &&
                   c.before + c.done + c.left == c.read,
               "read %d, done before %d, done %d, under way %d, left %d: %s", c.read, c.before, c.done, c.open, c.left,
               p->text[PROCESS_ERR]);
}

#define N_LONG     12
#define LONG_BYTES ((size_t)2 << 20) /* of a prompt, which takes a while to tokenize */

static void write_long_prompts(void)
{
    static const char word[] = "Once upon a time there was a little dragon. ";
    size_t bytes = 0;
    char *text = NULL;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < N_LONG; i++) {
        fprintf(f, "{\"id\":\"l%d\",\"prompt\":\"", i);
        for (size_t n = 0; n < LONG_BYTES; n += sizeof word - 1)
            fputs(word, f);
        fputs("\"}\n", f);
    }
    fclose(f);
    files_write(dir, "in.jsonl", text, bytes);
    free(text);
}

/* The run ends while the thread that makes tokens still has most lines. On a busy machine that thread may be done
 * before the signal is sent: then all lines have errors, since they are too long. */
static void ended_at_once(void)
{
    struct process p;
    case_begin("lines that are being tokenized at the end are left to the next run, and counted as such");
    write_long_prompts();
    start_batch(&p, "once.jsonl", NULL);
    while (!p.ended && strcmp(status_of("once.jsonl", NULL, "state"), "running") != 0)
        process_watch(&p, 0.005, SIZE_MAX);
    case_check(process_signal_rank(&p, 0, SIGTERM), "no process to signal: %s", p.text[PROCESS_ERR]);
    process_wait(&p);
    case_check((p.status == 75 || p.status == 1) && p.n_left == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_counts(&p, "once.jsonl");
    process_free(&p);
    batching_prompts(dir, "in.jsonl", N_PROMPTS, MAX_TOKENS);
    case_end();
}

static void full_output(void)
{
    struct process p;
    case_begin("an output that is full: its failed result is left to the next run, and counted as such");
    BATCHING_RUN(&p, dir, 2, NULL, "--input", "@in.jsonl", "--output", "/dev/full", "--plain", "--status-file",
                 "@full.status.json");
    case_check(p.status == 5 && strstr(p.text[PROCESS_ERR], "/dev/full: cannot write: No space left") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_counts(&p, "full");
    case_check(count_requests("full").done == 0, "%d are done", count_requests("full").done);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    undisturbed();
    ended_at_once();
    full_output();
    signalled(SIGUSR1, "USR1", -1, 75, NULL);
    signalled(SIGUSR1, "USR1", 1, 75, NULL);
    /* Rank 0's options count; signals may go to any rank. */
    signalled(SIGUSR1, "USR1", 1, 75, "LOCKSTEP_MAX_MODEL_LEN=nonsense");
    signalled(SIGTERM, "TERM", 1, 75, NULL);
    signalled(SIGHUP, "HUP", 0, 75, NULL);
    signalled(SIGHUP, "HUP", 1, 75, NULL);
    if (process_has_open_mpi_5())
        case_skip("SIGTERM to mpirun", "Open MPI 5 kills its ranks 0.3 s later");
    else
        signalled(SIGTERM, "TERM", -1, 1, NULL); /* mpirun's own status: its ranks end with 75 before it kills them */
    tell();
    stalled_reader();
    walltime();
    long_wave();
    no_time_left();
    batching_free(&wanted);
    files_remove_dir(dir);
    return cases_done();
}
