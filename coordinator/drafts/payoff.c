/* coordinator/drafts/payoff.c - see payoff.h. */
#include "coordinator/drafts/payoff.h"

#define FIRST     0.7  /* chance of a draft before anything is known, worth as much as */
#define WORTH     2    /* results */
#define SHARE     0.05 /* weight of a new result: about the last twenty count */
#define PAUSE     16   /* steps of the first pause */
#define PAUSE_MAX 512

void payoff_open(struct payoff *p)
{
    *p = (struct payoff){.pause = 0};
    for (int i = 0; i < DRAFTS_MAX; i++)
        p->chance[i] = FIRST;
}

void payoff_judge(struct payoff *p, int n, int n_right)
{
    for (int i = 0; i < n && i <= n_right; i++) {
        double share = 1.0 / (1 + WORTH + p->n_judged[i]);
        p->n_judged[i] += share > SHARE;
        p->chance[i] += (share > SHARE ? share : SHARE) * ((i < n_right) - p->chance[i]);
    }
}

/* Unknown times count as 0, so that drafts are tried. */
static double rounds_seconds(const struct payoff *p, int n)
{
    return p->rounds.now > 0 ? costs_seconds(&p->rounds, n) : 0;
}

static int fastest_number(const struct payoff *p, const struct costs *steps, int n_decodes, int n_drafted, int most)
{
    double tokens = n_decodes, chance = 1, speed = tokens / costs_seconds(steps, n_decodes);
    int best = 0;
    for (int n = 1; n <= most; n++) {
        chance *= p->chance[n - 1];
        tokens += n_drafted * chance;
        double now = tokens / (costs_seconds(steps, n_decodes + n * n_drafted) + rounds_seconds(p, n));
        if (now > speed) {
            speed = now;
            best = n;
        }
    }
    return best;
}

void payoff_pass(struct payoff *p)
{
    p->rest -= p->rest > 1; /* at the last one it is tried again */
}

int payoff_choose(struct payoff *p, const struct costs *steps, int n_decodes, int n_drafted, int most)
{
    if (!costs_known(steps, n_decodes))
        return 0; /* the next step is without drafts, and measured */
    if (p->rest > 0)
        return --p->rest == 0 ? 1 : 0;
    int best = fastest_number(p, steps, n_decodes, n_drafted, most);
    p->pause = best > 0 ? 0 : p->pause == 0 ? PAUSE : p->pause < PAUSE_MAX ? 2 * p->pause : PAUSE_MAX;
    p->rest = p->pause;
    return best;
}
