/* partition/read_plan.h - the blocks in which the checkpoint is read, and the slices that a rank takes out of a block.
 * There are two kinds:
 *
 * For a whole node: all needed tensors are laid out by (file, offset), neighbours are merged, and the result is cut
 * into large blocks of whole rows. Block b is read by the node's rank b mod n, once, in one request; every rank of the
 * node then copies its slices out of it. So a node reads each byte once whatever the split, and always in large
 * requests: without read-ahead, ranks that read their own small pieces take three times as long (measured,
 * docs/log/2026-11-22.md).
 *
 * For one rank: its slices one after the other; a block is some rows of a slice, of which only the slice's columns are
 * read. Nothing is shared, and a block is dense in memory, but requests are as short as a slice's rows. This suits
 * files in the page cache. */
#ifndef PARTITION_READ_PLAN_H
#define PARTITION_READ_PLAN_H

#include "partition/weights.h"

#define READ_PLAN_BLOCK_BYTES ((size_t)8 << 20)

/* Rows of one tensor inside a block, row_elements of each from `col` on. A vector is one row of n columns. */
struct read_segment {
    int tensor;
    int slice; /* the only slice of the weight_map in it; -1: whole rows, for all slices that need a part of them */
    int64_t row, n_rows, col, row_elements;
    size_t block_offset; /* of the first row, bytes */
};

struct read_block {
    int file;
    uint64_t offset;
    size_t bytes;      /* that are read */
    size_t width, gap; /* from offset on, the first `width` of every width + gap bytes of the file; gap 0: contiguous */
    int first_segment, n_segments;
};

struct read_plan {
    int n_blocks, n_segments;
    struct read_block *block;
    struct read_segment *segment;
    size_t max_block_bytes; /* the larger of block_bytes and the longest row */
    uint64_t bytes;         /* of all blocks, including the small gaps between tensors */
};

/* The plan of all tensors that the config needs: equal on all ranks. Needs every rank's needs, so it is built from the
 * one-rank map (weight_map_build with a shard of 1). */
int read_plan_build(struct read_plan *p, const struct checkpoint *c, const struct weight_map *whole, size_t block_bytes,
                    struct err *e);

/* The other way: the plan of one rank, from its own map. */
int read_plan_build_own(struct read_plan *p, const struct checkpoint *c, const struct weight_map *map,
                        size_t block_bytes, struct err *e);

/* Reorder the blocks so that all ranks that share a model have slices to take at any time: the blocks that begin in a
 * tensor come in turn from n_shards equal stretches of it. In the file's order the first half of a matrix that is cut
 * along its outputs would go to one of two ranks and then the second half to the other, and each would wait for half of
 * the time. Call it once. */
int read_plan_deal(struct read_plan *p, int n_shards, struct err *e);
void read_plan_free(struct read_plan *p);

/* Receives rows [row, row + n_rows) of the slice, with the slice's columns only; src need not be aligned (a file may
 * place a tensor anywhere), and has a row pitch of src_ld elements of the tensor. */
typedef void read_sink(void *context, const struct weight_slice *slice, int64_t row, const void *src, int64_t src_ld,
                       int64_t n_rows);

/* The place of these rows in the slot, for a slice that is not quantised; if slice->transpose, the rows become columns
 * there. */
static inline void read_target(const struct weight_slice *s, int64_t row, int64_t *dst_row, int64_t *dst_col)
{
    *dst_row = s->dst_row + (s->transpose ? 0 : row - s->row);
    *dst_col = s->dst_col + (s->transpose ? row - s->row : 0);
}

/* Hand to the sink every rectangle of the block (whose bytes are at `bytes`) that belongs to this rank's map. A plan
 * for one rank needs the map from which it was made. */
void read_plan_scatter(const struct read_plan *p, const struct weight_map *map, const struct checkpoint *c, int block,
                       const void *bytes, read_sink *sink, void *context);

#endif
