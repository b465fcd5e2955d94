/* coordinator/batch/pace.c - see pace.h. */
#include "coordinator/batch/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUANTILE 0.95
#define FEW      8  /* fewer samples do not determine the share of max_tokens that is used */
#define BATCH    32 /* samples between two updates of the estimate: sorting takes some 50 us */

void pace_open(struct pace *p)
{
    memset(p, 0, sizeof *p);
    p->stale = true;
}

void pace_learn(struct pace *p, const struct pace_sample *s)
{
    if (s->n_output < 1 || s->max_tokens < 1)
        return;
    uint64_t at = p->n_prefill++ % PACE_RECENT;
    p->prefill[at] = s->prefill;
    p->prompt[at] = (double)s->n_prompt;
    p->share[at] = (double)s->n_output / (double)s->max_tokens;
    if (s->n_output > 1)
        p->per_token[p->n_per_token++ % PACE_RECENT] = s->decode / (double)(s->n_output - 1);
    p->stale = p->stale || p->n_prefill <= BATCH || p->n_prefill % BATCH == 0;
}

void pace_steps(struct pace *p, uint64_t n_steps, double step_seconds, bool decode)
{
    if (n_steps <= p->n_steps)
        return;
    p->step = (step_seconds - p->step_seconds) / (double)(n_steps - p->n_steps);
    p->n_steps = n_steps;
    p->step_seconds = step_seconds;
    if (decode && (p->decode_step <= 0 || p->step < p->decode_step))
        p->decode_step = p->step;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile of the newest min(n, PACE_RECENT) values; 0: there are none. */
static double quantile(const double *ring, uint64_t n)
{
    double sorted[PACE_RECENT];
    size_t count = n < PACE_RECENT ? (size_t)n : PACE_RECENT;
    if (count == 0)
        return 0;
    memcpy(sorted, ring, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    size_t index = (size_t)ceil(QUANTILE * (double)count);
    return sorted[index > 0 ? index - 1 : 0];
}

static void renew(struct pace *p)
{
    p->estimate = (struct pace_estimate){.prefill = quantile(p->prefill, p->n_prefill),
                                         .prompt = quantile(p->prompt, p->n_prefill),
                                         .per_token = quantile(p->per_token, p->n_per_token),
                                         .share = p->n_prefill >= FEW ? quantile(p->share, p->n_prefill) : 1};
    p->stale = false;
}

double pace_share(struct pace *p)
{
    if (p->stale)
        renew(p);
    return p->estimate.share;
}

double pace_need(struct pace *p, int64_t n_prompt, int64_t max_tokens)
{
    if (p->stale)
        renew(p);
    const struct pace_estimate *x = &p->estimate;
    double longer = x->prompt > 0 ? (double)n_prompt / x->prompt : 1, first = p->n_prefill > 0 ? x->prefill : p->step;
    double per_token = p->n_per_token > 0 ? x->per_token : p->decode_step, n = ceil(x->share * (double)max_tokens);
    return first * (longer > 1 ? longer : 1) + (n > 1 ? n - 1 : 0) * per_token;
}
