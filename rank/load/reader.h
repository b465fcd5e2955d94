/* rank/load/reader.h - threads that prefetch a rank's blocks of the checkpoint, in order, into a ring of slots. Local:
 * knows neither MPI nor a device. */
#ifndef LOAD_READER_H
#define LOAD_READER_H

#include "base/err.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"

#include <pthread.h>
#include <stdbool.h>

#define READER_MIN_SLOTS   4 /* two rounds are copied while two more are read */
#define READER_MAX_SLOTS   64
#define READER_MAX_THREADS 64

struct reader_setup {
    const struct checkpoint *c; /* borrowed until reader_close, as the plan is */
    const struct read_plan *plan;
    int first, stride;                      /* blocks first, first + stride, ... of the plan are read */
    int n_slots;                            /* READER_MIN_SLOTS .. READER_MAX_SLOTS */
    unsigned char *bytes[READER_MAX_SLOTS]; /* [n_slots] memory for plan->max_block_bytes each */
    _Atomic int
        *ready; /* [n_slots] the last complete block in each; -1 at the start. Publishes the block's bytes (release) */
    int n_threads;
    size_t piece_bytes; /* bytes that a thread reads at a time if there are several; a single thread reads whole
                           blocks */
    /* s of polling before a thread sleeps, since waking it takes longer than reading a piece */
    double spin;
};

struct reader {
    const struct checkpoint *c; /* borrowed */
    const struct read_plan *plan;
    int first, stride, n; /* block k of this reader, k < n, is block first + k * stride of the plan */
    struct reader_slot {
        unsigned char *bytes; /* borrowed: where blocks k, k + n_slots, ... go */
        size_t left;          /* missing bytes of the next block */
    } slot[READER_MAX_SLOTS];
    _Atomic int *ready; /* [n_slots] borrowed */
    int n_slots;
    size_t piece_bytes;
    double spin;
    pthread_mutex_t lock; /* for writing the members below and the slots' state; _Atomic members are read without it */
    pthread_cond_t room, done;
    int next;             /* the block of which pieces are handed out */
    size_t next_at;       /* bytes of it that have been handed out */
    _Atomic int released; /* blocks before this one are no longer needed */
    _Atomic bool stop;    /* no further pieces: a failure, or the end */
    struct err err;
    uint64_t bytes_read;
    pthread_t thread[READER_MAX_THREADS];
    int n_threads;
};

/* Start reading. */
int reader_open(struct reader *r, const struct reader_setup *setup, struct err *e);

/* Wait until block k is in slot k % n_slots. Fails with what went wrong, file and byte. */
int reader_wait(struct reader *r, int k, struct err *e);

/* Blocks before k may be overwritten. */
void reader_release(struct reader *r, int k);

/* Ends the threads, at once. Accepts a zeroed reader. */
void reader_close(struct reader *r);

#endif
