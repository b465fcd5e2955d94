/* coordinator/drafts/draft_counts.c - see draft_counts.h. */
#include "coordinator/drafts/draft_counts.h"

void draft_counts_add(struct draft_counts *sum, const struct draft_counts *c)
{
    sum->n_places = c->n_places > sum->n_places ? c->n_places : sum->n_places;
    sum->n_steps += c->n_steps;
    sum->n_tokens += c->n_tokens;
    for (int i = 0; i < DRAFTS_MAX; i++)
        sum->n_accepted[i] += c->n_accepted[i];
}

int64_t draft_counts_accepted(const struct draft_counts *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_places; i++)
        n += c->n_accepted[i];
    return n;
}
