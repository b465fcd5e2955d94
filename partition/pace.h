/* partition/pace.h - the best number of ranks for a decode step of one sequence: with more ranks each one reads fewer
 * weights, but they wait for sums. */
#ifndef PARTITION_PACE_H
#define PARTITION_PACE_H

#include "partition/model.h"

#define PACE_MAX_CHOICES 32

struct pace_costs {
    double bytes_per_second; /* bytes per second that a rank reads */
    double sum_seconds;      /* seconds of a sum over ranks, whatever their number */
    bool measured;           /* otherwise assumed */
};

/* One choice. */
struct rank_pace {
    int n_ranks, n_sums;
    double bytes; /* bytes that the slowest rank reads on average if experts are chosen equally often */
    double seconds;
};

/* Fill `choice` with every number of ranks that divides n_ranks, the smallest first, PACE_MAX_CHOICES at most. Returns
 * their number, or -1 and *e. */
int pace_choices(struct rank_pace *choice, const struct model_config *m, int n_ranks, const struct pace_costs *costs,
                 struct err *e);

/* The index of the fastest choice; of equally fast ones the smallest. */
int pace_fastest(const struct rank_pace *choice, int n);

/* One line that compares the choice of `mine` ranks with the fastest one, with all figures. */
void pace_describe(const struct rank_pace *choice, int n, int mine, const struct pace_costs *costs, char *text,
                   size_t bytes);

/* Whether another choice is estimated to be clearly faster than that of `mine` ranks: then a line recommends it. */
bool pace_advise(const struct rank_pace *choice, int n, int mine, char *text, size_t bytes);

/* The expected maximum, over n_ranks ranks that hold whole experts, of the experts that a rank has to read if n_chosen
 * of n_experts are chosen at random. */
double pace_most_experts(int n_experts, int n_chosen, int n_ranks);

#endif
