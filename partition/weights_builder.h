/* partition/weights_builder.h - the state of a weight map under construction, shared by the files that build it. Only
 * for partition/weights*.c. */
#ifndef PARTITION_WEIGHTS_BUILDER_H
#define PARTITION_WEIGHTS_BUILDER_H

#include "partition/families.h"
#include "partition/formats.h"
#include "partition/roles.h"
#include "partition/tensor_names.h"

/* While a map is built. */
struct map_builder {
    struct weight_map *map;
    const struct model_config *m;
    const struct shard *s; /* this rank */
    struct shard whole;    /* rank 0 of 1 */
    const struct checkpoint *c;
    const struct family *family;
    struct tensor_names names;
    int64_t first_row;    /* row of the stored tensor at which the sliced matrix begins */
    int64_t first_out;    /* the same, counted in outputs */
    int64_t first_in;     /* and in inputs, for a matrix stored transposed */
    struct planes planes; /* of the sliced matrix; n 0: not quantised */
    size_t capacity;      /* of map->slice */
    struct err *e;
};

/* ---- weights_shapes.c: the tensor that a source names ---- */

/* Out features of a source's whole matrix (of one expert for experts), and its inputs. */
int64_t source_outputs(const struct map_builder *b, const struct weight_source *source);
int64_t source_inputs(const struct map_builder *b, const struct weight_source *source);

/* The shape that a source's tensor must have; returns the number of dimensions. */
int source_shape(const struct map_builder *b, const struct weight_source *source, int64_t shape[3]);

/* Refuse a tensor of another shape or of an unsupported type. The slot takes its type from its first part. */
int check_shape(const struct map_builder *b, const struct weight_source *source, const struct tensor_info *t,
                const char *name);
int check_type(const struct map_builder *b, struct weight_slot *slot, const struct tensor_info *t, const char *name,
               bool first);

/* ---- weights_slices.c: this rank's share of it ---- */

/* This rank's first output, for roles that are one contiguous range. */
int64_t shard_first_output(const struct map_builder *b, enum axis axis);

/* `count` out features of the source, from `from` on, go to the slot's rows (or columns, of a vector) from `to` on. */
void add_slice(struct map_builder *b, const struct weight_source *source, int tensor, int64_t from, int64_t to,
               int64_t count);

/* Adds all slices that this rank takes from a source; for experts from the tensor of one expert or of all. Failures go
 * to b->e. */
void slice_source(struct map_builder *b, const struct weight_source *source, int tensor);
void slice_expert(struct map_builder *b, const struct weight_source *source, int tensor, int expert);

/* ---- weights_quantised.c ---- */

/* b->planes of the source's matrix, n 0 if it is not quantised; first: of the slot. -1 and b->e, or 0. */
int take_planes(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot, int expert,
                bool first);

/* The largest input scale of all experts of a layer, including those on other ranks; none if the slot has none. */
void take_experts_scale(const struct map_builder *b, const struct weight_source *source, struct weight_slot *slot);

/* ---- weights_order.c ---- */

/* Sets slot->order of the matrix whose planes are b->planes if its inputs are not in the order of their groups, and
 * adapts its form; first: the slot's first part. -1 and b->e, or 0. */
int take_order(struct map_builder *b, struct weight_slot *slot, const char *module, bool first, struct code_form *form);

#endif
