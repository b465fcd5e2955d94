/* coordinator/schedule/drafter.h - a draft model's view of the sequences that run: its own KV blocks, and the drafts
 * that it makes before each step that verifies them (scheduler_drafter.c).
 *
 * A sequence has the same slot in both models. The draft model is fed the known tokens that are not in its blocks yet,
 * and samples the likeliest token under the request's own rules, which it is fed next: one round per draft. Keys of
 * wrong drafts are overwritten when the actual tokens are fed. A sequence has no drafts while blocks are short. For the
 * scheduler only. */
#ifndef SCHEDULE_DRAFTER_H
#define SCHEDULE_DRAFTER_H

#include "coordinator/drafts/payoff.h"
#include "coordinator/schedule/blocks.h"

#include <stdbool.h>
#include <stdint.h>

/* A sequence that runs. */
struct drafted {
    bool begun;           /* the draft model knows it */
    int n_blocks, *block; /* held blocks; room for draft_len tokens */
    int n_told;           /* the part of these that the draft model knows */
    int n_shared;         /* blocks of these in the prefix cache, or equal to one there */
    uint64_t chain;       /* name of the last of them */
    int n_fed;            /* tokens of prompt and output whose keys it has */
    int n_wanted;         /* drafts of the next step */
    int n_planned;        /* drafts sampled by plans made so far */
    int n_made;           /* drafts whose results have arrived */
    bool handed_out;      /* the next step takes these drafts, or none */
    int first;            /* tokens known when they were made */
    int n_ahead;          /* drafts that were fed after these tokens */
    int32_t draft[DRAFTS_MAX];
};

struct drafter {
    struct blocks blocks;
    struct drafted *slot; /* [max_seqs]; NULL: there is no draft model */
    bool drafting;        /* rounds are being planned, or their results awaited */
    int round, n_rounds;
    int n_under_way; /* plans that sample drafts, and whose results are awaited */
    bool measured;   /* no prompt is fed in these rounds, so their time counts */
    double began;
    struct drafter_flight { /* the slots that an outstanding plan samples */
        int n, *slot;       /* [n], capacity max_seqs */
    } flight[2];            /* SCHEDULER_FLIGHTS */
    struct payoff payoff;
};

#endif
