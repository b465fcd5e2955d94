/* partition/weights_slices.c - the place of a rank's share of a role in its tensor: see weights_builder.h. */
#include "partition/weights_builder.h"

#include <stdlib.h>

/* Appends a slice to the current slot; NULL on failure. */
static struct weight_slice *new_slice(struct map_builder *b, int tensor)
{
    if ((size_t)b->map->n_slices == b->capacity) {
        size_t capacity = b->capacity > 0 ? 2 * b->capacity : 1024;
        struct weight_slice *grown = realloc(b->map->slice, capacity * sizeof *grown);
        if (grown == NULL) {
            ERR(b->e, ERR_MEMORY, "out of host memory for %zu weight slices", capacity);
            return NULL;
        }
        b->map->slice = grown;
        b->capacity = capacity;
    }
    struct weight_slice *slice = &b->map->slice[b->map->n_slices++];
    *slice = (struct weight_slice){.tensor = tensor, .slot = b->map->n_slots};
    return slice;
}

/* The elements of a plane that cover the share: whole cells, or all elements of a plane that is only checked. */
static void cover(struct weight_slice *slice, const struct checkpoint *c)
{
    struct weight_cells *k = &slice->cells;
    bool whole = k->plane == PLANE_INDEX || k->plane == PLANE_SHAPE;
    int64_t row = k->out / k->cell_rows, rows = (k->out + k->n_out - 1) / k->cell_rows - row + 1;
    int64_t col = k->in / k->cell_cols, cols = (k->in + k->n_in - 1) / k->cell_cols - col + 1;
    slice->row = whole ? 0 : k->in_first ? col : row;
    slice->rows = whole ? 1 : k->in_first ? cols : rows;
    slice->col = whole ? 0 : k->in_first ? row : col;
    slice->cols = whole ? tensor_row_elements(&c->tensor[slice->tensor]) : k->in_first ? rows : cols;
}

/* Slices the same outputs and inputs out of every plane of a quantised matrix. */
static void add_planes(struct map_builder *b, int64_t from, int64_t to, int64_t count, int64_t in_from, int64_t in,
                       int64_t all_in)
{
    for (int i = 0; i < b->planes.n; i++) {
        const struct plane_source *plane = &b->planes.plane[i];
        bool ordered = b->map->slot[b->map->n_slots].order != NULL, codes = plane->cells.plane == PLANE_CODES;
        if (ordered && plane->cells.plane == PLANE_INDEX)
            continue;
        struct weight_slice *slice = new_slice(b, plane->tensor);
        if (slice == NULL)
            return;
        slice->dst_row = to;
        slice->cells = plane->cells;
        slice->cells.out = b->first_out + from;
        slice->cells.n_out = count;
        slice->cells.in = ordered && !codes ? 0 : b->first_in + in_from; /* the rank's inputs may be of any group */
        slice->cells.n_in = ordered && !codes ? all_in : in;
        cover(slice, b->c);
        if (codes && plane->cells.in_first && plane->cells.bits == 4 && in_from % 2 != 0)
            ERR(b->e, ERR_UNSUPPORTED, "%s: %s: rank %d begins at input %lld, expected an even one: codes of 4 bits",
                checkpoint_short_path(b->c->dir), weight_name(b->map->slot[b->map->n_slots].id), b->s->rank,
                (long long)in_from);
    }
}

/* `count` out features of the source, from `from` on, go to the slot's rows (or columns, of a vector) from `to` on. */
void add_slice(struct map_builder *b, const struct weight_source *source, int tensor, int64_t from, int64_t to,
               int64_t count)
{
    enum axis in_axis = roles[source->id].in;
    int64_t in = role_axis_length(b->m, b->s, in_axis), in_from = role_first_input(b->m, b->s, in_axis);
    if (count == 0 || in == 0 || b->e->code != ERR_NONE)
        return;
    if (b->planes.n > 0) {
        add_planes(b, from, to, count, in_from, in, source_inputs(b, source));
        return;
    }
    struct weight_slice *slice = new_slice(b, tensor);
    if (slice == NULL)
        return;
    if (in_axis == AXIS_ONE) {
        slice->row = b->first_row, slice->col = from, slice->rows = 1, slice->cols = count, slice->dst_col = to;
    } else if (source->in_out || source->part == PART_KEYS) {
        slice->row = b->first_row + in_from, slice->col = from, slice->rows = in, slice->cols = count;
        slice->dst_row = to;
        slice->transpose = true;
    } else {
        slice->row = b->first_row + from, slice->col = in_from, slice->rows = count, slice->cols = in,
        slice->dst_row = to;
    }
}

/* The heads of this rank if each KV head follows its query heads, which are n. */
static void slice_qkv_heads(struct map_builder *b, const struct weight_source *source, int tensor)
{
    const struct range heads = b->s->heads, kv = b->s->kv_heads;
    int64_t d = b->m->head_dim, n = b->m->n_heads / b->m->n_kv_heads, to = 0;
    for (int h = heads.begin; h < heads.end; h++, to += d)
        add_slice(b, source, tensor, (h / n * (n + 2) + h % n) * d, to, d);
    for (int part = 0; part < 2; part++)
        for (int k = kv.begin; k < kv.end; k++, to += d)
            add_slice(b, source, tensor, (k * (n + 2) + n + part) * d, to, d);
}

/* The out features of a QKV part. */
static void slice_qkv(struct map_builder *b, const struct weight_source *source, int tensor)
{
    int64_t d = b->m->head_dim, n_q = range_length(b->s->heads) * d, n_kv = range_length(b->s->kv_heads) * d;
    int64_t q = b->s->heads.begin * d, kv = b->s->kv_heads.begin * d;
    int64_t all_q = b->m->n_heads * d, all_kv = b->m->n_kv_heads * d;
    switch (source->part) {
    case PART_Q:
        add_slice(b, source, tensor, q, 0, n_q);
        break;
    case PART_K:
        add_slice(b, source, tensor, kv, n_q, n_kv);
        break;
    case PART_V:
        add_slice(b, source, tensor, kv, n_q + n_kv, n_kv);
        break;
    case PART_QKV_BLOCKS:
        add_slice(b, source, tensor, q, 0, n_q);
        add_slice(b, source, tensor, all_q + kv, n_q, n_kv);
        add_slice(b, source, tensor, all_q + all_kv + kv, n_q + n_kv, n_kv);
        break;
    case PART_QKV_HEADS:
        slice_qkv_heads(b, source, tensor);
        break;
    case PART_WHOLE:
    case PART_KEYS:
    case PART_VALUES:
    case PART_HEAD:
    case PART_ROWS:
    case PART_ROW:
    case PART_GATE:
    case PART_UP:
    case PART_GATE_UP:
    case PART_PAIRS:
        ERR(b->e, ERR_INTERNAL, "family %s: no such part of %s", b->family->model_type, weight_name(source->id));
    }
}

/* The rank's columns of an MLP that is `width` wide: gate rows, up rows or both (an ungated MLP has one kind), to the
 * slot's rows from `to` on. */
static void slice_mlp(struct map_builder *b, const struct weight_source *source, int tensor, int64_t to,
                      struct range columns, int width)
{
    int64_t n = range_length(columns), begin = columns.begin;
    if (source->part == PART_PAIRS) {
        add_slice(b, source, tensor, 2 * begin, to, 2 * n);
        return;
    }
    add_slice(b, source, tensor, begin, source->part == PART_UP ? to + n : to, n);
    if (source->part == PART_GATE_UP)
        add_slice(b, source, tensor, width + begin, to + n, n);
}

/* One expert, from a tensor that holds only this one or all of them. */
void slice_expert(struct map_builder *b, const struct weight_source *source, int tensor, int expert)
{
    int64_t hidden = b->m->hidden, columns = range_length(b->s->expert_ffn), at = expert - b->s->experts.begin;
    int64_t shape[3];
    if (source_shape(b, source, shape) == 3)
        b->first_row = expert * shape[1], b->first_out = expert * source_outputs(b, source);
    if (source->id == WEIGHT_EXPERTS_IN)
        slice_mlp(b, source, tensor, at * 2 * columns, b->s->expert_ffn, b->m->experts.ffn);
    else
        add_slice(b, source, tensor, 0, at * hidden, hidden);
    b->first_row = b->first_out = 0;
}

/* This rank's first output, for roles that are one contiguous range. */
int64_t shard_first_output(const struct map_builder *b, enum axis axis)
{
    switch (axis) {
    case AXIS_VOCAB:
        return b->s->vocab.begin;
    case AXIS_LOGITS:
        return b->s->logits.begin;
    case AXIS_STATES:
        return b->s->states.begin;
    case AXIS_HEAD_NUMBERS:
        return b->s->heads.begin;
    case AXIS_EXPERTS_HELD:
    case AXIS_EXPERTS_ONCE:
        return b->s->experts.begin;
    case AXIS_QUERIES:
        return (int64_t)b->s->heads.begin * (b->m->latent.key + b->m->latent.rotated);
    case AXIS_Q_NORM:
        return b->m->qk_norm_each ? (int64_t)b->s->heads.begin * b->m->head_dim : 0;
    case AXIS_K_NORM:
        return b->m->qk_norm_each ? (int64_t)b->s->kv_heads.begin * b->m->head_dim : 0;
    default:
        return 0;
    }
}

/* A vector of all heads from a matrix with a row for each. */
static void slice_rows(struct map_builder *b, const struct weight_source *source, int tensor)
{
    int64_t d = b->m->head_dim, first = shard_first_output(b, roles[source->id].out) / d;
    int64_t n = role_axis_length(b->m, b->s, roles[source->id].out) / d;
    for (int64_t h = 0; h < n; h++) {
        b->first_row = first + h;
        add_slice(b, source, tensor, 0, h * d, d);
    }
    b->first_row = 0;
}

/* For each of this rank's heads the rows that compute its keys from the latent, transposed, or those that compute its
 * values. */
static void slice_latent(struct map_builder *b, const struct weight_source *source, int tensor)
{
    const struct model_latent *l = &b->m->latent;
    bool keys = source->part == PART_KEYS;
    int64_t count = keys ? l->rank : l->value;
    for (int h = b->s->heads.begin; h < b->s->heads.end; h++) {
        b->first_row = (int64_t)h * (l->key + l->value) + (keys ? 0 : l->key);
        b->first_out = keys ? 0 : b->first_row;
        b->first_in = keys ? b->first_row : 0;
        add_slice(b, source, tensor, 0, (h - b->s->heads.begin) * count, count);
    }
    b->first_row = b->first_out = b->first_in = 0;
}

void slice_source(struct map_builder *b, const struct weight_source *source, int tensor)
{
    enum axis out = roles[source->id].out;
    if (out == AXIS_QKV)
        slice_qkv(b, source, tensor);
    else if (source->part == PART_KEYS || source->part == PART_VALUES)
        slice_latent(b, source, tensor);
    else if (source->part == PART_ROWS)
        slice_rows(b, source, tensor);
    else if (out == AXIS_MLP_IN)
        slice_mlp(b, source, tensor, 0, b->s->ffn, b->m->ffn);
    else if (out == AXIS_SHARED_IN)
        slice_mlp(b, source, tensor, 0, b->s->shared_ffn, b->m->experts.shared_ffn);
    else
        add_slice(b, source, tensor, shard_first_output(b, out), 0, role_axis_length(b->m, b->s, out));
}
