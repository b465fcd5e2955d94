/* tests/spmd/test_meter.c - rank/measure/meter.c: every rank's figures arrive on rank 0, they add up, and the slow rank
 * is named. The test itself makes a rank slow: its norms take longer. */
#include "rank/instance/instance.h"
#include "rank/measure/meter.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PROMPT  20
#define N_STEPS 40
#define SLOW    1e-3 /* seconds added to a norm of the slow rank */

static bool slow;

static void slow_norm(struct queue *q, void *out, void *x, const void *added, enum norm_kind kind,
                      const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps)
{
    const struct timespec nap = {0, (long)(SLOW * 1e9)}; /* not a busy loop: the other ranks share its cores */
    if (slow)
        (void)nanosleep(&nap, NULL);
    ops_cpu.norm(q, out, x, added, kind, w, b, n_tokens, dim, eps);
}

/* The figures that rank 0 has collected. */
struct run {
    int n_planned, n_reports;
    struct rank_stats total[8], summed[8]; /* of the last report; of all recent ones */
    int slowest;                           /* of all recent ones together */
};

static int next(void *context, struct plan *p, struct err *e)
{
    struct run *r = context;
    (void)e;
    int pos = r->n_planned == 0 ? 0 : PROMPT + r->n_planned - 1, n = r->n_planned == 0 ? PROMPT : 1;
    if (r->n_planned++ == N_STEPS) {
        p->kind = PLAN_STOP;
        return 0;
    }
    if (pos == 0)
        p->start[p->n_starts++] =
            (struct plan_start){.slot = 0, .sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = PROMPT}};
    for (int i = 0; pos == 0 && i < limits_blocks_per_slot(&p->limits); i++)
        p->block[p->n_blocks++] = (struct plan_block){0, i, i, KV_MAIN};
    p->seq[p->n_seqs++] = (struct plan_seq){0, n, pos, pos + n, 1, 1, 0};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = pos == 0 ? i : -1;
    return 0;
}

static int accept(void *context, const struct step_result *result, struct err *e)
{
    (void)context;
    return result->n_sampled == 1 ? 0 : ERR(e, ERR_INTERNAL, "%d tokens", result->n_sampled);
}

static void on_report(void *context, const struct rank_report *report)
{
    struct run *r = context;
    r->n_reports++;
    for (int i = 0; i < report->n_ranks && i < 8; i++) {
        const struct rank_stats *recent = &report->recent[i];
        struct rank_stats *sum = &r->summed[i];
        r->total[i] = report->total[i];
        sum->n_steps += recent->n_steps;
        sum->n_timed += recent->n_timed;
        sum->n_parted += recent->n_parted;
        sum->step_seconds += recent->step_seconds;
        sum->parted_seconds += recent->parted_seconds;
        sum->all_reduce_seconds += recent->all_reduce_seconds;
        sum->all_gather_seconds += recent->all_gather_seconds;
    }
    r->slowest = rank_stats_slowest(r->summed, report->n_ranks);
}

static void open_instance(struct instance *i, struct world *w)
{
    const char *dir = "tests/parity/fixtures/llama-14-2-gelu";
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {
        .limits = {.max_seqs = 1, .max_batch_tokens = PROMPT, .max_len = 80, .max_logit_rows = 1, .n_blocks = 5},
        .kv_bytes = -1,
        .threads = 1,
        .progress = PROGRESS_NEVER};
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(i, w, &m, &c, &setup, &e);
}

/* Runs the loop once, with the figures of rank 0 in *r. */
static void run_instance(struct instance *i, struct run *r, double interval)
{
    struct err e = {0};
    struct meter m;
    const struct loop_client client = {.context = r, .next = next, .accept = accept};
    *r = (struct run){0};
    (void)meter_open(&m, &i->engine, interval, on_report, r, &e);
    fatal_agree(i->engine.world, &e);
    loop_run(&i->engine, &client, &e);
    meter_close(&m);
}

/* Totals equal the sums of recent figures; all steps are counted and timed; parts do not exceed the whole. */
static void check_sums(const struct run *r, const struct world *w)
{
    bool ok = true;
    char reason[200] = "";
    for (int i = 0; i < w->n_ranks && w->rank == 0; i++) {
        const struct rank_stats *t = &r->total[i], *s = &r->summed[i];
        double parts = t->all_reduce_seconds + t->all_gather_seconds;
        bool good = t->n_steps == N_STEPS && t->n_timed == N_STEPS && t->n_parted == N_STEPS && s->n_steps == N_STEPS &&
                    fabs(t->step_seconds - s->step_seconds) < 1e-9 && t->step_seconds > 0 &&
                    t->parted_seconds == t->step_seconds && parts < t->step_seconds &&
                    (parts > 0) == (w->n_ranks > 1) && t->pid > 0 && strcmp(t->host, w->host) == 0;
        if (!good)
            (void)snprintf(reason, sizeof reason, "rank %d: %llu steps, %llu timed, %llu parted, %g s and %g, parts %g",
                           i, (unsigned long long)t->n_steps, (unsigned long long)t->n_timed,
                           (unsigned long long)t->n_parted, t->step_seconds, s->step_seconds, parts);
        ok = ok && good;
    }
    tap_all(ok, reason, "%d ranks: the figures of all ranks add up", w->n_ranks);
}

static void check_slow(struct instance *i, struct world *w, int which)
{
    struct run r;
    char reason[200] = "";
    slow = w->rank == which;
    run_instance(i, &r, 0.005);
    slow = false;
    const struct rank_stats *s = &r.total[which];
    bool ok = w->rank != 0 || (w->n_ranks > 1 ? r.slowest == which : r.slowest == -1);
    int n_norms = 2 * i->network.config.n_layers + 1;
    ok = ok && (w->rank != 0 || rank_stats_compute(s) >= n_norms * SLOW);
    for (int k = 0; k < w->n_ranks && w->rank == 0 && k != which; k++) /* the others wait for the slow rank */
        ok = ok && rank_stats_all_reduce(&r.total[k]) > rank_stats_all_reduce(s);
    (void)snprintf(reason, sizeof reason, "rank %d is named, its own work %.3f ms, in sums %.3f ms", r.slowest,
                   1e3 * rank_stats_compute(s), 1e3 * rank_stats_all_reduce(s));
    tap_all(ok, reason, "%d ranks: rank %d is slow, and is named", w->n_ranks, which);
    check_sums(&r, w);
}

/* An interval of 0 asks as often as answers come; with a long one there is only the report at the end. */
static void check_interval(struct instance *i, struct world *w)
{
    struct run often, once;
    char reason[100];
    run_instance(i, &often, 0);
    run_instance(i, &once, 1e6);
    (void)snprintf(reason, sizeof reason, "%d and %d reports", often.n_reports, once.n_reports);
    tap_all(w->rank != 0 ||
                (often.n_reports > 5 && often.n_reports <= N_STEPS + 1 && once.n_reports <= 2 && once.n_reports > 0),
            reason, "%d ranks: reports come as often as requested", w->n_ranks);
    check_sums(&often, w);
    check_sums(&once, w);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct instance i;
    struct ops slow_ops = ops_cpu;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    open_instance(&i, &w);
    slow_ops.norm = slow_norm;
    i.engine.ops = &slow_ops;
    for (int which = 0; which < w.n_ranks; which++)
        check_slow(&i, &w, which);
    check_interval(&i, &w);
    i.engine.ops = &ops_cpu;
    instance_close(&i);
    int status = tap_done();
    world_close(&w);
    return status;
}
