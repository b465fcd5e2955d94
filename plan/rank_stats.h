/* plan/rank_stats.h - every rank's measurements of its steps, as they arrive on rank 0. Flat, without MPI:
 * coordinator/ may include this. A value that was not measured is absent: its number of steps is 0, its mean is NAN. */
#ifndef PLAN_RANK_STATS_H
#define PLAN_RANK_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* Sums over steps. On CPU ranks every step is timed, by the host's clock. On GPUs about one step per second is timed,
 * by the device's clock; the time within collectives is known only if that step ran as separate operations without a
 * graph (as prompts do; decode steps do not, since clocks within a graph would slow all of them). */
struct rank_stats {
    char host[64];
    int32_t pid;
    uint64_t n_steps;  /* all steps with tokens */
    uint64_t n_late;   /* steps whose masks arrived while they were under way */
    uint64_t n_waited; /* the part of these in which the device had to wait for the masks */
    uint64_t digest;   /* digest of all sampled tokens: equal on all ranks of a replica after the same step */
    uint64_t n_timed;
    double step_seconds;       /* time of the timed steps */
    uint64_t n_parted;         /* timed steps whose time within collectives is known */
    double parted_seconds;     /* their time, */
    double all_reduce_seconds; /* their time within all-reduces, waiting for the slowest rank included, */
    double all_gather_seconds; /* and their time within the all-gather of logits */
    double joules;             /* used by the rank's device since the model was ready; NAN: unknown (CPUs, MIG) */
    bool joules_integrated;    /* integrated from power, since there is no counter: accurate to a few per cent */
};

struct rank_report {
    int n_ranks;
    const struct rank_stats *total;  /* [n_ranks] since the start */
    const struct rank_stats *recent; /* [n_ranks] since the report before */
    int slowest; /* the rank that computed longest in recent steps, outside of collectives; -1: unknown, or one rank */
};

/* Means over steps, in seconds; NAN: not measured. */
double rank_stats_step(const struct rank_stats *s);
double rank_stats_all_reduce(const struct rank_stats *s);
/* The time outside of all-reduces and the all-gather: the rank's own work. */
double rank_stats_compute(const struct rank_stats *s);

/* The sum over all ranks; NAN: the energy of some rank is unknown. */
double rank_stats_joules(const struct rank_stats *s, int n_ranks);

/* The rank with the longest own work; -1 with fewer than two ranks, or if that of one is unknown. */
int rank_stats_slowest(const struct rank_stats *s, int n_ranks);

/* Adds a sampled token to the digest. */
void rank_stats_digest(struct rank_stats *s, int slot, int token);

/* The lowest rank whose tokens differ from those of the majority; without a majority, from those of rank 0, and *known
 * is false: it is not known which ranks are wrong. -1: all agree. */
int rank_stats_diverged(const struct rank_stats *s, int n_ranks, bool *known);

/* The difference of two snapshots of the same rank. */
struct rank_stats rank_stats_since(const struct rank_stats *now, const struct rank_stats *before);

#endif
