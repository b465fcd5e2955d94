/* tests/e2e/test_preflight.c - `lockstep preflight` and --preflight at a start: the measurements, their duration, and
 * the thresholds that refuse a rank, with their exit statuses. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void check_ranks(const json_t *root, int ranks)
{
    double bytes = 0, best = 0;
    const json_t *list = json_object_get(root, "ranks");
    case_check((int)json_array_size(list) == ranks, "%zu ranks", json_array_size(list));
    for (int r = 0; r < ranks; r++) {
        const json_t *one = json_array_get(list, (size_t)r);
        case_check(number(one, "rank") == r && number(one, "read_bytes_per_second") > 1e7 &&
                       (number(one, "ping_microseconds") > 0) == (r > 0) && number(one, "threads") >= 1,
                   "rank %d: %g bytes/s, %g us", r, number(one, "read_bytes_per_second"),
                   number(one, "ping_microseconds"));
        best = number(one, "read_share") > best ? number(one, "read_share") : best;
        bytes += number(json_object_get(one, "files"), "bytes");
    }
    double all = (double)models_weight_bytes(models_demo());
    case_check(best == 1, "the fastest rank's share is %g", best);
    /* The whole file, apart from the header, since it is so small; requests begin at pages. */
    case_check(bytes > 0.9 * all && bytes < 1.1 * all, "%g of %g bytes were read", bytes, all);
}

static void measures(int ranks)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    case_begin("preflight on %d rank(s)", ranks);
    process_run(&p, &setup,
                LIST("preflight", "--model", models_demo(), "--json", "--device", "cpu", "--min-read-share", "0",
                     "--max-broadcast-us", "0"));
    json_t *root = json_loads(p.text[PROCESS_OUT], 0, NULL);
    case_check(p.status == 0 && root != NULL && json_is_true(json_object_get(root, "fit")), "status %d: %s%s", p.status,
               p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_check(p.bytes[PROCESS_ERR] == 0, "%s", p.text[PROCESS_ERR]);
    case_check(process_in_time(p.seconds, 10), "it took %.1f s", p.seconds);
    case_check(number(root, "seconds") > 0 && number(root, "seconds") < p.seconds, "%g s", number(root, "seconds"));
    check_ranks(root, ranks);
    const json_t *sums = json_object_get(root, "all_reduce");
    case_check(json_object_get(root, "p2p") == NULL, "P2P of CPUs");
    case_check(json_array_size(sums) == (ranks > 1 ? 4 : 0), "%zu sizes of sums", json_array_size(sums));
    for (size_t i = 0; i < json_array_size(sums); i++)
        case_check(number(json_array_get(sums, i), "microseconds") > 0 &&
                       number(json_array_get(sums, i), "bus_bytes_per_second") > 0,
                   "sum %zu", i);
    case_check((number(root, "broadcast_microseconds") > 0) == (ranks > 1), "broadcast");
    json_decref(root);
    case_end();
    process_free(&p);
}

static void ends(const char *what, int status, const char *wanted, const char *out, const char *const *arguments)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("%s", what);
    process_run(&p, &setup, arguments);
    case_check(p.status == status, "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_check(strstr(p.text[PROCESS_ERR], wanted) != NULL &&
                   process_count_lines(p.text[PROCESS_ERR]) <= (strstr(arguments[0], "preflight") != NULL ? 1 : 2),
               "no \"%s\" alone: %s", wanted, p.text[PROCESS_ERR]);
    case_check(out != NULL ? strstr(p.text[PROCESS_OUT], out) != NULL : p.bytes[PROCESS_OUT] == 0, "output: %s",
               p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

/* Other processes use the cores of one rank and not of the other: therefore no threshold applies to its share of the
 * reads. */
static void thresholds(void)
{
    const char *demo = models_demo();
    ends("a broadcast that takes too long is refused, and the rank is named", ERR_PREFLIGHT,
         "lockstep: fatal: rank 1/2 on ", "\nUNFIT: rank 1 on ",
         LIST("preflight", "--device", "cpu", "--max-broadcast-us", "0.001", "--min-read-share", "0"));
    ends("files that are read too slowly are refused", ERR_PREFLIGHT,
         "at least 999000.00 are required (--min-file-rate)", "\nnot fit: see UNFIT above\n",
         LIST("preflight", "--device", "cpu", "--model", demo, "--min-file-rate", "999000000000000",
              "--max-broadcast-us", "0", "--min-read-share", "0"));
    ends("a start with --preflight", 0, "lockstep: preflight: 2 ranks read at ", "Once",
         LIST("generate", "--model", demo, "--device", "cpu", "--prompt", "Once", "--max-tokens", "3", "--preflight",
              "--max-broadcast-us", "0", "--min-read-share", "0"));
    ends("a bench of random weights with --preflight reads no files", 0, "lockstep: preflight: 2 ranks read at ",
         "read limit",
         LIST("bench", "--model", demo, "--load-format", "dummy", "--device", "cpu", "--n-prompt", "0", "--n-gen", "1",
              "--preflight", "--max-broadcast-us", "0", "--min-read-share", "0"));
    ends("a start on a node that is not fit", ERR_PREFLIGHT, "(--max-broadcast-us)", NULL,
         LIST("generate", "--model", demo, "--device", "cpu", "--prompt", "Once", "--preflight", "--max-broadcast-us",
              "0.001", "--min-read-share", "0"));
}

static void usage(void)
{
    const char *demo = models_demo();
    ends("a threshold without --preflight", ERR_USAGE, "belong to --preflight", NULL,
         LIST("generate", "--model", demo, "--prompt", "Once", "--min-read-share", "0.5"));
    ends("a file rate without files", ERR_USAGE, "--min-file-rate needs --model DIR", NULL,
         LIST("preflight", "--min-file-rate", "1G"));
    ends("a missing model", ERR_IO, "/nowhere", NULL, LIST("preflight", "--model", "/nowhere"));
    ends("a share above 1", ERR_USAGE, "--min-read-share: found \"2\"", NULL,
         LIST("preflight", "--min-read-share", "2"));
}

/* One rank meets the end of a file: it reports this in its own name. */
static void short_file(void)
{
    char dir[256], path[300];
    files_make_dir(dir);
    files_copy(models_demo(), dir, "config.json");
    files_copy(models_demo(), dir, "model.safetensors");
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("a file that is shorter than its header says");
    if (case_check(truncate(path, (off_t)models_weight_bytes(dir) - 100000) == 0, "cannot cut %s", path)) {
        process_run(&p, &setup, LIST("preflight", "--device", "cpu", "--model", dir));
        case_check((p.status == ERR_INPUT || p.status == ERR_IO) &&
                       strstr(p.text[PROCESS_ERR], "model.safetensors") != NULL,
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
    }
    case_end();
    files_remove_dir(dir);
}

/* Sets --preflight-timeout to this many seconds, more on a busy machine; returns them. */
static int timeout_of(char text[16], double seconds)
{
    int n = (int)process_patience(seconds);
    (void)snprintf(text, 16, "%d", n);
    return n;
}

static void await_measuring(struct process *p)
{
    for (int i = 0; i < 4000; i++) {
        if (p->text[PROCESS_ERR] != NULL && strstr(p->text[PROCESS_ERR], "preflight: comparing places") != NULL)
            break;
        process_watch(p, 0.005, 1);
    }
}

/* A rank is stopped, with the others, as soon as rank 0 says that it measures. */
static void stopped_rank(void)
{
    struct process_setup setup = {.ranks = 3};
    struct process p;
    char timeout[16], wanted[100];
    (void)snprintf(wanted, sizeof wanted, " has not ended within %d s: no sign of life from this rank\n",
                   timeout_of(timeout, 2));
    case_begin("a stopped rank is named");
    process_start(&p, &setup,
                  LIST("preflight", "--device", "cpu", "--model", models_demo(), "--max-broadcast-us", "0", "--verbose",
                       "--preflight-timeout", timeout));
    await_measuring(&p);
    pid_t pid = process_of_rank(&p, 2);
    case_check(pid > 0 && kill(pid, SIGSTOP) == 0, "cannot stop rank 2");
    process_wait(&p);
    const char *line = strstr(p.text[PROCESS_ERR], "lockstep: fatal: ");
    case_check(p.status == ERR_COMM && line != NULL && strstr(line, "lockstep: fatal: rank 2/3 on ") == line &&
                   strstr(line, wanted) != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(process_in_time(p.seconds, 10), "it took %.1f s", p.seconds);
    case_end();
    process_free(&p);
}

/* All ranks are stopped for longer than the timeout: that time does not count. */
static void stopped_job(void)
{
    enum { RANKS = 2 };
    struct process_setup setup = {.ranks = RANKS};
    struct process p;
    pid_t pid[RANKS];
    bool stopped = true;
    char timeout[16];
    int seconds = timeout_of(timeout, 4);
    case_begin("a job that was stopped as a whole goes on afterwards");
    process_start(&p, &setup,
                  LIST("preflight", "--device", "cpu", "--model", models_demo(), "--max-broadcast-us", "0",
                       "--min-read-share", "0", "--verbose", "--preflight-timeout", timeout));
    await_measuring(&p);
    for (int r = 0; r < RANKS; r++) {
        pid[r] = process_of_rank(&p, r);
        stopped = stopped && pid[r] > 0 && kill(pid[r], SIGSTOP) == 0;
    }
    case_check(stopped, "cannot stop a rank");
    process_watch(&p, seconds + 1, SIZE_MAX);
    for (int r = 0; r < RANKS; r++)
        if (pid[r] > 0)
            (void)kill(pid[r], SIGCONT);
    process_wait(&p);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        measures(ranks);
    thresholds();
    usage();
    short_file();
    stopped_rank();
    stopped_job();
    return cases_done();
}
