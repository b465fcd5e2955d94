/* tests/spmd/test_loop.c - rank/step/loop.c: plans arrive unchanged, and waiting ranks sleep. */
#include "base/clock.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define VOCAB 50000

static const struct limits limits = {
    .max_seqs = 64, .max_batch_tokens = 8192, .max_len = 4096, .max_logit_rows = 64, .n_blocks = 5000};

/* Makes a plan of n tokens over as many sequences as needed, the same on every rank. */
static void fill(struct plan *p, uint64_t step, int n_tokens, int n_blocks)
{
    plan_reset(p, step);
    for (int left = n_tokens; left > 0;) {
        int n = left < 4096 ? left : 4096;
        p->seq[p->n_seqs] = (struct plan_seq){p->n_seqs, n, 0, n, 1, 1, 0};
        p->start[p->n_starts] = (struct plan_start){.slot = p->n_seqs, .sampling = {.seed = step, .top_p = 0.5f}};
        p->n_starts++;
        p->n_seqs++;
        left -= n;
    }
    for (int i = 0; i < n_tokens; i++)
        p->token[p->n_tokens++] = (int32_t)((uint64_t)i * 7919 + step) % VOCAB;
    for (int i = 0; i < n_blocks; i++)
        p->block[p->n_blocks++] = (struct plan_block){i % 64, i / 64, (i * 31) % 5000, KV_MAIN};
}

static bool same_plan(const struct plan *a, const struct plan *b)
{
    return a->step == b->step && a->kind == b->kind && a->n_seqs == b->n_seqs && a->n_tokens == b->n_tokens &&
           a->n_starts == b->n_starts && a->n_blocks == b->n_blocks &&
           memcmp(a->seq, b->seq, (size_t)a->n_seqs * sizeof *a->seq) == 0 &&
           memcmp(a->start, b->start, (size_t)a->n_starts * sizeof *a->start) == 0 &&
           memcmp(a->block, b->block, (size_t)a->n_blocks * sizeof *a->block) == 0 &&
           memcmp(a->token, b->token, (size_t)a->n_tokens * sizeof *a->token) == 0;
}

static void check_sizes(const struct world *w, struct plan *p, struct plan *want)
{
    /* Sizes around the first broadcast's 4096 bytes, then far larger, then small again after a large one. */
    static const struct {
        int tokens, blocks;
    } size[] = {{0, 0}, {1, 0}, {200, 2}, {300, 0}, {1, 110}, {1, 111}, {1, 112}, {1, 113}, {8192, 4096}, {1, 1}};
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        fill(want, i + 1, size[i].tokens, size[i].blocks);
        size_t bytes = plan_pack(want);
        plan_reset(p, 0);
        if (w->rank == 0)
            fill(p, i + 1, size[i].tokens, size[i].blocks);
        loop_share(p, w, VOCAB);
        tap_all(same_plan(p, want), "the plan differs", "a plan of %zu bytes arrives on %d ranks", bytes, w->n_ranks);
    }
    bool all = true;
    for (int bytes = 4000; bytes < 4200; bytes += 4) { /* every size around the limit, one token apart */
        int rest = (bytes - PLAN_HEADER_BYTES - (int)sizeof(struct plan_seq) - (int)sizeof(struct plan_start)) / 4;
        fill(want, (uint64_t)bytes, rest, 0);
        plan_reset(p, 0);
        if (w->rank == 0)
            fill(p, (uint64_t)bytes, rest, 0);
        loop_share(p, w, VOCAB);
        all = all && same_plan(p, want);
    }
    tap_all(all, "a plan differs", "plans around the size of the first broadcast arrive on %d ranks", w->n_ranks);
}

static void check_stop(const struct world *w, struct plan *p)
{
    plan_reset(p, 99);
    if (w->rank == 0)
        p->kind = PLAN_STOP;
    loop_share(p, w, VOCAB);
    tap_all(p->kind == PLAN_STOP && p->step == 99 && p->n_seqs == 0, "the plan differs", "STOP arrives");
}

/* Returns the processor time so far; *naps: how often this process gave up its core voluntarily. */
static double cpu_seconds(double *naps)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    *naps = (double)u.ru_nvcsw;
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* A nap costs about 25 us, on a busy machine up to four times that; a spinning rank never naps. */
static void check_sleep(const struct world *w, struct plan *p)
{
    char reason[100];
    double naps[2];
    MPI_CHECK(MPI_Barrier(MPI_COMM_WORLD));
    double cpu = cpu_seconds(&naps[0]), started = seconds_now();
    if (w->rank == 0) {
        (void)usleep(1000000);
        fill(p, 5, 1, 0);
    }
    loop_share(p, w, VOCAB);
    cpu = cpu_seconds(&naps[1]) - cpu;
    double waited = seconds_now() - started, n = naps[1] - naps[0];
    snprintf(reason, sizeof reason, "%.3f s of CPU in %.3f s, %.0f naps", cpu, waited, n);
    tap_all(p->step == 5 && waited > 0.9 && (cpu < 0.2 || cpu < n * 100e-6), reason,
            "ranks that wait a second for a plan sleep meanwhile");
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct plan p, want;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    if (plan_open(&p, &limits, &e) != 0 || plan_open(&want, &limits, &e) != 0)
        fatal(&e);
    check_sizes(&w, &p, &want);
    check_stop(&w, &p);
    check_sleep(&w, &p);
    plan_close(&p);
    plan_close(&want);
    int status = tap_done();
    world_close(&w);
    return status;
}
