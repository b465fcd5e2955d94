/* rank/reader.h - threads that read a rank's blocks of the checkpoint, in order and ahead of their use, into a ring of
 * slots. Local: knows neither MPI nor a device. */
#ifndef RANK_READER_H
#define RANK_READER_H

#include "base/err.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"

#include <pthread.h>
#include <stdbool.h>

#define READER_SLOTS       4 /* two rounds are copied out of while two more are read */
#define READER_MAX_THREADS 16

struct reader {
    const struct checkpoint *c; /* borrowed */
    const struct read_plan *plan;
    int first, stride, n; /* block k of this reader, k < n, is block first + k * stride of the plan */
    struct reader_slot {
        unsigned char *bytes; /* borrowed: where blocks k, k + READER_SLOTS, ... go */
        int fd, file;         /* open for this slot; -1: none */
        int ready;            /* the last block that is whole; -1: none */
        size_t left;          /* bytes of the next one that are still to come */
    } slot[READER_SLOTS];
    pthread_mutex_t lock; /* of all that follows, and of the slots' state */
    pthread_cond_t room, done;
    int next;       /* the block of which pieces are handed out */
    size_t next_at; /* bytes of it that have been handed out */
    int released;   /* blocks before this one are no longer needed */
    bool stop;      /* no more pieces: a failure, or the end */
    struct err err;
    uint64_t bytes_read;
    pthread_t thread[READER_MAX_THREADS];
    int n_threads;
};

/* Start reading blocks first, first + stride, ... with n_threads threads (one: whole blocks, more: pieces of 1 MiB). bytes:
 * memory for plan->max_block_bytes in every slot. c and plan are borrowed until reader_close. */
int reader_open(struct reader *r, const struct checkpoint *c, const struct read_plan *plan, int first, int stride,
                unsigned char *const bytes[READER_SLOTS], int n_threads, struct err *e);

/* Wait until block k lies in slot k % READER_SLOTS. Fails with what went wrong, file and byte. */
int reader_wait(struct reader *r, int k, struct err *e);

/* Blocks before k may be overwritten. */
void reader_release(struct reader *r, int k);

/* Ends the threads, at once. Accepts a zeroed reader. */
void reader_close(struct reader *r);

#endif
