/* coordinator/batch/ramp.c - see ramp.h. */
#include "coordinator/batch/ramp.h"

#include <math.h>

/* The part of the remaining time that running requests may need, with a margin in case the machine becomes slower. In
 * steady state running lines are half done on average, and this no longer limits anything. */
#define PART 0.5
/* The same for more than twice as many requests as the speed was measured with. */
#define PART_UNMEASURED 0.05

void ramp_open(struct ramp *r, int n_replicas)
{
    *r = (struct ramp){.n_replicas = n_replicas};
}

/* All time is attributed to outputs, which is too much if prompts were fed, too: such a period may only lower the
 * estimate, and does not count as a measurement of more requests. A prompt token is assumed to cost as much as the mean
 * of all tokens. */
void ramp_learn(struct ramp *r, const struct ramp_counts *now)
{
    double n_prompt = now->n_prompt - r->before.n_prompt, n_output = now->n_output - r->before.n_output;
    double seconds = now->seconds - r->before.seconds;
    r->now = *now;
    if (n_output <= 0 || seconds <= 0)
        return;
    double per_output = seconds / n_output;
    r->per_output = n_prompt > 0 && r->per_output > 0 ? fmin(r->per_output, per_output) : per_output;
    if (n_prompt > 0)
        r->per_prompt = seconds / (n_prompt + n_output);
    else
        r->n_measured = r->n_open_before;
    r->before = *now;
    r->n_open_before = r->n_open;
}

bool ramp_allows(const struct ramp *r, const struct ramp_work *w, double share, double left)
{
    if (r->n_open < r->n_replicas)
        return true;
    double part = r->n_open < 2 * r->n_measured ? PART : PART_UNMEASURED;
    double n_prompt = r->open.n_prompt + w->n_prompt;
    double n_output = share * (r->open.n_output + w->n_output) - (r->now.n_output - r->n_ended);
    return r->per_output > 0 && n_prompt * r->per_prompt + fmax(n_output, 0) * r->per_output <= part * left;
}

void ramp_begin(struct ramp *r, const struct ramp_work *w)
{
    r->n_open++;
    r->open.n_prompt += w->n_prompt;
    r->open.n_output += w->n_output;
}

void ramp_end(struct ramp *r, const struct ramp_work *w, double n_output)
{
    r->n_open--;
    r->open.n_prompt -= w->n_prompt;
    r->open.n_output -= w->n_output;
    r->n_ended += n_output;
}
