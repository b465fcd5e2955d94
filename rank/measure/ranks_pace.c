/* rank/measure/ranks_pace.c - see ranks_pace.h. */
#include "rank/measure/ranks_pace.h"
#include "base/clock.h"
#include "base/log.h"
#include "partition/pace.h"
#include "rank/world/fatal.h"

#include <math.h>

#define N_PASSES   4
#define N_SUMS     8 /* of a pass, queued one after the other as in a step */
#define N_READS    3
#define MOST_BYTES ((size_t)256 << 20) /* of a read */
#define LINE_BYTES 400

/* A sum of one token's activations, in the best of some passes. The buffer holds no results yet. */
static double measure_sum(struct engine *g)
{
    double best = INFINITY;
    for (int pass = 0; pass < N_PASSES; pass++) {
        g->ops->wait(g->q);
        MPI_CHECK(MPI_Barrier(g->world->comm));
        double started = seconds_now();
        for (int i = 0; i < N_SUMS; i++)
            g->comm.ops->all_reduce(&g->comm, g->q, g->act.partial, (size_t)g->network->config.hidden);
        g->ops->wait(g->q);
        best = fmin(best, (seconds_now() - started) / N_SUMS);
    }
    return best;
}

/* Bytes per second of the largest weights, in the best of some passes in which all ranks read. */
static double measure_read(struct engine *g)
{
    const struct network *n = g->network;
    size_t bytes = 0;
    const void *data = NULL;
    double best = 0;
    for (int i = 0; i < n->map.n_slots; i++)
        if (n->weight[i].data != NULL && weight_slot_bytes(&n->map.slot[i]) > bytes) {
            bytes = weight_slot_bytes(&n->map.slot[i]);
            data = n->weight[i].data;
        }
    bytes = (bytes < MOST_BYTES ? bytes : MOST_BYTES) / 64 * 64;
    for (int i = 0; i < N_READS; i++) {
        MPI_CHECK(MPI_Barrier(g->world->comm));
        double started = seconds_now();
        volatile uint64_t sink = bytes > 0 ? g->ops->read_stream(g->q, data, bytes) : 0;
        (void)sink;
        best = fmax(best, (double)bytes / (seconds_now() - started));
    }
    return best;
}

void ranks_pace_say(struct engine *g, int n_ranks, bool advise)
{
    const struct model_config *m = &g->network->config;
    struct rank_pace choice[PACE_MAX_CHOICES];
    struct err e = {0};
    if (m->experts.routing.n_experts == 0 || g->world->n_ranks < 2)
        return;
    double cost[2] = {measure_sum(g), -measure_read(g)};
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, cost, 2, MPI_DOUBLE, MPI_MAX, g->world->comm)); /* the slowest rank's */
    const struct pace_costs costs = {.bytes_per_second = -cost[1], .sum_seconds = cost[0], .measured = true};
    int n = g->world->rank == 0 ? pace_choices(choice, m, n_ranks, &costs, &e) : 0;
    if (n < 1)
        return;
    char line[LINE_BYTES];
    pace_describe(choice, n, g->world->n_ranks, &costs, line, sizeof line);
    log_info("%s", line);
    if (advise && pace_advise(choice, n, g->world->n_ranks, line, sizeof line))
        log_note("%s", line);
}
