/* coordinator/batch/ramp.h - the number of requests that may run before the walltime: a run begins with one request for
 * each replica, and goes on to as many as would end in time at the speed that was measured until then. Pure; times in
 * seconds.
 *
 * Were everything begun at once, a first wave that is longer than the walltime would be cut whole, in every run anew. A
 * token costs less the more sequences there are in a step, so what is measured with few of them is a bound for many.
 * Tokens are measured from the first steps on: where the walltime is far away, a run has all that replicas hold within
 * a few steps. */
#ifndef BATCH_RAMP_H
#define BATCH_RAMP_H

#include <stdbool.h>
#include <stdint.h>

/* The demand of a line on a replica. */
struct ramp_work {
    double n_prompt, n_output; /* tokens: of its prompts; that all its sequences may get */
};

/* Since the start: of all replicas together, but seconds of steps are the mean of the replicas. */
struct ramp_counts {
    double n_prompt, n_output, seconds;
};

struct ramp {
    int n_replicas, n_open;        /* n_open: lines under way */
    struct ramp_work open;         /* of these */
    double n_ended;                /* output tokens of lines that are over */
    struct ramp_counts now;        /* as last told */
    struct ramp_counts before;     /* when a token was last measured */
    double per_prompt, per_output; /* seconds a token; 0: not known */
};

void ramp_open(struct ramp *r, int n_replicas);

/* The work that the replicas have done so far. */
void ramp_learn(struct ramp *r, const struct ramp_counts *now);

/* May this line begin beside those under way? share: of n_output that sequences are expected to use; left: until all
 * has to be over. A line for each replica always may: whether it fits by itself is said by pace.h. */
bool ramp_allows(const struct ramp *r, const struct ramp_work *w, double share, double left);

/* Work has begun; work has ended, with this many output tokens. */
void ramp_begin(struct ramp *r, const struct ramp_work *w);
void ramp_end(struct ramp *r, const struct ramp_work *w, double n_output);

#endif
