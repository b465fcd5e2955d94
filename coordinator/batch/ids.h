/* coordinator/batch/ids.h - every id of a run, with the positions of its line in the input and of its result in the
 * output. 32 bytes per id, whatever its length: ids are identified by 128 bits of a keyed hash (with 10^9 ids the
 * probability of a collision is 10^-21). */
#ifndef BATCH_IDS_H
#define BATCH_IDS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct id_entry {
    uint64_t key[2];
    uint64_t position; /* ids_position of its line; 0: not seen in the input so far */
    int64_t offset;    /* of its result in the output; -1: there is none */
};

struct ids {
    unsigned char secret[16];
    struct id_entry *entry; /* [capacity] a power of two; key {0, 0}: free */
    size_t n, capacity;
};

int ids_open(struct ids *t, struct err *e);
void ids_close(struct ids *t);

/* The entry of an id, made if there is none; valid until the next call. NULL and *e: out of memory. */
struct id_entry *ids_get(struct ids *t, const char *id, struct err *e);

/* Forget all results in the output. */
void ids_forget_results(struct ids *t);

/* The position of a line as one number, in the order of the input. file < 2^20, line from 1 and < 2^44. */
static inline uint64_t ids_position(int file, int64_t line)
{
    return (uint64_t)file << 44 | (uint64_t)line;
}

static inline int ids_file(uint64_t position)
{
    return (int)(position >> 44);
}

static inline int64_t ids_line(uint64_t position)
{
    return (int64_t)(position & ((UINT64_C(1) << 44) - 1));
}

#endif
