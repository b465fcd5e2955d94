/* tests/fail/test_failures.c - failures after a good start: weights that are not numbers, a disk that fails while the
 * weights are read, a reader that leaves, killed ranks and launchers; and an Open MPI that crashes after a failed
 * start, or has a late thread. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Expects one line that begins correctly and contains both words, the status, and nothing left. */
static void check_failure(const struct process *p, int status, const char *word, const char *other)
{
    const char *line = p->text[PROCESS_ERR];
    case_check(process_count_lines(line) == 1 && strncmp(line, "lockstep: fatal: ", 17) == 0,
               "standard error is not one line \"lockstep: fatal: ...\": %s", line);
    case_check(strstr(line, word) != NULL && strstr(line, other) != NULL, "\"%s\" or \"%s\" is not in: %s", word, other,
               line);
    case_check(p->status == status, "status %d, expected %d", p->status, status);
    case_check(process_in_time(p->seconds, 10), "%.1f s", p->seconds);
    case_check(!p->core, "a core file");
    case_check(p->n_left == 0, "%d processes are left running", p->n_left);
}

static void not_a_number(int ranks)
{
    const uint32_t nan = 0x7fc00000;
    char dir[256];
    struct process p;
    struct process_setup setup = {.ranks = ranks};
    models_fixture(dir, "llama-7-1-tied");
    models_patch_tensor(dir, "model.norm.weight", 4 * 9, &nan, sizeof nan);
    case_begin("a weight that is not a number, %d ranks", ranks);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2,3", "--max-tokens", "9", NULL});
    check_failure(&p, ERR_DEVICE, "logits", "not");
    case_check(p.bytes[PROCESS_OUT] == 0, "standard output: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
    files_remove_dir(dir);
}

/* Makes "LD_PRELOAD=..." of a library that the makefile builds beside the tests. */
static void set_preload(char *env, size_t bytes, const char *library)
{
    char path[PATH_MAX];
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(path, sizeof path, "%s/tests/%s", build != NULL ? build : "build/cpu", library);
    char *full = realpath(path, NULL);
    (void)snprintf(env, bytes, "LD_PRELOAD=%s", full != NULL ? full : path);
    free(full);
}

/* A disk fails under one rank: that rank prints the line, which names the file and the offset. */
static void failing_read(const char *dir, const char *way, int ranks, int rank, const char *after, const char *kind)
{
    char preload[PATH_MAX + 20], chosen[40], limit[60], how[40], speaker[40];
    set_preload(preload, sizeof preload, "fail_read.so");
    (void)snprintf(chosen, sizeof chosen, "FAIL_READ_RANK=%d", rank);
    (void)snprintf(limit, sizeof limit, "FAIL_READ_AFTER=%s", after);
    (void)snprintf(how, sizeof how, "FAIL_READ_KIND=%s", kind);
    (void)snprintf(speaker, sizeof speaker, ranks > 1 ? "rank %d/%d on " : "fatal: ", rank, ranks);
    const char *env[] = {preload, chosen, limit, how, NULL};
    struct process_setup setup = {.ranks = ranks, .env = env};
    struct process p;
    case_begin("reading %s %ss on rank %d of %d after %s bytes", way, kind, rank, ranks, after);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2", "--max-tokens", "2", "--load-way",
                                 way, NULL});
    check_failure(&p, ERR_IO, speaker, "model.safetensors: read");
    case_check(strstr(p.text[PROCESS_ERR], strcmp(kind, "end") == 0 ? "end of file" : "Input/output error") != NULL,
               "no reason: %s", p.text[PROCESS_ERR]);
    case_check(p.bytes[PROCESS_OUT] == 0, "standard output: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

/* One rank cannot read, and the others, each of whose more than a hundred reads takes a second, end with it. Ranks of
 * one host that read together do so in any case, since they wait for its blocks. */
static void failing_read_of_slow_ranks(const char *dir)
{
    char preload[PATH_MAX + 20];
    set_preload(preload, sizeof preload, "fail_read.so");
    const char *env[] = {preload, "FAIL_READ_RANK=1", "FAIL_READ_NAP=1", NULL};
    struct process_setup setup = {.ranks = 3, .env = env, .limit = 100};
    struct process p;
    case_begin("a rank that cannot read among ranks that read slowly");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2", "--max-tokens", "2", "--load-way",
                                 "alone", "--load-threads", "1", "--load-piece-bytes", "65536", NULL});
    check_failure(&p, ERR_IO, "rank 1/3 on ", "model.safetensors: read");
    case_end();
    process_free(&p);
}

/* Every rank fails and tells all others at once: nevertheless only one rank prints a line. */
static void failing_read_everywhere(const char *dir, const char *way)
{
    char preload[PATH_MAX + 20];
    set_preload(preload, sizeof preload, "fail_read.so");
    const char *env[] = {preload, "FAIL_READ_RANK=all", "FAIL_READ_AFTER=5000000", NULL};
    struct process_setup setup = {.ranks = 4, .env = env};
    struct process p;
    case_begin("reading %s fails on all of 4 ranks", way);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2", "--max-tokens", "2", "--load-way",
                                 way, NULL});
    check_failure(&p, ERR_IO, "/4 on ", "model.safetensors: read");
    case_end();
    process_free(&p);
}

static void failing_reads(void)
{
    char dir[256];
    models_write_big(dir);
    failing_read(dir, "auto", 3, 2, "0", "fail");
    failing_read(dir, "auto", 3, 1, "9000000", "fail"); /* within the second of its blocks of 8 MiB */
    failing_read(dir, "auto", 3, 0, "5000000", "end");  /* after the header, which only rank 0 reads */
    failing_read(dir, "auto", 1, 0, "20000000", "fail");
    failing_read(dir, "alone", 3, 2, "0", "fail");
    failing_read(dir, "alone", 3, 1, "9000000", "end");
    failing_read_of_slow_ranks(dir);
    failing_read_everywhere(dir, "auto");
    failing_read_everywhere(dir, "alone");
    files_remove_dir(dir);
}

/* Open MPI dies in MPI_Finalize after a failed start: there is still only that line, with its status. */
static void dying_finalize(int ranks, int rank, int signal)
{
    char preload[PATH_MAX + 20], chosen[40], number[40];
    set_preload(preload, sizeof preload, "fail_finalize.so");
    (void)snprintf(chosen, sizeof chosen, "FAIL_FINALIZE_RANK=%d", rank);
    (void)snprintf(number, sizeof number, "FAIL_FINALIZE_SIGNAL=%d", signal);
    const char *env[] = {preload, chosen, number, NULL};
    struct process_setup setup = {.ranks = ranks, .env = env};
    struct process p;
    case_begin("a bad start, and rank %d of %d dies of signal %d in MPI_Finalize", rank, ranks, signal);
    process_run(&p, &setup, (const char *[]){"generate", "--model", "/no/such/folder", "--prompt-ids", "1", NULL});
    check_failure(&p, ERR_IO, "/no/such/folder", "cannot open");
    case_end();
    process_free(&p);
}

/* Generates one token while Open MPI's own thread handles an event of MPI_Init this late. false: this MPI has no such
 * event, and nothing was late. */
static bool run_late(struct process *p, int ranks, const char *seconds)
{
    char preload[PATH_MAX + 20], dir[256], mark[300], held[330], late[60];
    files_make_dir(dir);
    (void)snprintf(mark, sizeof mark, "%s/held", dir);
    (void)snprintf(held, sizeof held, "LATE_EVENT_MARK=%s", mark);
    (void)snprintf(late, sizeof late, "LATE_EVENT_SECONDS=%s", seconds);
    set_preload(preload, sizeof preload, "late_event.so");
    const char *env[] = {preload, held, late, NULL};
    struct process_setup setup = {.ranks = ranks, .env = env};
    process_run(p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once", "--max-tokens", "1", NULL});
    bool was_late = access(mark, F_OK) == 0;
    files_remove_dir(dir);
    if (!was_late)
        case_skip("an event of MPI_Init that comes late", "this MPI has no such event");
    return was_late;
}

/* Without the wait for that thread (rank/world/world.c, let_mpi_settle) it uses memory that MPI_Finalize freed, and a
 * rank dies at the end of a good run. */
static void late_event(int ranks)
{
    struct process p;
    if (run_late(&p, ranks, "0.5")) {
        case_begin("an event of MPI_Init that comes late, %d ranks", ranks);
        case_check(p.status == 0, "status %d", p.status);
        case_check(p.bytes[PROCESS_OUT] > 0, "no text");
        case_check(p.bytes[PROCESS_ERR] == 0, "standard error: %s", p.text[PROCESS_ERR]);
        case_check(p.n_left == 0 && !p.core, "%d processes are left running, or a core file", p.n_left);
        case_end();
    }
    process_free(&p);
}

/* The thread is later than the ranks' patience: a warning comes before anything else. How the run ends is up to Open
 * MPI. */
static void restless_mpi(void)
{
    struct process p;
    char seconds[40];
    if (process_has_open_mpi_5()) {
        case_skip("an event of MPI_Init that comes too late", "Open MPI 5 waits for it in MPI_Init");
        return;
    }
    (void)snprintf(seconds, sizeof seconds, "%.1f", process_patience(2)); /* a rank may also begin its wait late */
    if (run_late(&p, 2, seconds)) {
        case_begin("an event of MPI_Init that comes too late");
        case_check(strncmp(p.text[PROCESS_ERR], "lockstep: warning: a thread of MPI is still at work", 51) == 0,
                   "standard error: %s", p.text[PROCESS_ERR]);
        case_check(strstr(p.text[PROCESS_ERR], " on 2 of 2 ranks") != NULL, "standard error: %s", p.text[PROCESS_ERR]);
        case_check(p.bytes[PROCESS_OUT] > 0, "no text");
        case_end();
    }
    process_free(&p);
}

/* Starts a long story and waits for its first text. env: as in struct process_setup. */
static void start_story(struct process *p, int ranks, const char *const *env)
{
    struct process_setup setup = {.ranks = ranks, .env = env};
    process_start(p, &setup,
                  (const char *[]){"generate", "--model", models_endless(), "--prompt", "Once", "--max-tokens",
                                   "100000", "--ignore-eos", "--kv-cache-memory-bytes", "2G", "--progress", "always",
                                   NULL});
    process_watch(p, process_patience(20), 100);
    case_check(p->bytes[PROCESS_OUT] >= 100, "no story begins: %s", p->text[PROCESS_ERR]);
}

/* Expects one line in the name of the rank: its host and the cause. */
static void check_named(const struct process *p, int rank, int ranks)
{
    char name[60];
    const char *line = strstr(p->text[PROCESS_ERR], "lockstep: fatal: ");
    (void)snprintf(name, sizeof name, "lockstep: fatal: rank %d/%d on ", rank, ranks);
    if (!case_check(line != NULL, "no rank is named: %s", p->text[PROCESS_ERR]))
        return;
    case_check(strncmp(line, name, strlen(name)) == 0, "not \"%s...\": %s", name, line);
    case_check(strstr(line, "its process ended without a word") != NULL && strstr(line, "; device cpu") != NULL, "%s",
               line);
    case_check(strstr(line, "step ") != NULL && strstr(line, "last collective: ") != NULL, "no step: %s", line);
    case_check(strstr(line + 17, "fatal") == NULL && process_count_lines(line) == 1, "more than one line: %s", line);
}

static void killed_rank(int rank)
{
    struct process p;
    case_begin("rank %d of 3 is killed", rank);
    start_story(&p, 3, NULL);
    pid_t pid = process_of_rank(&p, rank);
    double killed = seconds_now();
    if (case_check(pid > 0, "no such rank"))
        (void)kill(pid, SIGKILL);
    process_wait(&p);
    double took = p.started + p.seconds - killed;
    case_check(process_in_time(took, 10), "mpirun ended after %.1f s", took);
    case_check(p.status == ERR_COMM || p.status == 128 + SIGKILL, "status %d", p.status);
    check_named(&p, rank, 3);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_check(!p.core, "a core file");
    case_end();
    process_free(&p);
}

static void signalled_launcher(int signal)
{
    struct process p;
    case_begin("mpirun gets signal %d", signal);
    start_story(&p, 3, NULL);
    double sent = seconds_now();
    (void)kill(p.pid, signal);
    process_wait(&p);
    double took = p.started + p.seconds - sent;
    case_check(process_in_time(took, 10), "mpirun ended after %.1f s", took);
    case_check(p.status != 0, "status 0");
    case_check(signal == SIGKILL || strstr(p.text[PROCESS_ERR], "fatal") == NULL, "a rank is blamed: %s",
               p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

/* mpirun sends SIGTERM to all ranks, and SIGKILL a few milliseconds later: rank 0 dies before the others have handled
 * their SIGTERM. */
static void ended_by_launcher(void)
{
    char preload[PATH_MAX + 20];
    set_preload(preload, sizeof preload, "block_signals.so");
    const char *env[] = {preload, NULL};
    struct process p;
    case_begin("SIGTERM for ranks 1 and 2 of 3, then SIGKILL for rank 0");
    start_story(&p, 3, env);
    for (int rank = 2; rank >= 0; rank--) {
        pid_t pid = process_of_rank(&p, rank);
        if (case_check(pid > 0, "no rank %d", rank))
            (void)kill(pid, rank > 0 ? SIGTERM : SIGKILL);
    }
    process_wait(&p);
    case_check(p.status == 128 + SIGKILL, "status %d", p.status);
    case_check(strstr(p.text[PROCESS_ERR], "fatal") == NULL, "a rank is blamed: %s", p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

/* Alone, the program writes standard output itself; under mpirun, mpirun writes it. */
static void full_disk(bool all_fail)
{
    struct process_setup setup = {.out_path = "/dev/full"};
    struct process p;
    case_begin("standard output on a full disk, %s", all_fail ? "every prompt failing" : "one prompt");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", all_fail ? "\xff" : "Once", "--json",
                                 "--max-tokens", "4", NULL});
    case_check(p.status == ERR_IO, "status %d, expected %d", p.status, ERR_IO);
    case_check(strstr(p.text[PROCESS_ERR], "lockstep: fatal: standard output: cannot write: No space left") != NULL,
               "standard error: %s", p.text[PROCESS_ERR]);
    case_check(process_count_lines(p.text[PROCESS_ERR]) == (all_fail ? 2 : 1), "standard error: %s",
               p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

/* Rank 0 writes --output itself, so it notices an error that mpirun would swallow. */
static void full_disk_of_output(int ranks)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    case_begin("--output on a full disk, %d ranks", ranks);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once", "--output", "/dev/full",
                                 "--max-tokens", "4", NULL});
    case_check(p.status == ERR_IO, "status %d, expected %d", p.status, ERR_IO);
    case_check(strstr(p.text[PROCESS_ERR], "/dev/full: cannot write: No space left") != NULL, "standard error: %s",
               p.text[PROCESS_ERR]);
    case_check(process_count_lines(p.text[PROCESS_ERR]) == 1, "standard error: %s", p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

static void reader_that_leaves(int ranks)
{
    struct process p;
    case_begin("the reader of standard output leaves, %d ranks", ranks);
    start_story(&p, ranks, NULL);
    double left = seconds_now();
    process_close_output(&p);
    process_wait(&p);
    double took = p.started + p.seconds - left;
    case_check(process_in_time(took, 10), "ended after %.1f s", took);
    case_check(p.status != 0 && (ranks > 0 || p.status == ERR_IO), "status %d", p.status);
    case_check(ranks > 0 || strstr(p.text[PROCESS_ERR], "standard output: cannot write: Broken pipe") != NULL,
               "standard error: %s", p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_check(!p.core, "a core file");
    case_end();
    process_free(&p);
}

int main(void)
{
    not_a_number(1);
    not_a_number(3);
    failing_reads();
    dying_finalize(1, 0, SIGABRT);
    dying_finalize(3, 0, SIGSEGV);
    dying_finalize(3, 2, SIGABRT);
    late_event(1);
    late_event(3);
    restless_mpi();
    for (int rank = 0; rank < 3; rank++)
        killed_rank(rank);
    signalled_launcher(SIGINT);
    signalled_launcher(SIGTERM);
    signalled_launcher(SIGKILL);
    ended_by_launcher();
    full_disk(false);
    full_disk(true);
    full_disk_of_output(1);
    full_disk_of_output(3);
    reader_that_leaves(0);
    reader_that_leaves(3);
    return cases_done();
}
