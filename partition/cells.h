/* partition/cells.h - converts the tensors of a quantised matrix: elements of a file are checked and become codes,
 * scales and zeros in the layout of base/codes.h. Pure. Only for partition/ and rank/load/. */
#ifndef PARTITION_CELLS_H
#define PARTITION_CELLS_H

#include "partition/weights.h"

/* Some rows of a slice, as read into memory. */
struct cells_source {
    const struct weight_slice *slice;
    int64_t row, rows; /* of the tensor */
    const void *bytes; /* of element slice->col of the first one */
    int64_t ld;        /* elements from row to row */
};

/* A copy into the slot's memory: `rows` rows of `width` bytes go to offset `at`, `pitch` apart, from `bytes`, src_pitch
 * apart. */
struct cells_piece {
    size_t at, pitch, width, rows, src_pitch;
    const void *bytes;
};

/* The size of the scratch memory that cells_place needs, in bytes. */
size_t cells_scratch(const struct weight_slot *slot, const struct cells_source *from);

/* Converts the rows; *piece says where the result belongs in the slot's memory (piece->rows == 0: nowhere), and
 * piece->bytes points into the rows or into scratch. Refuses invalid numbers: scales that are not positive, NaN codes,
 * groups in another order. */
int cells_place(struct cells_piece *piece, const struct weight_slot *slot, const struct cells_source *from,
                unsigned char *scratch, int n_threads, struct err *e);

#endif
