/* tests/fail/test_step_timeout.c - --step-timeout: stopped or stuck ranks are named, and the job ends in time; likewise
 * a rank that samples other tokens, and one whose transport itself reports an error, as NCCL does. With arguments this
 * program is a rank: its norms hang on the rank that the first argument names, or are slow on all, or that rank's
 * tokens change, or its transport fails. */
#include "base/clock.h"
#include "base/err.h"
#include "rank/instance/instance.h"
#include "rank/measure/meter.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT 2.0 /* seconds */
#define SLACK   3.0 /* seconds that the end may take */

/* Expects one line, of this rank, with this word in it; the status; an end in time; nothing left. ended: seconds since
 * the failure. */
static void check_end(const struct process *p, int rank, int ranks, const char *word, double ended)
{
    char name[40];
    const char *line = strstr(p->text[PROCESS_ERR], "lockstep: fatal: ");
    (void)snprintf(name, sizeof name, ranks > 1 ? "lockstep: fatal: rank %d/%d on " : "lockstep: fatal: ", rank, ranks);
    if (case_check(line != NULL, "no line of a failure: %s", p->text[PROCESS_ERR])) {
        case_check(strncmp(line, name, strlen(name)) == 0, "not \"%s...\": %s", name, line);
        case_check(strstr(line + 17, "fatal") == NULL && process_count_lines(line) == 1, "more than one line: %s",
                   line);
        case_check(strstr(line, "--step-timeout") != NULL && strstr(line, "step ") != NULL &&
                       strstr(line, word) != NULL,
                   "no step, option or \"%s\": %s", word, line);
    }
    case_check(p->status == ERR_COMM, "status %d, expected %d", p->status, ERR_COMM);
    case_check((ended >= TIMEOUT / 2 || process_sanitized()) && process_in_time(ended, TIMEOUT + SLACK),
               "ended after %.1f s", ended);
    case_check(p->n_left == 0, "%d processes are left running", p->n_left);
    case_check(!p->core, "a core file");
}

static void start_story(struct process *p, int ranks, const char *timeout)
{
    struct process_setup setup = {.ranks = ranks};
    process_start(p, &setup,
                  (const char *[]){"generate", "--model", models_endless(), "--prompt", "Once", "--max-tokens",
                                   "100000", "--ignore-eos", "--kv-cache-memory-bytes", "2G", "--progress", "always",
                                   "--step-timeout", timeout, NULL});
    process_watch(p, process_patience(20), 100);
    case_check(p->bytes[PROCESS_OUT] >= 100, "no story begins: %s", p->text[PROCESS_ERR]);
}

static void stopped_rank(int ranks, int rank)
{
    struct process p;
    case_begin("rank %d of %d is stopped within a step", rank, ranks);
    start_story(&p, ranks, "2");
    pid_t pid = process_of_rank(&p, rank);
    double stopped = seconds_now();
    if (case_check(pid > 0, "no such rank"))
        (void)kill(pid, SIGSTOP);
    process_wait(&p);
    check_end(&p, rank, ranks, "no sign of life", p.started + p.seconds - stopped);
    case_end();
    process_free(&p);
}

/* A pause shorter than the deadline, and a longer one without a deadline: the story goes on. */
static void a_pause(const char *timeout, unsigned milliseconds)
{
    struct process p;
    case_begin("a pause of %u ms, --step-timeout %s", milliseconds, timeout);
    start_story(&p, 2, timeout);
    pid_t pid = process_of_rank(&p, 1);
    if (case_check(pid > 0, "no such rank"))
        (void)kill(pid, SIGSTOP);
    (void)usleep(1000 * milliseconds);
    (void)kill(pid, SIGCONT);
    process_watch(&p, 0.2, 0); /* discards text written before */
    size_t before = p.bytes[PROCESS_OUT];
    process_watch(&p, process_patience(20), before + 100);
    case_check(p.bytes[PROCESS_OUT] >= before + 100 && strstr(p.text[PROCESS_ERR], "fatal") == NULL,
               "the story does not go on: %s", p.text[PROCESS_ERR]);
    (void)kill(p.pid, SIGTERM);
    process_wait(&p);
    case_end();
    process_free(&p);
}

/* ---- a rank that hangs in its own computation, alive ---- */

#define SLOW_NORM 0.5 /* seconds: a step of the demo takes longer than the deadline, each of its layers less */

static bool hangs, slow, diverges;
static int n_norms, n_planned;

static void hanging_norm(struct queue *q, void *out, void *x, const void *added, enum norm_kind kind,
                         const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps)
{
    while (hangs && n_norms == 20)
        (void)pause();
    if (slow)
        (void)usleep((unsigned)(1e6 * SLOW_NORM));
    n_norms++;
    ops_cpu.norm(q, out, x, added, kind, w, b, n_tokens, dim, eps);
}

/* From the 30th token on this rank samples other tokens. */
static void other_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                         const int32_t *row_len, const struct sampler *s, int n_rows)
{
    static int n;
    ops_cpu.sample(q, out, logits, row_slot, row_len, s, n_rows);
    if (++n >= 30)
        out[0].token ^= 1;
}

/* NCCL's own threads report an error when they are polled; here at the second poll. */
static int broken_check(struct comm *c, struct err *e)
{
    static int n;
    (void)c;
    return ++n < 2 ? 0 : ERR(e, ERR_COMM, "NCCL: a link is down");
}

static int next(void *context, struct plan *p, struct err *e)
{
    (void)context;
    (void)e;
    if (slow && n_planned++ == 1) {
        p->kind = PLAN_STOP;
        return 0;
    }
    p->start[p->n_starts++] = (struct plan_start){.slot = 0, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    p->block[p->n_blocks++] = (struct plan_block){0, 0, 0, KV_MAIN};
    p->seq[p->n_seqs++] = (struct plan_seq){0, 1, 0, 1, 1, 1, 0};
    p->token[p->n_tokens++] = 1;
    return 0;
}

static int accept(void *context, const struct step_result *result, struct err *e)
{
    (void)context;
    (void)result;
    (void)e;
    return 0;
}

static int be_a_rank(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct instance i;
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct ops ops = ops_cpu;
    struct instance_setup setup = {
        .limits = {.max_seqs = 1, .max_batch_tokens = 8, .max_len = 16, .max_logit_rows = 1, .n_blocks = 1},
        .kv_bytes = -1,
        .threads = 1,
        .progress = PROGRESS_NEVER,
        .step_timeout = TIMEOUT};
    const struct loop_client client = {.context = NULL, .next = next, .accept = accept};
    const char *dir = argv[2];
    struct meter meter;
    int stuck = -1, other = -1, broken = -1;
    slow = strcmp(argv[1], "slow") == 0;
    if (strncmp(argv[1], "other", 5) == 0)
        other = atoi(argv[1] + 5);
    else if (strncmp(argv[1], "broken", 6) == 0)
        broken = atoi(argv[1] + 6);
    else if (!slow)
        stuck = atoi(argv[1]);
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    hangs = w.rank == stuck;
    diverges = w.rank == other;
    if (w.rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(&w, &e);
    instance_open(&i, &w, &m, &c, &setup, &e);
    ops.norm = hanging_norm;
    if (diverges)
        ops.sample = other_sample;
    struct comm_ops transport = *i.engine.comm.ops;
    if (w.rank == broken)
        transport.check = broken_check;
    i.engine.comm.ops = &transport;
    i.engine.ops = &ops;
    (void)meter_open(&meter, &i.engine, 0.1, NULL, NULL, &e);
    fatal_agree(&w, &e);
    double started = seconds_now();
    loop_run(&i.engine, &client, &e);
    if (w.rank == 0)
        printf("%.3f\n", seconds_now() - started);
    i.engine.ops = &ops_cpu;
    meter_close(&meter);
    instance_close(&i);
    world_close(&w);
    return 0;
}

/* Runs this program as the ranks. */
static void run_ranks(struct process *p, const char *self, int ranks, const char *how)
{
    struct process_setup setup = {.ranks = ranks};
    char *before = getenv("LOCKSTEP_BINARY"), *kept = before != NULL ? strdup(before) : NULL;
    (void)setenv("LOCKSTEP_BINARY", self, 1);
    process_run(p, &setup, (const char *[]){how, models_demo(), NULL});
    if (kept != NULL)
        (void)setenv("LOCKSTEP_BINARY", kept, 1);
    else
        (void)unsetenv("LOCKSTEP_BINARY");
    free(kept);
}

static void stuck_rank(const char *self, int ranks, int rank)
{
    struct process p;
    char number[16];
    (void)snprintf(number, sizeof number, "%d", rank);
    case_begin("rank %d of %d hangs, alive", rank, ranks);
    run_ranks(&p, self, ranks, number);
    check_end(&p, rank, ranks, "still computing", p.seconds);
    case_end();
    process_free(&p);
}

/* A step of CPU ranks may take longer than the deadline as long as it progresses. */
static void slow_ranks(const char *self, int ranks)
{
    struct process p;
    case_begin("%d slow rank(s)", ranks);
    run_ranks(&p, self, ranks, "slow");
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(atof(p.text[PROCESS_OUT]) > TIMEOUT, "the step took %s s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

static void diverging_rank(const char *self, int ranks, int rank)
{
    struct process p;
    char how[16], name[60];
    (void)snprintf(how, sizeof how, "other%d", rank);
    (void)snprintf(name, sizeof name, "lockstep: fatal: rank %d/%d on ", rank, ranks);
    case_begin("rank %d of %d samples other tokens", rank, ranks);
    run_ranks(&p, self, ranks, how);
    const char *line = p.text[PROCESS_ERR];
    case_check(strncmp(line, name, strlen(name)) == 0 && process_count_lines(line) == 1, "not one line \"%s\": %s",
               name, line);
    case_check(strstr(line, ranks > 2 ? "its tokens differ from those of the other ranks"
                                      : "its tokens differ from those of rank 0 since one of the last steps") != NULL,
               "%s", line);
    case_check((strstr(line, "it is not known which of the two is wrong") != NULL) == (ranks == 2), "%s", line);
    case_check(p.status == ERR_DEVICE, "status %d, expected %d", p.status, ERR_DEVICE);
    case_check(process_in_time(p.seconds, 10), "%.1f s", p.seconds);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

static void broken_transport(const char *self, int ranks, int rank)
{
    struct process p;
    char how[16], name[60];
    (void)snprintf(how, sizeof how, "broken%d", rank);
    (void)snprintf(name, sizeof name, "lockstep: fatal: rank %d/%d on ", rank, ranks);
    case_begin("the transport of rank %d of %d knows of an error", rank, ranks);
    run_ranks(&p, self, ranks, how);
    const char *line = p.text[PROCESS_ERR];
    case_check(strncmp(line, name, strlen(name)) == 0 && process_count_lines(line) == 1, "not one line \"%s\": %s",
               name, line);
    case_check(strstr(line, "NCCL: a link is down") != NULL, "%s", line);
    case_check(p.status == ERR_COMM, "status %d, expected %d", p.status, ERR_COMM);
    case_check(process_in_time(p.seconds, 10), "%.1f s", p.seconds);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_a_rank(argc, argv);
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    for (int rank = 0; rank < 3; rank++)
        stopped_rank(3, rank);
    stuck_rank(self, 3, 0);
    stuck_rank(self, 3, 2);
    stuck_rank(self, 1, 0);
    diverging_rank(self, 3, 1);
    diverging_rank(self, 3, 0);
    diverging_rank(self, 2, 1);
    broken_transport(self, 3, 1);
    broken_transport(self, 2, 0);
    slow_ranks(self, 1);
    slow_ranks(self, 2);
    a_pause("4", 500);
    a_pause("0", 2500);
    return cases_done();
}
