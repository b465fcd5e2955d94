/* commands/bench/windows.h - the blocks of windowed layers that the sequences of a batch hold, where layers have two
 * kinds of blocks. Rank 0. */
#ifndef BENCH_WINDOWS_H
#define BENCH_WINDOWS_H

#include "coordinator/schedule/scheduler.h"

struct windows {
    struct limits limits; /* limits_kinds is 1: there is nothing to do */
    struct blocks blocks;
    struct window_held {
        int begin, end;
    } * held;   /* [max_seqs] positions in the sequence */
    int *block; /* [max_seqs, blocks per slot] */
};

/* The number of blocks with which n_seqs sequences can feed anything that fits into a step. */
int64_t windows_needed(const struct limits *l, int n_seqs);

/* close is safe on a zeroed struct. */
int windows_open(struct windows *w, const struct limits *l, struct err *e);
void windows_close(struct windows *w);

/* The sequence feeds n tokens from pos on: frees blocks that it will not see again, and adds new ones to the plan. pos
 * 0: all are new. */
void windows_feed(struct windows *w, int seq, int pos, int n, struct plan *p);

#endif
