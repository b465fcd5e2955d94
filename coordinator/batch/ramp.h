/* coordinator/batch/ramp.h - limits the number of running requests before a walltime: a run begins with one request per
 * replica, and then runs as many as would end in time at the speed measured so far. Pure; times in seconds. If all
 * requests started at once, a first wave that is longer than the walltime would be cut completely, in every run. A
 * token costs less the more sequences a step has, so a measurement with few sequences is an upper bound for many. But
 * it is a measurement of a moment, and other programs may slow the machine down in the next: unless the walltime is far
 * away, the number of running requests at most doubles from one measurement to the next. */
#ifndef BATCH_RAMP_H
#define BATCH_RAMP_H

#include <stdbool.h>
#include <stdint.h>

/* The demand of a line on a replica. */
struct ramp_work {
    double n_prompt, n_output; /* tokens of its prompts, and the most that all its sequences may generate */
};

/* Totals since the start over all replicas; seconds of steps are the mean of the replicas. */
struct ramp_counts {
    double n_prompt, n_output, seconds;
};

struct ramp {
    int n_replicas, n_open;        /* n_open: lines under way */
    struct ramp_work open;         /* their demand */
    double n_ended;                /* output tokens of finished lines */
    struct ramp_counts now;        /* as reported last */
    struct ramp_counts before;     /* when a token was last measured */
    int n_open_before;             /* lines under way then */
    int n_measured;                /* lines that the last measurement without prompts began with */
    double per_prompt, per_output; /* seconds a token; 0: not known */
};

void ramp_open(struct ramp *r, int n_replicas);

/* Reports the work that the replicas have done so far. */
void ramp_learn(struct ramp *r, const struct ramp_counts *now);

/* May this line begin beside those under way? share: the expected used part of n_output; left: seconds until the end.
 * One line per replica may always begin; pace.h judges whether it fits by itself. */
bool ramp_allows(const struct ramp *r, const struct ramp_work *w, double share, double left);

/* A line has begun; a line has ended, with this many output tokens. */
void ramp_begin(struct ramp *r, const struct ramp_work *w);
void ramp_end(struct ramp *r, const struct ramp_work *w, double n_output);

#endif
