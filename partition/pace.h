/* partition/pace.h - how many ranks had best share a model, for a decode step of one sequence: every rank reads its
 * share of the weights, and more ranks read less each but wait for sums. */
#ifndef PARTITION_PACE_H
#define PARTITION_PACE_H

#include "partition/model.h"

#define PACE_MAX_CHOICES 32

struct pace_costs {
    double bytes_per_second; /* that a rank reads */
    double sum_seconds;      /* of a sum over ranks, however many they are */
    bool measured;           /* or assumed */
};

/* One choice. */
struct rank_pace {
    int n_ranks, n_sums;
    double bytes; /* that the slowest rank reads on average, if experts are chosen equally often */
    double seconds;
};

/* Fill `choice` with every number of ranks that divides n_ranks, the smallest first, PACE_MAX_CHOICES at most. Returns
 * their number, or -1 and *e. */
int pace_choices(struct rank_pace *choice, const struct model_config *m, int n_ranks, const struct pace_costs *costs,
                 struct err *e);

/* The index of the fastest one, of equal ones the smallest. */
int pace_fastest(const struct rank_pace *choice, int n);

/* One line that compares the choice of `mine` ranks with the fastest one, with all figures. */
void pace_describe(const struct rank_pace *choice, int n, int mine, const struct pace_costs *costs, char *text,
                   size_t bytes);

/* The mean of the most experts that one of n_ranks ranks has to read if n_chosen of n_experts, which are dealt whole,
 * are chosen at random. */
double pace_most_experts(int n_experts, int n_chosen, int n_ranks);

#endif
