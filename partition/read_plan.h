/* partition/read_plan.h - in which large blocks the ranks of a node read the checkpoint together, and what each rank
 * takes out of a block.
 *
 * All needed tensors are laid out by (file, offset), neighbours are merged, and the result is cut into blocks of whole
 * rows, which are dealt so that no rank has to wait for its part. Block b is read by the node's rank b mod n, once, in one request; every rank of the node then copies its slices
 * out of it. So each byte is read once a node whatever the split, and always in large requests: where nothing reads ahead,
 * ranks that read their own small pieces take three times as long (measured, docs/performance.md). */
#ifndef PARTITION_READ_PLAN_H
#define PARTITION_READ_PLAN_H

#include "partition/weights.h"

#define READ_PLAN_BLOCK_BYTES ((size_t)8 << 20)

/* Whole rows of one tensor inside a block. A vector is one row of n columns. */
struct read_segment {
    int tensor;
    int64_t row, n_rows, row_elements;
    size_t block_offset; /* of the first row, bytes */
};

struct read_block {
    int file;
    uint64_t offset;
    size_t bytes;
    int first_segment, n_segments;
};

struct read_plan {
    int n_blocks, n_segments;
    struct read_block *block;
    struct read_segment *segment;
    size_t max_block_bytes; /* READ_PLAN_BLOCK_BYTES, or the longest row if that is more */
    uint64_t bytes;         /* of all blocks, the small gaps between tensors included */
};

/* The plan of all tensors that the config needs: equal on all ranks. Needs every rank's needs, so it is built from the
 * one-rank map (weight_map_build with a shard of 1). */
int read_plan_build(struct read_plan *p, const struct checkpoint *c, const struct weight_map *whole, size_t block_bytes,
                    struct err *e);

/* Change the blocks' order so that the ranks that share a model have something to take out of them at the same time: the
 * blocks that begin in a tensor come from n_shards equal stretches of it in turn. In the file's order the first half of a
 * matrix that is cut along its outputs is for one of two ranks, then the other half for the other, and each waits in turn.
 * Call it once. */
int read_plan_deal(struct read_plan *p, int n_shards, struct err *e);
void read_plan_free(struct read_plan *p);

/* Receives a rectangle; src need not be aligned (a file may place a tensor anywhere). rows x cols elements of `type` at src with a row pitch of src_ld elements belong at
 * (dst_row, dst_col) of the slot, transposed if `transpose` (then they become cols x rows there). */
typedef void read_sink(void *context, int slot, int64_t dst_row, int64_t dst_col, const void *src, int64_t src_ld,
                       int64_t rows, int64_t cols, bool transpose);

/* Hand every rectangle that this rank's map wants from the block (whose bytes are at `bytes`) to the sink. */
void read_plan_scatter(const struct read_plan *p, const struct weight_map *map, const struct checkpoint *c, int block,
                       const void *bytes, read_sink *sink, void *context);

#endif
