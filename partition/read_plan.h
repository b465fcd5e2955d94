/* partition/read_plan.h - in which blocks the checkpoint is read, and what a rank takes out of a block. Two ways:
 *
 * For a whole node: all needed tensors are laid out by (file, offset), neighbours are merged, and the result is cut
 * into large blocks of whole rows. Block b is read by the node's rank b mod n, once, in one request; every rank of the
 * node then copies its slices out of it. So each byte is read once a node whatever the split, and always in large
 * requests: where nothing reads ahead, ranks that read their own small pieces take three times as long (measured,
 * docs/log/2026-11-22.md).
 *
 * For one rank: its slices one after the other, a block being some rows of one, of which only the slice's columns are
 * read. Nothing is shared, and a block is dense in memory; requests are as short as a slice's rows. For files in the
 * page cache. */
#ifndef PARTITION_READ_PLAN_H
#define PARTITION_READ_PLAN_H

#include "partition/weights.h"

#define READ_PLAN_BLOCK_BYTES ((size_t)8 << 20)

/* Rows of one tensor inside a block, row_elements of each from `col` on. A vector is one row of n columns. */
struct read_segment {
    int tensor;
    int slice; /* of the weight_map that alone is in it; -1: whole rows, for whichever slices want something of them */
    int64_t row, n_rows, col, row_elements;
    size_t block_offset; /* of the first row, bytes */
};

struct read_block {
    int file;
    uint64_t offset;
    size_t bytes;      /* that are read */
    size_t width, gap; /* of every width + gap bytes of the file from offset on the first `width`; gap 0: one stretch */
    int first_segment, n_segments;
};

struct read_plan {
    int n_blocks, n_segments;
    struct read_block *block;
    struct read_segment *segment;
    size_t max_block_bytes; /* block_bytes, or the longest row if that is more */
    uint64_t bytes;         /* of all blocks, the small gaps between tensors included */
};

/* The plan of all tensors that the config needs: equal on all ranks. Needs every rank's needs, so it is built from the
 * one-rank map (weight_map_build with a shard of 1). */
int read_plan_build(struct read_plan *p, const struct checkpoint *c, const struct weight_map *whole, size_t block_bytes,
                    struct err *e);

/* The other way: the plan of one rank, from its own map. */
int read_plan_build_own(struct read_plan *p, const struct checkpoint *c, const struct weight_map *map,
                        size_t block_bytes, struct err *e);

/* Change the blocks' order so that the ranks that share a model have something to take out of them at the same time:
 * the blocks that begin in a tensor come from n_shards equal stretches of it in turn. In the file's order the first
 * half of a matrix that is cut along its outputs is for one of two ranks, then the other half for the other, and each
 * waits in turn. Call it once. */
int read_plan_deal(struct read_plan *p, int n_shards, struct err *e);
void read_plan_free(struct read_plan *p);

/* Receives rows [row, row + n_rows) of the slice, of the columns that it wants; src need not be aligned (a file may
 * place a tensor anywhere), and has a row pitch of src_ld elements of the tensor. */
typedef void read_sink(void *context, const struct weight_slice *slice, int64_t row, const void *src, int64_t src_ld,
                       int64_t n_rows);

/* The place in its slot of those rows of a slice that is not quantised; transposed if slice->transpose (then
 * they become columns there). */
static inline void read_target(const struct weight_slice *s, int64_t row, int64_t *dst_row, int64_t *dst_col)
{
    *dst_row = s->dst_row + (s->transpose ? 0 : row - s->row);
    *dst_col = s->dst_col + (s->transpose ? row - s->row : 0);
}

/* Hand every rectangle that this rank's map wants from the block (whose bytes are at `bytes`) to the sink. A rank's own
 * plan goes with the map that it was made from. */
void read_plan_scatter(const struct read_plan *p, const struct weight_map *map, const struct checkpoint *c, int block,
                       const void *bytes, read_sink *sink, void *context);

#endif
