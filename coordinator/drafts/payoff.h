/* coordinator/drafts/payoff.h - decides how many drafts of a draft model pay, by their recent acceptance at each
 * position and by the time to make them. If none pay, drafting rests and is tried again after pauses that grow.
 * Pure. */
#ifndef DRAFTS_PAYOFF_H
#define DRAFTS_PAYOFF_H

#include "coordinator/drafts/costs.h"
#include "coordinator/drafts/guesses.h"

struct payoff {
    double chance[DRAFTS_MAX]; /* chance that the draft at this position is right if those before it were */
    int n_judged[DRAFTS_MAX];  /* number of verified drafts at this position, as far as counted */
    struct costs rounds;       /* time to make this many drafts for all sequences together */
    int pause, rest;           /* steps of the last pause; remaining steps of it */
};

void payoff_open(struct payoff *p);

/* The first n_right of n drafts of a sequence were right. */
void payoff_judge(struct payoff *p, int n, int n_right);

/* Counts a step without a choice as one of the pause. */
void payoff_pass(struct payoff *p);

/* The number of drafts, at most `most`, for each of n_drafted sequences with which a step of n_decodes sequences is
 * expected to give the most tokens per second. Counts pauses, so it is called once per step. */
int payoff_choose(struct payoff *p, const struct costs *steps, int n_decodes, int n_drafted, int most);

#endif
