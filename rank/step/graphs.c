/* rank/step/graphs.c - see graphs.h. */
#include "rank/step/graphs.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/invariance.h"
#include "rank/step/step.h"
#include "rank/step/step_inputs.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_SIZE 256 /* sequences; larger batches run without a graph, since the work hides their launches */
#define SHORT    768 /* tokens: SAME_WHOLE steps (attention_same.cuh), which invariant devices attend to at once */
#define N_WARM   2
#define N_TIMED  4

/* All sizes up to 8, then four to each doubling, so that at most a fifth of a batch is empty; and `most` itself. */
static int next_size(int size, int most)
{
    int step = 1;
    while (step * 8 <= size)
        step *= 2;
    return size + step < most || size >= most ? size + step : most;
}

/* The batch sizes: sequences and, for small numbers, their drafts, which a step of a few tokens verifies. */
static int largest(const struct engine *g)
{
    const struct limits *l = &g->limits;
    int few = l->max_seqs + l->max_drafts < PERSISTENT_MAX_TOKENS ? l->max_seqs + l->max_drafts : PERSISTENT_MAX_TOKENS;
    int most = l->max_seqs > few ? l->max_seqs : few;
    most = most < l->max_batch_tokens ? most : l->max_batch_tokens;
    most = most < l->max_logit_rows ? most : l->max_logit_rows;
    return most < MAX_SIZE ? most : MAX_SIZE;
}

void graphs_record(struct engine *g, struct decode_graph *to, int flight)
{
    uint64_t before = g->comm.n_all_reduces;
    double started = seconds_now();
    const struct step_shape shape = step_shape_of(to);
    g->ops->async->begin_capture(g->q);
    step_execute(g, &g->flight[flight], &shape, to->persistent);
    to->graph[flight] = g->ops->async->end_capture(g->q);
    to->n_all_reduces = g->comm.n_all_reduces - before;
    g->comm.n_all_reduces = before;
    g->record_seconds += seconds_now() - started;
}

/* Waits until the device is idle. Its error ends the job at once, since other ranks' devices may wait for it, and their
 * hosts for these. */
static void settle(const struct engine *g)
{
    struct err e = {0};
    g->ops->wait(g->q);
    if (g->q->err.code == ERR_NONE)
        return;
    ERR(&e, g->q->err.code, "decode graphs: %s", g->q->err.text);
    fatal(&e);
}

/* Seconds of a step on the slowest rank: all ranks get the same number, and so make the same choice. */
static double time_graph(struct engine *g, void *graph)
{
    double started = 0, mine, slowest = 0;
    for (int i = 0; i < N_WARM + N_TIMED; i++) {
        if (i == N_WARM) {
            settle(g);
            started = seconds_now();
        }
        g->ops->async->launch_graph(g->q, graph);
    }
    settle(g);
    mine = (seconds_now() - started) / N_TIMED;
    MPI_CHECK(MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, g->world->comm));
    return slowest;
}

/* Both ways have been recorded for the first flight: keeps the faster one, or the requested one. */
static void choose_graph(struct engine *g, struct decode_graph *kept, struct decode_graph *other,
                         enum step_choice choice)
{
    double separate = time_graph(g, kept->graph[0]), persistent = time_graph(g, other->graph[0]);
    log_info("decode step of %d sequence%s: separate operations %.3f ms, persistent %.3f ms", kept->n_tokens,
             kept->n_tokens == 1 ? "" : "s", 1e3 * separate, 1e3 * persistent);
    bool take = choice == STEP_PERSISTENT || persistent < separate;
    struct decode_graph loser = take ? *kept : *other;
    if (take)
        *kept = *other;
    kept->separate_seconds = separate;
    kept->persistent_seconds = persistent;
    *other = (struct decode_graph){0};
    g->ops->async->free_graph(g->q, loser.graph[0]);
}

static void say_ways(const struct engine *g)
{
    char text[240];
    graphs_summary(text, sizeof text, g->decode, g->n_decode);
    if (g->persistent.longest > 0 && g->persistent.longest < g->limits.max_len && g->decode[0].persistent)
        log_note("%s; separate operations once a sequence has more than %d tokens", text, g->persistent.longest);
    else
        log_note("%s", text);
}

static int list_sizes(struct engine *g, int most, struct err *e)
{
    for (int n = 1; n <= most; n = next_size(n, most))
        g->n_decode++;
    g->decode = err_calloc(e, DECODE_KINDS * (size_t)g->n_decode, sizeof *g->decode, "graph table");
    if (agree_failed(g->world, e))
        return -1;
    for (int n = 1, i = 0; n <= most; n = next_size(n, most), i++)
        for (int kind = 0; kind < DECODE_KINDS; kind++)
            g->decode[kind * g->n_decode + i] =
                (struct decode_graph){.n_tokens = n,
                                      .late = kind == DECODE_LATE,
                                      .mixed = kind == DECODE_MIXED,
                                      .longest = kind == DECODE_SHORT ? g->short_tokens : 0};
    return 0;
}

/* First runs, in which libraries initialise. n: number of sizes. */
static void warm_up(struct engine *g, int n, int n_persistent)
{
    for (int i = 0; i < n; i++) {
        const struct step_shape shape = step_shape_of(&g->decode[i]);
        step_fill_empty(g, shape.n_tokens);
        step_execute(g, &g->flight[0], &shape, false);
        if (shape.n_tokens <= n_persistent)
            step_execute(g, &g->flight[0], &shape, true);
        settle(g);
    }
}

/* Records the first n sizes for the first flight, in both ways if there are two, and chooses one. */
static void record_first(struct engine *g, int n, int n_persistent, enum step_choice choice)
{
    struct decode_graph persistent[PERSISTENT_MAX_TOKENS + 1] = {0};
    for (int i = 0; i < n; i++) {
        int tokens = g->decode[i].n_tokens;
        graphs_record(g, &g->decode[i], 0);
        if (tokens <= n_persistent) {
            persistent[tokens] = (struct decode_graph){.n_tokens = tokens, .persistent = true};
            graphs_record(g, &persistent[tokens], 0);
        }
    }
    settle(g);
    for (int i = 0; i < n && g->decode[i].n_tokens <= n_persistent; i++) {
        step_fill_empty(g, g->decode[i].n_tokens);
        choose_graph(g, &g->decode[i], &persistent[g->decode[i].n_tokens], choice);
    }
    settle(g);
}

static void record_others(struct engine *g)
{
    for (int i = 0; i < g->n_decode; i++)
        for (int flight = 1; flight < ENGINE_FLIGHTS; flight++)
            graphs_record(g, &g->decode[i], flight);
    settle(g);
}

/* Reads known measurements from ways, and stores new ones there. */
static void share_ways(struct engine *g, int n, struct step_ways *ways)
{
    for (int i = 0; i < n; i++) {
        struct decode_graph *d = &g->decode[i];
        struct step_way *way = &ways->way[d->n_tokens];
        if (!ways->measured)
            *way = (struct step_way){d->persistent, d->separate_seconds, d->persistent_seconds};
        d->persistent = way->persistent;
        d->separate_seconds = way->separate_seconds;
        d->persistent_seconds = way->persistent_seconds;
    }
    ways->measured = true;
}

/* The sizes with two ways. */
static int count_of_two_ways(const struct engine *g, int n_persistent)
{
    int n = 0;
    while (n < g->n_decode && g->decode[n].n_tokens <= n_persistent)
        n++;
    return n;
}

int graphs_open(struct engine *g, enum step_choice choice, struct step_ways *ways, struct err *e)
{
    int most = largest(g), n_persistent = choice == STEP_SEPARATE ? 0 : g->persistent.max_tokens;
    uint64_t n_all_reduces = g->comm.n_all_reduces;
    double started = seconds_now();
    if (g->ops->async == NULL || most < 1)
        return 0;
    g->short_tokens = !g->ops->shares_host_memory && is_batch_invariant(g->ops, g->q) ? SHORT : 0;
    if (list_sizes(g, most, e) != 0)
        return -1;
    int n_both = count_of_two_ways(g, n_persistent), n_now = ways == NULL ? g->n_decode : ways->measured ? 0 : n_both;
    if (n_now > 0) { /* otherwise waits for nothing, not even a step of another model */
        warm_up(g, n_now, n_persistent);
        record_first(g, n_now, n_persistent, choice);
    }
    if (choice == STEP_PERSISTENT)
        g->persistent.longest = 0;
    if (ways != NULL)
        share_ways(g, n_both, ways);
    else
        record_others(g);
    for (int i = 0; i < g->n_decode; i++)
        g->decode[DECODE_LATE * g->n_decode + i].persistent = g->decode[i].persistent;
    say_ways(g);
    g->comm.n_all_reduces = n_all_reduces; /* this work does not belong to any step */
    g->choose_seconds = seconds_now() - started - g->record_seconds;
    return 0;
}

/* The end of the run of equal ways that begins at i. */
static int end_of_run(const struct decode_graph *decode, int n, int i)
{
    int end = i + 1;
    while (end < n && decode[end].persistent == decode[i].persistent)
        end++;
    return end;
}

void graphs_summary(char *text, size_t bytes, const struct decode_graph *decode, int n)
{
    size_t used = (size_t)snprintf(text, bytes, "decode steps: ");
    for (int i = 0, end; i < n && used < bytes; i = end) {
        end = end_of_run(decode, n, i);
        int first = i > 0 ? decode[i - 1].n_tokens + 1 : 1, last = decode[end - 1].n_tokens;
        const char *way = decode[i].persistent ? "one persistent operation" : "separate operations";
        used += (size_t)snprintf(text + used, bytes - used, i > 0 ? ", %s" : "%s", way);
        if (used < bytes)
            used +=
                (size_t)snprintf(text + used, bytes - used, first == last ? " for %d" : " for %d to %d", first, last);
    }
    if (used < bytes)
        (void)snprintf(text + used, bytes - used, n > 0 && decode[n - 1].n_tokens == 1 ? " sequence" : " sequences");
}

static void free_graphs(struct engine *g, int begin, int end)
{
    for (int i = begin; g->decode != NULL && i < end; i++)
        for (int flight = 0; flight < ENGINE_FLIGHTS; flight++) {
            g->ops->async->free_graph(g->q, g->decode[i].graph[flight]);
            g->decode[i].graph[flight] = NULL;
            g->decode[i].n_runs[flight] = 0;
        }
}

void graphs_drop_profiled(struct engine *g)
{
    free_graphs(g, DECODE_PROFILED * g->n_decode, (DECODE_PROFILED + 1) * g->n_decode);
}

void graphs_close(struct engine *g)
{
    free_graphs(g, 0, DECODE_KINDS * g->n_decode);
    free(g->decode);
    g->decode = NULL;
    g->n_decode = 0;
}

struct decode_graph *graphs_find(const struct engine *g, int n_seqs, enum decode_kind kind)
{
    for (int i = 0; g->decode != NULL && i < g->n_decode; i++)
        if (g->decode[i].n_tokens >= n_seqs)
            return &g->decode[kind * g->n_decode + i];
    return NULL;
}
