/* partition/cells.h - the tensors of a quantised matrix on their way into its slot: elements of a file become codes,
 * scales and zeros as base/codes.h has them, and are checked. Pure. Only for partition/ and who loads. */
#ifndef PARTITION_CELLS_H
#define PARTITION_CELLS_H

#include "partition/weights.h"

/* Some rows of a slice, as they lie in memory. */
struct cells_source {
    const struct weight_slice *slice;
    int64_t row, rows; /* of the tensor */
    const void *bytes; /* of element slice->col of the first one */
    int64_t ld;        /* elements from row to row */
};

/* Bytes for the slot's memory: `rows` rows of `width` bytes at `at` there, `pitch` apart; at `bytes` here, src_pitch
 * apart. */
struct cells_piece {
    size_t at, pitch, width, rows, src_pitch;
    const void *bytes;
};

/* The bytes of scratch memory that cells_place needs. */
size_t cells_scratch(const struct weight_slot *slot, const struct cells_source *from);

/* The part of the slot's memory that the rows hold; piece->rows == 0: none. piece->bytes points into them or into
 * scratch. Refuses numbers that no checkpoint means: scales that are not positive, codes that are not numbers, groups
 * in another order. */
int cells_place(struct cells_piece *piece, const struct weight_slot *slot, const struct cells_source *from,
                unsigned char *scratch, int n_threads, struct err *e);

#endif
