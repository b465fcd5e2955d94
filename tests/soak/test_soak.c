/* tests/soak/test_soak.c - a long run of mixed work: device and host memory at the end equal those after everything was
 * used once, and repeated work gives the same tokens. Under mpirun. argv: "cpu" (or nothing) or "cuda". SOAK_SECONDS in
 * the environment: duration, 600 by default; never less than three rounds of everything. On a device half of it runs
 * decode steps as separate operations, half the way that is measured to be faster when an instance is opened: the two
 * ways are equal except for rounding, so that there the tokens of two instances may differ. A CPU has only the former.
 * In each half an instance of the demo model is opened, runs mixed batches for a twelfth of the time, and is closed;
 * the next one has another shape. */
#include "base/choices.h"
#include "base/clock.h"
#include "coordinator/schedule/scheduler.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/models.h"
#include "tests/support/process.h"
#include "tests/support/scheduled.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_PROGRAMS     5
#define MAX_REQUESTS   24
#define MAX_PROMPT     200
#define MAX_NEW        48
#define MAX_LEN        (MAX_PROMPT + MAX_NEW)
#define N_SHAPES       3
#define N_CYCLES       12 /* instances that share the time */
#define LEAST_CYCLES   (3 * N_SHAPES)
#define DEVICE_SLACK   ((size_t)4 << 20) /* memory that the driver keeps for itself */
#define HOST_SLACK     ((size_t)32 << 20)
#define SETTLED_PASSES 2 /* after this many passes over all programs an instance allocates no more memory */

/* Limits of an instance. It has blocks for about half of the sequences that may run, so that requests wait. */
static const struct shape {
    int max_batch_tokens, max_seqs, n_blocks;
} shape[N_SHAPES] = {{512, 16, 150}, {48, 7, 60}, {200, 24, 200}};

/* The result of every request of a program: a digest of its tokens and its end. */
struct outcome {
    uint64_t digest[MAX_REQUESTS];
};

/* A program on its way through the engine. */
struct run {
    struct scheduler scheduler;
    struct request request[MAX_REQUESTS];
    struct request_rules rules[MAX_REQUESTS];
    int n;
};

/* Equal on all ranks: the minimum of the device's free memory, the maximum of the host's resident memory. */
struct memory {
    double device_free, host_resident;
};

struct soak {
    struct world *world;
    struct tokenizer *tokenizer; /* rank 0 */
    int32_t device;
    enum step_choice step; /* SEPARATE or AUTO */
    double seconds;
    bool known[N_SHAPES];
    struct outcome reference[N_SHAPES][N_PROGRAMS];
    struct memory settled[N_SHAPES]; /* at the end of the second instance of a shape */
    struct memory last;
    long n_runs, n_tokens, n_changed, n_differ; /* rank 0: within an instance, and between instances */
    double device_lost, host_grown;             /* worst, compared with the settled values */
    double device_lost_within;                  /* worst, from an instance's settling to its end */
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int below(uint64_t *state, int n)
{
    return (int)(next_random(state) % (uint64_t)n);
}

/* Makes greedy rules, and several kinds of sampling. */
static void make_rules(struct request_rules *rules, uint64_t *random)
{
    struct sampling *s = &rules->sampling;
    *rules = (struct request_rules){.max_tokens = 1 + below(random, MAX_NEW), .skip_special = true};
    *s = (struct sampling){.top_p = 1, .repetition_penalty = 1, .seed = next_random(random), .n_top = below(random, 4)};
    switch (below(random, 5)) {
    case 0:
        s->temperature = 1;
        break;
    case 1:
        s->temperature = 0.8f;
        s->top_p = 0.9f;
        s->top_k = 40;
        break;
    case 2:
        s->temperature = 1.2f;
        s->min_p = 0.05f;
        s->repetition_penalty = 1.2f;
        break;
    case 3:
        s->presence_penalty = 0.3f;
        s->frequency_penalty = 0.1f;
        break;
    default: /* greedy */
        break;
    }
}

/* Makes program k: always the same requests. Few and many, short and long prompts and outputs. */
static void make_program(struct run *r, int k, int vocab)
{
    static const int n_requests[N_PROGRAMS] = {1, 4, 9, 16, MAX_REQUESTS};
    uint64_t random = 1000 + (uint64_t)k;
    memset(r, 0, sizeof *r);
    r->n = n_requests[k];
    for (int i = 0; i < r->n; i++) {
        struct request *q = &r->request[i];
        make_rules(&r->rules[i], &random);
        q->rules = &r->rules[i];
        q->index = i;
        q->slot = -1;
        q->prompt.n = q->prompt.capacity = 1 + (size_t)below(&random, i % 3 == 0 ? MAX_PROMPT : 20);
        q->prompt.id = calloc(q->prompt.n, sizeof *q->prompt.id);
        for (size_t t = 0; q->prompt.id != NULL && t < q->prompt.n; t++)
            q->prompt.id[t] = below(&random, vocab);
    }
}

static uint64_t digest_of(const struct request *r)
{
    return digest_add(digest_add(DIGEST_BEGIN, &r->finish, sizeof r->finish), r->output.id,
                      r->output.n * sizeof *r->output.id);
}

/* Runs program k; the outcome is rank 0's. Collective. */
static void run_program(struct soak *s, struct instance *i, int k, struct outcome *o)
{
    static struct run r;
    struct err e = {0};
    const struct loop_client client = {.context = &r.scheduler, .next = scheduled_next, .accept = scheduled_accept};
    const struct scheduler_setup setup = {.limits = i->engine.limits, .tokenizer = s->tokenizer};
    memset(o, 0, sizeof *o);
    make_program(&r, k, i->network.config.vocab);
    if (s->world->rank == 0) {
        (void)scheduler_open(&r.scheduler, &setup, &e);
        for (int n = 0; n < r.n && e.code == ERR_NONE; n++)
            (void)scheduler_add(&r.scheduler, &r.request[n], 0, &e);
    }
    fatal_agree(s->world, &e);
    loop_run(&i->engine, &client, &e);
    for (int n = 0; n < r.n; n++) {
        o->digest[n] = digest_of(&r.request[n]);
        s->n_tokens += (long)r.request[n].output.n;
        request_close(&r.request[n]);
    }
    scheduler_close(&r.scheduler);
    s->n_runs++;
}

/* Collective. A CPU backend's memory is part of the resident memory, so the host's free memory is irrelevant. */
static struct memory measure(const struct instance *i)
{
    double mine[2] = {i->ops->shares_host_memory ? 0 : -(double)i->ops->free_memory((struct queue *)&i->q),
                      process_resident(getpid())};
    double all[2];
    MPI_CHECK(MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return (struct memory){-all[0], all[1]};
}

static void open_instance(struct soak *s, struct instance *i, const struct shape *h)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {.max_seqs = h->max_seqs,
                                              .max_batch_tokens = h->max_batch_tokens,
                                              .max_len = MAX_LEN,
                                              .max_logit_rows = h->max_seqs,
                                              .n_blocks = h->n_blocks},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .progress = PROGRESS_NEVER,
                                   .device = s->device,
                                   .step = (int32_t)s->step};
    if (s->world->rank == 0 && model_config_read(&m, models_demo(), &e) == 0)
        (void)checkpoint_open(&c, models_demo(), &e);
    fatal_agree(s->world, &e);
    instance_open(i, s->world, &m, &c, &setup, &e);
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* Rank 0's clock decides. */
static bool time_left(const struct soak *s, double until)
{
    int more = seconds_now() < until;
    MPI_CHECK(MPI_Bcast(&more, 1, MPI_INT, 0, s->world->comm));
    return more != 0;
}

/* Runs an instance: all programs in turn until its time is over; each at least once. */
static void run_instance(struct soak *s, int cycle, double until)
{
    int which = cycle % N_SHAPES;
    struct instance i;
    struct outcome first[N_PROGRAMS], now;
    struct memory settled = {0};
    open_instance(s, &i, &shape[which]);
    for (int pass = 0; pass == 0 || time_left(s, until); pass++) {
        for (int k = 0; k < N_PROGRAMS; k++) {
            run_program(s, &i, k, &now);
            if (pass == 0)
                first[k] = now;
            s->n_changed += memcmp(&now, &first[k], sizeof now) != 0;
        }
        if (pass == SETTLED_PASSES - 1)
            settled = measure(&i);
        if (pass >= SETTLED_PASSES)
            s->device_lost_within = most(s->device_lost_within, settled.device_free - measure(&i).device_free);
    }
    if (!s->known[which])
        memcpy(s->reference[which], first, sizeof first);
    s->known[which] = true;
    s->n_differ += memcmp(s->reference[which], first, sizeof first) != 0;
    s->last = measure(&i);
    if (cycle >= N_SHAPES && cycle < 2 * N_SHAPES)
        s->settled[which] = s->last;
    if (cycle >= 2 * N_SHAPES) {
        s->device_lost = most(s->device_lost, s->settled[which].device_free - s->last.device_free);
        s->host_grown = most(s->host_grown, s->last.host_resident - s->settled[which].host_resident);
    }
    instance_close(&i);
}

static void judge(const struct soak *s, double took)
{
    bool me = s->world->rank == 0;
    char reason[200];
    const char *way = s->step == STEP_SEPARATE ? "separate operations" : "the faster way";
    int n = s->world->n_ranks;
    if (me)
        printf(
            "# %s: %ld runs, %ld tokens in %.0f s; device memory lost %.1f MiB, within an instance %.1f; host memory "
            "grown by %.1f MiB to %.1f MiB\n",
            way, s->n_runs, s->n_tokens, took, s->device_lost / (1 << 20), s->device_lost_within / (1 << 20),
            s->host_grown / (1 << 20), s->last.host_resident / (1 << 20));
    (void)snprintf(reason, sizeof reason, "%ld of %ld runs", s->n_changed, s->n_runs);
    tap_all(!me || (s->n_changed == 0 && s->n_tokens > 1000), reason,
            "%d ranks, %s: repeated work within an instance gives the same tokens", n, way);
    if (s->step == STEP_SEPARATE) {
        (void)snprintf(reason, sizeof reason, "%ld instances", s->n_differ);
        tap_all(!me || s->n_differ == 0, reason, "%d ranks, %s: every instance of a shape gives the same tokens", n,
                way);
    }
    if (s->device == DEVICE_CUDA) {
        (void)snprintf(reason, sizeof reason, "%.0f bytes", s->device_lost_within);
        tap_all(s->device_lost_within <= (double)DEVICE_SLACK, reason, "%d ranks, %s: no step allocates device memory",
                n, way);
        (void)snprintf(reason, sizeof reason, "%.0f bytes", s->device_lost);
        tap_all(s->device_lost <= (double)DEVICE_SLACK, reason, "%d ranks, %s: device memory ends as it began", n, way);
    }
    (void)snprintf(reason, sizeof reason, "%.0f bytes", s->host_grown);
    tap_all(s->host_grown <= (double)HOST_SLACK, reason, "%d ranks, %s: host memory does not grow", n, way);
}

static void run_soak(struct soak *s)
{
    double started = seconds_now();
    for (int cycle = 0; cycle < LEAST_CYCLES || time_left(s, started + s->seconds); cycle++)
        run_instance(s, cycle, started + s->seconds * (cycle + 1) / N_CYCLES);
    judge(s, seconds_now() - started);
}

int main(int argc, char **argv)
{
    static struct soak half[2] = {{.step = STEP_SEPARATE}, {.step = STEP_AUTO}};
    struct tokenizer *tokenizer = NULL;
    struct err e = {0};
    struct world w;
    const char *seconds = getenv("SOAK_SECONDS");
    int32_t device = argc > 1 && strcmp(argv[1], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    int n_ways = device == DEVICE_CPU ? 1 : 2;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    if (w.rank == 0)
        (void)tokenizer_open(&tokenizer, models_demo(), &e);
    fatal_agree(&w, &e);
    for (int i = 0; i < n_ways; i++) {
        half[i].world = &w;
        half[i].tokenizer = tokenizer;
        half[i].device = device;
        half[i].seconds = (seconds != NULL ? atof(seconds) : 600) / n_ways;
        run_soak(&half[i]);
    }
    tokenizer_close(&tokenizer);
    int status = tap_done();
    world_close(&w);
    return status;
}
