/* coordinator/drafts/payoff.h - how many drafts of a draft model pay: by how often those at each place were right of
 * late, and by the time that making them takes. If none pay, drafting rests and is tried again after pauses that grow.
 * Pure. */
#ifndef DRAFTS_PAYOFF_H
#define DRAFTS_PAYOFF_H

#include "coordinator/drafts/costs.h"
#include "coordinator/drafts/guesses.h"

struct payoff {
    double chance[DRAFTS_MAX]; /* that the draft at this place is right if those before it were */
    int n_judged[DRAFTS_MAX];  /* drafts at this place that were judged, as far as they are counted */
    struct costs rounds;       /* how long making so many drafts takes, for all sequences together */
    int pause, rest;           /* steps of the last pause; steps without drafts that are left of it */
};

void payoff_open(struct payoff *p);

/* The first n_right of n drafts of a sequence were right. */
void payoff_judge(struct payoff *p, int n, int n_right);

/* A step for which nothing is chosen: it counts as one of the pause. */
void payoff_pass(struct payoff *p);

/* The number of drafts, at most `most`, of each of n_drafted sequences with which a step of n_decodes is expected to
 * give the most tokens a second. Counts pauses: once for each step. */
int payoff_choose(struct payoff *p, const struct costs *steps, int n_decodes, int n_drafted, int most);

#endif
