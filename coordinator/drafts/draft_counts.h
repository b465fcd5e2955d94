/* coordinator/drafts/draft_counts.h - the outcome of a request's drafts. Pure. */
#ifndef DRAFTS_DRAFT_COUNTS_H
#define DRAFTS_DRAFT_COUNTS_H

#include "coordinator/drafts/guesses.h"

struct draft_counts {
    int n_places;                   /* limit of drafts per sequence and step; 0: no drafts */
    int64_t n_steps, n_tokens;      /* number of times that a step verified drafts of a sequence, and of these drafts */
    int64_t n_accepted[DRAFTS_MAX]; /* accepted drafts by position: never more than at the previous one */
};

void draft_counts_add(struct draft_counts *sum, const struct draft_counts *c);
/* Accepted drafts at all positions. */
int64_t draft_counts_accepted(const struct draft_counts *c);

#endif
