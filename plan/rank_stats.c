/* plan/rank_stats.c - see rank_stats.h. */
#include "plan/rank_stats.h"

#include <math.h>

static double mean(double seconds, uint64_t n)
{
    return n > 0 ? seconds / (double)n : NAN;
}

double rank_stats_step(const struct rank_stats *s)
{
    return mean(s->step_seconds, s->n_timed);
}

double rank_stats_all_reduce(const struct rank_stats *s)
{
    return mean(s->all_reduce_seconds, s->n_parted);
}

double rank_stats_compute(const struct rank_stats *s)
{
    return mean(s->parted_seconds - s->all_reduce_seconds - s->all_gather_seconds, s->n_parted);
}

double rank_stats_joules(const struct rank_stats *s, int n_ranks)
{
    double sum = 0;
    for (int r = 0; r < n_ranks; r++)
        sum += s[r].joules;
    return sum;
}

int rank_stats_slowest(const struct rank_stats *s, int n_ranks)
{
    int slowest = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (s[r].n_parted == 0)
            return -1;
        if (rank_stats_compute(&s[r]) > rank_stats_compute(&s[slowest]))
            slowest = r;
    }
    return n_ranks > 1 ? slowest : -1;
}

struct rank_stats rank_stats_since(const struct rank_stats *now, const struct rank_stats *before)
{
    struct rank_stats s = *now;
    s.n_steps -= before->n_steps;
    s.n_late -= before->n_late;
    s.n_waited -= before->n_waited;
    s.n_timed -= before->n_timed;
    s.step_seconds -= before->step_seconds;
    s.n_parted -= before->n_parted;
    s.parted_seconds -= before->parted_seconds;
    s.all_reduce_seconds -= before->all_reduce_seconds;
    s.all_gather_seconds -= before->all_gather_seconds;
    s.joules -= before->joules;
    return s;
}

/* FNV-1a, one number at a time. */
void rank_stats_digest(struct rank_stats *s, int slot, int token)
{
    s->digest = (s->digest ^ (uint32_t)slot) * 1099511628211u;
    s->digest = (s->digest ^ (uint32_t)token) * 1099511628211u;
}

static int n_like(const struct rank_stats *s, int n_ranks, int rank)
{
    int n = 0;
    for (int r = 0; r < n_ranks; r++)
        n += s[r].digest == s[rank].digest;
    return n;
}

int rank_stats_diverged(const struct rank_stats *s, int n_ranks, bool *known)
{
    int norm = 0;
    for (int r = 0; r < n_ranks; r++)
        if (2 * n_like(s, n_ranks, r) > n_ranks)
            norm = r;
    *known = 2 * n_like(s, n_ranks, norm) > n_ranks;
    for (int r = 0; r < n_ranks; r++)
        if (s[r].digest != s[norm].digest)
            return r;
    return -1;
}
