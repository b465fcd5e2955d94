/* partition/pace.c - see pace.h. */
#include "partition/pace.h"
#include "partition/weights.h"

#include <math.h>
#include <stdio.h>

#define CLEAR 0.8 /* a choice is clearly faster if it takes at most this share of another one's time */

/* The number of ways to choose k of n. */
static double ways(int n, int k)
{
    double all = k <= n ? 1 : 0;
    for (int i = 0; i < k && i < n; i++)
        all *= (double)(n - i) / (i + 1);
    return all;
}

/* The share of all choices in which no rank has more than `most` chosen experts, computed rank by rank. */
static double none_above(int n_experts, int n_chosen, int n_ranks, int most)
{
    double so_far[ROUTING_MAX_EXPERTS + 1] = {1};
    for (int r = 0; r < n_ranks; r++) {
        int mine = range_length(shard_units(n_experts, r, n_ranks));
        if (mine == 0)
            break;
        for (int k = n_chosen; k >= 0; k--) {
            double sum = 0;
            for (int i = 0; i <= most && i <= k && i <= mine; i++)
                sum += so_far[k - i] * ways(mine, i);
            so_far[k] = sum;
        }
    }
    return so_far[n_chosen] / ways(n_experts, n_chosen);
}

double pace_most_experts(int n_experts, int n_chosen, int n_ranks)
{
    double mean = 0;
    for (int most = 0; most < n_chosen; most++)
        mean += 1 - none_above(n_experts, n_chosen, n_ranks, most);
    return mean;
}

/* The bytes that a rank reads for one token. */
static int read_bytes(double *bytes, const struct model_config *m, int rank, int n_ranks, struct err *e)
{
    struct weight_map map = {0};
    struct shard s;
    double held = 0;
    shard_make(&s, m, rank, n_ranks);
    if (weight_map_build(&map, m, &s, NULL, e) != 0)
        return -1;
    weight_map_make_fp8(&map, m);
    *bytes = weight_map_step_bytes(&map, m, 1);
    for (int i = 0; i < map.n_slots; i++)
        if (weight_is_of_experts(map.slot[i].id))
            held += (double)weight_slot_bytes(&map.slot[i]);
    weight_map_free(&map);
    const struct routing *how = &m->experts.routing;
    if (m->whole_experts && range_length(s.experts) > 0) /* not the rank's own mean, but that of the rank with most
                                                            experts */
        *bytes += held * (pace_most_experts(how->n_experts, how->n_chosen, n_ranks) / range_length(s.experts) -
                          (double)how->n_chosen / how->n_experts);
    return 0;
}

int pace_choices(struct rank_pace *choice, const struct model_config *m, int n_ranks, const struct pace_costs *costs,
                 struct err *e)
{
    int n = 0;
    for (int size = 1; size <= n_ranks && n < PACE_MAX_CHOICES; size++) {
        double first, last;
        if (n_ranks % size != 0)
            continue;
        /* If units do not divide evenly, the first rank has one more than others, and the last one has the
         * remainder. */
        if (read_bytes(&first, m, 0, size, e) != 0 || read_bytes(&last, m, size - 1, size, e) != 0)
            return -1;
        struct rank_pace *p = &choice[n++];
        *p = (struct rank_pace){.n_ranks = size, .bytes = fmax(first, last)};
        p->n_sums = size > 1 ? 1 + m->n_layers * model_layer_sums(m) : 0;
        p->seconds = p->bytes / costs->bytes_per_second + p->n_sums * costs->sum_seconds;
    }
    return n;
}

int pace_fastest(const struct rank_pace *choice, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = choice[i].seconds < choice[best].seconds ? i : best;
    return best;
}

static const struct rank_pace *choice_of(const struct rank_pace *choice, int n, int n_ranks)
{
    for (int i = 0; i < n; i++)
        if (choice[i].n_ranks == n_ranks)
            return &choice[i];
    return &choice[pace_fastest(choice, n)];
}

bool pace_advise(const struct rank_pace *choice, int n, int mine, char *text, size_t bytes)
{
    const struct rank_pace *best = &choice[pace_fastest(choice, n)], *now = choice_of(choice, n, mine);
    if (best->seconds > CLEAR * now->seconds)
        return false;
    (void)snprintf(text, bytes,
                   "a single sequence would decode faster with --tensor-parallel %d, where a rank's memory allows: an "
                   "estimated %.3g ms a step for reading weights and for sums, instead of %.3g",
                   best->n_ranks, 1e3 * best->seconds, 1e3 * now->seconds);
    return true;
}

void pace_describe(const struct rank_pace *choice, int n, int mine, const struct pace_costs *costs, char *text,
                   size_t bytes)
{
    const struct rank_pace *best = &choice[pace_fastest(choice, n)], *now = choice_of(choice, n, mine);
    const char *known = costs->measured ? "measured" : "assumed";
    int used = snprintf(text, bytes,
                        "a decode step of one sequence with --tensor-parallel %d: %.1f MiB a rank and %d sums take "
                        "%.3f ms at %.1f GB/s and %.1f us a sum (%s)",
                        now->n_ranks, now->bytes / 1048576.0, now->n_sums, 1e3 * now->seconds,
                        costs->bytes_per_second / 1e9, 1e6 * costs->sum_seconds, known);
    if (used < 0 || (size_t)used >= bytes)
        return;
    if (now == best)
        (void)snprintf(text + used, bytes - (size_t)used, "; no smaller or larger number is faster");
    else
        (void)snprintf(text + used, bytes - (size_t)used,
                       "; --tensor-parallel %d would be faster, where a rank's memory allows: %.1f MiB, %d sums, "
                       "%.3f ms",
                       best->n_ranks, best->bytes / 1048576.0, best->n_sums, 1e3 * best->seconds);
}
