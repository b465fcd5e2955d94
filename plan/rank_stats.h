/* plan/rank_stats.h - every rank's measurements of its steps, as they arrive on rank 0. Flat, without MPI:
 * coordinator/ may include this. A value that was not measured is absent: its number of steps is 0, its mean is NAN. */
#ifndef PLAN_RANK_STATS_H
#define PLAN_RANK_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* Sums over steps. On CPU ranks every step is timed, by the host's clock. On GPUs a sample is, by the device's clock:
 * about one step a second; and of these, time within collectives only where the step ran as separate operations without
 * a graph (prompts do, decode steps do not: clocks within a graph would slow all of them). */
struct rank_stats {
    char host[64];
    int32_t pid;
    uint64_t n_steps;  /* with tokens; all of them */
    uint64_t n_late;   /* of them, those whose masks came while they were under way, */
    uint64_t n_waited; /* and of these, those in which the device had to wait for the masks */
    uint64_t digest;   /* of all tokens that it sampled: equal on all ranks of a replica, after the same step */
    uint64_t n_timed;
    double step_seconds;       /* of the timed ones */
    uint64_t n_parted;         /* timed ones whose time within collectives is known */
    double parted_seconds;     /* of these: whole, */
    double all_reduce_seconds; /* within all-reduces: waiting for the slowest rank, and the exchange, */
    double all_gather_seconds; /* and within the all-gather of logits */
    double joules;             /* that its device has used since the model was ready; NAN: not known (CPUs, MIG) */
    bool joules_integrated;    /* from its power, for want of a counter: good to a few per cent */
};

struct rank_report {
    int n_ranks;
    const struct rank_stats *total;  /* [n_ranks] since the start */
    const struct rank_stats *recent; /* [n_ranks] since the report before */
    int slowest; /* the rank that computed longest in the recent steps, outside collectives; -1: not known, or alone */
};

/* Means over steps, in seconds; NAN: not measured. */
double rank_stats_step(const struct rank_stats *s);
double rank_stats_all_reduce(const struct rank_stats *s);
/* The time outside of all-reduces and the all-gather: the rank's own work. */
double rank_stats_compute(const struct rank_stats *s);

/* The sum over all ranks; NAN: one does not know its own. */
double rank_stats_joules(const struct rank_stats *s, int n_ranks);

/* The rank with the longest own work; -1 when there are fewer than two, or one does not know. */
int rank_stats_slowest(const struct rank_stats *s, int n_ranks);

/* Into the digest: a token that was sampled. */
void rank_stats_digest(struct rank_stats *s, int slot, int token);

/* The lowest rank whose tokens are not those of most ranks; where no majority is, not those of rank 0, and *known is
 * false: nobody can tell which of them are wrong. -1: all agree. */
int rank_stats_diverged(const struct rank_stats *s, int n_ranks, bool *known);

/* The difference of two snapshots of the same rank. */
struct rank_stats rank_stats_since(const struct rank_stats *now, const struct rank_stats *before);

#endif
