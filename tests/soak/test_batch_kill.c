/* tests/soak/test_batch_kill.c - a batch on two ranks that is ended at random moments, again and again: a rank killed,
 * the launcher, all of them at once, SIGUSR1, a full disk; then the next run resumes. At the end every id is in the
 * output exactly once, with the text of an undisturbed run. In between, everything in the output is complete and
 * correct. In the environment: BATCH_KILLS, runs that are ended this way (8 by default); BATCH_PROMPTS, lines of the
 * input (200); BATCH_SEED. */
#include "base/clock.h"
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RANKS        2
#define MAX_TOKENS   8
#define LIMIT        120        /* seconds that a run may take */
#define ROOMY        (64 << 20) /* bytes of the small disk unless it is to be full */
#define SPARE_PAGES  3          /* left on a disk that is about to be full */
#define START_WINS   15         /* percentage of the ends during the start */
#define START_SPAN   0.7        /* seconds that count as the start */
#define CONNECT_SPAN 0.1        /* seconds in which a rank connects to its launcher */
#define STEPS_AHEAD  8          /* one over the largest share of the output that may be made before the end */
#define SETTLE_SPAN  3000       /* microseconds after the output has reached the chosen size */

enum kind { RANK_0, RANK_1, LAUNCHER, ALL, DRAIN, FULL_DISK, N_KINDS };

static const char *const kind_name[] = {"rank 0 killed", "rank 1 killed",     "mpirun killed",
                                        "all killed",    "SIGUSR1 to mpirun", "disk full"}; /* all: including mpirun */

static struct {
    char dir[256], disk[256]; /* disk: the folder of the output */
    bool has_disk;            /* a tmpfs of the test's own */
    uint64_t random;
    struct batch_results wanted;
    int n_prompts, n_ended[N_KINDS], n_late, n_runs, n_rounds, n_torn_by_us;
    long cut_lines; /* complete lines that the test cut off, which run again */
} test;

static int setting(const char *name, int missing)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : missing;
}

static bool set_disk(long bytes)
{
    char size[64];
    (void)snprintf(size, sizeof size, "size=%ld", bytes);
    return mount("tmpfs", test.disk, "tmpfs", MS_REMOUNT, size) == 0;
}

/* In a mount namespace of its own, so that nothing is left under any circumstances. */
static void make_disk(void)
{
    files_make_dir(test.disk);
    test.has_disk = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("tmpfs", test.disk, "tmpfs", 0, "size=64m") == 0;
}

/* Leaves little more room than the files take. */
static bool fill_disk(void)
{
    struct statvfs v;
    return statvfs(test.disk, &v) == 0 &&
           case_check(set_disk((long)(v.f_blocks - v.f_bfree + SPARE_PAGES) * (long)v.f_frsize), "remount: %s",
                      strerror(errno));
}

static long output_bytes(void)
{
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/out.jsonl", test.disk);
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

static void start_batch(struct process *p, const char *output, bool ordered)
{
    char input[300], path[300];
    (void)snprintf(input, sizeof input, "%s/in.jsonl", test.dir);
    (void)snprintf(path, sizeof path, "%s", output);
    const struct process_setup setup = {.ranks = RANKS, .limit = LIMIT};
    const char *const arguments[] = {"batch",
                                     "--model",
                                     models_demo(),
                                     "--input",
                                     input,
                                     "--output",
                                     path,
                                     "--plain",
                                     "--max-batch",
                                     "64",
                                     "--threads",
                                     "1",
                                     "--seed",
                                     "11",
                                     "--sync-seconds",
                                     "0.1",
                                     ordered ? "--ordered" : NULL,
                                     NULL};
    process_start(p, &setup, arguments);
}

/* Runs it undisturbed. */
static double measure(void)
{
    struct process p;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/whole.jsonl", test.dir);
    case_begin("batch of %d prompts, undisturbed", test.n_prompts);
    start_batch(&p, path, false);
    process_wait(&p);
    batching_read(&test.wanted, test.dir, "whole.jsonl");
    case_check(p.status == 0 && test.wanted.n == test.n_prompts, "status %d, %d results: %s", p.status, test.wanted.n,
               p.text[PROCESS_ERR]);
    case_check(strlen(batching_text(json_object_get(test.wanted.by_id, "r1"))) > 0, "results without text");
    case_end();
    double seconds = p.seconds;
    process_free(&p);
    return seconds;
}

/* Waits for a random moment of the start, or until the output has grown by some lines. */
static void await_moment(struct process *p, long total)
{
    long now = output_bytes(), span = total / STEPS_AHEAD;
    long target = now + random_below(&test.random, (int)(span > 0 ? span : 1));
    target = target < total ? target : total - 1;
    double moment = p->started + START_SPAN * random_below(&test.random, 1000) / 1000.0;
    if (random_below(&test.random, 100) < START_WINS)
        while (!p->ended && seconds_now() < moment)
            process_watch(p, 0.002, SIZE_MAX);
    else
        while (!p->ended && output_bytes() < target)
            process_watch(p, 0.002, SIZE_MAX);
    double until = seconds_now() + 1e-6 * random_below(&test.random, SETTLE_SPAN);
    while (!p->ended && seconds_now() < until)
        ;
}

/* Returns the seconds since the process was started, to 0.01 s; 0: it has ended. */
static double age_of(pid_t pid)
{
    char path[64], text[1024];
    unsigned long long started = 0;
    struct timespec now;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL)
        (void)fclose(f);
    const char *behind = strrchr(text, ')'); /* after the name; the time is the 20th word from here */
    if (behind == NULL ||
        sscanf(behind + 1, " %*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s %llu", &started) != 1)
        return 0;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)started / (double)sysconf(_SC_CLK_TCK);
}

/* Waits until the rank exists, if its launcher does, and has connected to it: Open MPI 4.1.4's sometimes waits for ever
 * (PMIx_server_finalize, one time in 60) if a rank dies while connecting. */
static bool kill_rank(struct process *p, int rank)
{
    for (;; process_watch(p, 0.002, SIZE_MAX)) {
        pid_t pid = process_of_rank(p, rank);
        if (pid > 0 && (age_of(pid) > CONNECT_SPAN || p->ended) && kill(pid, SIGKILL) == 0)
            return true;
        if (p->ended)
            return false;
    }
}

/* Returns whether the run still existed when it was to be ended. */
static bool strike(struct process *p, enum kind kind)
{
    switch (kind) {
    case RANK_0:
    case RANK_1:
        return kill_rank(p, kind == RANK_0 ? 0 : 1);
    case LAUNCHER:
        return !p->ended && kill(p->pid, SIGKILL) == 0;
    case ALL: /* the launcher first: Open MPI 4.1.4's sometimes hangs if all of its ranks die at once during the
               * start */
        if (p->ended || kill(p->pid, SIGKILL) != 0)
            return false;
        for (int rank = 0; rank < RANKS; rank++)
            (void)kill_rank(p, rank);
        return true;
    case DRAIN:
        return !p->ended && kill(p->pid, SIGUSR1) == 0;
    case FULL_DISK: /* leaves so little room that the run fails within a few lines */
        return !p->ended && fill_disk();
    case N_KINDS:
        break;
    }
    return false;
}

/* Statuses that such a run may end with; one that had just finished ends with 0. */
static bool right_status(enum kind kind, int status)
{
    if (kind == DRAIN) /* before its handlers are installed a signal kills */
        return status == 75 || status == 128 + SIGUSR1 || status == 1;
    if (kind == FULL_DISK)
        return status == 5;
    return status != 0;
}

/* Expects one fatal line, which names the cause. */
static bool names_full_disk(const char *text)
{
    static const char begin[] = "lockstep: fatal: ", why[] = "No space left on device";
    const char *line = strstr(text, begin), *end = line != NULL ? strchr(line, '\n') : NULL,
               *found = line != NULL ? strstr(line, why) : NULL;
    return end != NULL && found != NULL && found < end && strstr(end, begin) == NULL;
}

/* The lines in the output are correct, although some are missing. */
static void check_part(enum kind kind, const struct process *p)
{
    struct batch_results r;
    batching_read(&r, test.disk, "out.jsonl");
    case_check(r.n_twice == 0 && r.n_strange == 0 && batching_differences(&r, &test.wanted) == 0,
               "%s after %d results: %d twice, %d unexpected, %d differ", kind_name[kind], r.n, r.n_twice, r.n_strange,
               batching_differences(&r, &test.wanted));
    case_check(p->n_left == 0 && !p->timed_out, "%s: %d processes are left%s", kind_name[kind], p->n_left,
               p->timed_out ? ", and it did not end" : "");
    batching_free(&r);
}

/* As after a power failure, the end of the file never reached the disk. */
static void tear(void)
{
    char path[300];
    long bytes = output_bytes();
    if (bytes < 1 || random_below(&test.random, 4) != 0)
        return;
    long cut = 1 + random_below(&test.random, bytes < 300 ? (int)bytes : 300);
    struct batch_results before, after;
    (void)snprintf(path, sizeof path, "%s/out.jsonl", test.disk);
    batching_read(&before, test.disk, "out.jsonl");
    case_check(truncate(path, bytes - cut) == 0, "truncate: %s", strerror(errno));
    batching_read(&after, test.disk, "out.jsonl");
    test.n_torn_by_us += after.torn > 0;
    test.cut_lines += before.n - after.n;
    batching_free(&before);
    batching_free(&after);
}

/* Chooses the kinds in turn. */
static enum kind choose_kind(void)
{
    return (enum kind)(test.n_runs % (test.has_disk ? N_KINDS : FULL_DISK));
}

/* Does a run that is ended. Returns whether it had finished before. */
static bool disturbed_run(long total, bool ordered)
{
    struct process p;
    char path[300];
    enum kind kind = choose_kind();
    (void)snprintf(path, sizeof path, "%s/out.jsonl", test.disk);
    start_batch(&p, path, ordered);
    await_moment(&p, total);
    bool struck = strike(&p, kind);
    process_wait(&p);
    test.n_runs++;
    bool finished = p.status == 0;
    if (finished || !struck) {
        test.n_late++;
        case_check(finished, "a run that was not ended has status %d: %s", p.status, p.text[PROCESS_ERR]);
    } else {
        test.n_ended[kind]++;
        case_check(right_status(kind, p.status), "%s: status %d: %s", kind_name[kind], p.status, p.text[PROCESS_ERR]);
        if (kind == FULL_DISK)
            case_check(names_full_disk(p.text[PROCESS_ERR]), "disk full: %s", p.text[PROCESS_ERR]);
    }
    if (test.has_disk)
        case_check(set_disk(ROOMY), "remount: %s", strerror(errno));
    check_part(kind, &p);
    if (!finished && kind != DRAIN && kind != FULL_DISK)
        tear();
    process_free(&p);
    return finished;
}

static void check_whole(bool ordered)
{
    struct batch_results r;
    json_t *state = batching_manifest(test.disk, "out.jsonl", "state");
    batching_read(&r, test.disk, "out.jsonl");
    case_check(r.n == test.n_prompts && r.n_twice == 0 && r.n_strange == 0 && r.torn == 0,
               "%d results of %d, %d twice, %d unexpected, %zu bytes of a torn line", r.n, test.n_prompts, r.n_twice,
               r.n_strange, r.torn);
    case_check(batching_differences(&r, &test.wanted) == 0, "%d texts differ", batching_differences(&r, &test.wanted));
    case_check(json_is_string(state) && strcmp(json_string_value(state), "finished") == 0, "the manifest says %s",
               json_is_string(state) ? json_string_value(state) : "nothing");
    int unordered = 0;
    for (int i = 0; ordered && i < r.n; i++)
        unordered += atoi(r.order[i] + 1) != i;
    case_check(unordered == 0, "%d results are not in the input's order", unordered);
    json_decref(state);
    batching_free(&r);
}

static int n_struck(void)
{
    int n = 0;
    for (int i = 0; i < N_KINDS; i++)
        n += test.n_ended[i];
    return n;
}

/* Tells whether there were enough ends, with each kind at least once. */
static bool enough(int n_kills)
{
    bool all = true;
    for (int i = 0; i < (test.has_disk ? N_KINDS : FULL_DISK); i++)
        all = all && test.n_ended[i] > 0;
    return all && n_struck() >= n_kills;
}

/* Runs it from an empty output to a complete one. */
static void round_of_runs(int n_kills, long total)
{
    char path[300];
    bool ordered = test.n_rounds++ % 2 == 1, finished = false;
    case_begin("round %d, %d runs ended so far%s", test.n_rounds, n_struck(), ordered ? ", ordered" : "");
    (void)snprintf(path, sizeof path, "%s/out.jsonl", test.disk);
    (void)unlink(path);
    while (!finished && !enough(n_kills))
        finished = disturbed_run(total, ordered);
    struct process p;
    start_batch(&p, path, ordered);
    process_wait(&p);
    case_check(p.status == 0, "the last run: status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    check_whole(ordered);
    case_end();
}

int main(void)
{
    int n_kills = setting("BATCH_KILLS", 8);
    test.n_prompts = setting("BATCH_PROMPTS", 200);
    test.random = (uint64_t)setting("BATCH_SEED", 1);
    files_make_dir(test.dir);
    make_disk();
    batching_prompts(test.dir, "in.jsonl", test.n_prompts, MAX_TOKENS);
    double started = seconds_now(), whole = measure();
    size_t total = 0;
    free(files_read(test.dir, "whole.jsonl", &total));
    while (!enough(n_kills) && seconds_now() - started < 3600)
        round_of_runs(n_kills, (long)total);
    case_begin("batch: %d runs ended, each way at least once", n_kills);
    case_check(enough(n_kills), "%d runs in %.0f s", n_struck(), seconds_now() - started);
    case_end();
    if (!test.has_disk)
        case_skip("batch: disk full", "a tmpfs cannot be mounted here");
    printf("# batch of %d prompts, %.1f s undisturbed: %d runs ended in %.0f s", test.n_prompts, whole, n_struck(),
           seconds_now() - started);
    for (int i = 0; i < N_KINDS; i++)
        printf("%s %s %d", i > 0 ? "," : ":", kind_name[i], test.n_ended[i]);
    printf("; %d had finished; %d outputs torn, %ld complete lines cut off and run again; %d times every id once, same "
           "text\n",
           test.n_late, test.n_torn_by_us, test.cut_lines, test.n_rounds);
    batching_free(&test.wanted);
    if (test.has_disk)
        (void)umount2(test.disk, MNT_DETACH);
    files_remove_dir(test.disk);
    files_remove_dir(test.dir);
    return cases_done();
}
