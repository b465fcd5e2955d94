/* rank/load/block_file.h - reads blocks of a read plan, or parts of them, for one thread. Local: knows neither MPI nor
 * a device. */
#ifndef LOAD_BLOCK_FILE_H
#define LOAD_BLOCK_FILE_H

#include "base/err.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"

/* Every thread opens the files for itself: each request changes the reference count of the open file, so threads that
 * share one slow each other down. Requests of 2 KiB by 60 threads took 6 us with one open file, 1.2 us with one
 * each. */
struct block_file {
    const struct checkpoint *c; /* borrowed */
    int fd, file;               /* open; -1: none */
};

void block_file_init(struct block_file *f, const struct checkpoint *c);

/* Read `bytes` bytes from byte `at` of the block on, dense in memory: one request, or one per row.
 * Fails with what went wrong, file and byte. */
int block_file_read(struct block_file *f, const struct read_block *b, size_t at, size_t bytes, unsigned char *to,
                    struct err *e);

void block_file_close(struct block_file *f);

#endif
