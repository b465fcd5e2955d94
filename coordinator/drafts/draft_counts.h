/* coordinator/drafts/draft_counts.h - what became of the drafts of a request. Pure. */
#ifndef DRAFTS_DRAFT_COUNTS_H
#define DRAFTS_DRAFT_COUNTS_H

#include "coordinator/drafts/guesses.h"

struct draft_counts {
    int n_places;              /* drafts of a sequence and step at most; 0: none are made */
    int64_t n_steps, n_tokens; /* times that a step verified drafts of a sequence, and those tokens */
    int64_t
        n_accepted[DRAFTS_MAX]; /* drafts that were right and taken, by their place: no more than at the one before */
};

void draft_counts_add(struct draft_counts *sum, const struct draft_counts *c);
/* Drafts that were right and taken, at all places. */
int64_t draft_counts_accepted(const struct draft_counts *c);

#endif
