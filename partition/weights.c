/* partition/weights.c - see weights.h: where in a checkpoint a rank's share of each role lies. */
#include "partition/weights.h"

#include "partition/families.h"
#include "partition/formats.h"
#include "partition/roles.h"
#include "partition/tensor_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While a map is built. */
struct builder {
    struct weight_map *map;
    const struct model_config *m;
    const struct shard *s; /* this rank */
    struct shard whole;    /* rank 0 of 1 */
    const struct checkpoint *c;
    const struct family *family;
    struct tensor_names names;
    int64_t first_row;    /* where in its tensor, as that is stored, the matrix begins that is sliced */
    int64_t first_out;    /* the same, counted in outputs */
    int64_t first_in;     /* and in inputs: of a matrix that lies transposed in its tensor */
    struct planes planes; /* of the matrix that is sliced; n 0: it is not quantised */
    size_t capacity;      /* of map->slice */
    struct err *e;
};

/* ---- shapes ---- */

/* Out features of a source's whole matrix, of one expert where it is of experts. */
static int64_t source_out(const struct builder *b, const struct weight_source *source)
{
    int64_t d = b->m->head_dim, out = role_axis_length(b->m, &b->whole, roles[source->id].out);
    if (role_is_of_experts(source->id))
        out /= b->m->experts.routing.n_experts;
    switch (source->part) {
    case PART_Q:
        return b->m->n_heads * d;
    case PART_K:
    case PART_V:
        return b->m->n_kv_heads * d;
    case PART_GATE:
    case PART_UP:
        return out / 2;
    case PART_HEAD:
        return d;
    case PART_KEYS:
    case PART_VALUES:
        return (int64_t)b->m->n_heads * (b->m->latent.key + b->m->latent.value);
    case PART_QKV_GROUPS:
    case PART_QKV_BLOCKS:
    case PART_ROWS:
    case PART_GATE_UP:
    case PART_PAIRS:
    case PART_WHOLE:
        break;
    }
    return out;
}

/* Inputs of a source's whole matrix. */
static int64_t source_in(const struct builder *b, const struct weight_source *source)
{
    return source->part == PART_KEYS ? b->m->latent.rank : role_axis_length(b->m, &b->whole, roles[source->id].in);
}

/* The shape that a source's tensor must have; returns the number of dimensions. */
static int source_shape(const struct builder *b, const struct weight_source *source, int64_t shape[3])
{
    int n = 0;
    int64_t out = source_out(b, source), in = source_in(b, source);
    if (source->part == PART_ROWS) {
        shape[n++] = out / b->m->head_dim;
        shape[n++] = b->m->head_dim;
        return n;
    }
    if (role_is_of_experts(source->id) && !tensor_names_expert(source))
        shape[n++] = b->m->experts.routing.n_experts;
    if (roles[source->id].in == AXIS_ONE) {
        shape[n++] = out;
    } else {
        shape[n++] = source->in_out ? in : out;
        shape[n++] = source->in_out ? out : in;
    }
    return n;
}

/* ---- slices ---- */

/* This rank's first input. */
static int64_t first_input(const struct builder *b, enum axis axis)
{
    switch (axis) {
    case AXIS_HEADS:
        return (int64_t)b->s->heads.begin * model_value_dim(b->m);
    case AXIS_FFN:
        return b->s->ffn.begin;
    case AXIS_EXPERT_FFN:
        return b->s->expert_ffn.begin;
    case AXIS_EXPERT_PAIRS:
        return 2 * (int64_t)b->s->expert_ffn.begin;
    case AXIS_SHARED_FFN:
        return b->s->shared_ffn.begin;
    default:
        return 0;
    }
}

/* One slice more of the slot that is under way, or NULL. */
static struct weight_slice *new_slice(struct builder *b, int tensor)
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

/* The elements of a plane that cover the share: whole cells, and all of what is only checked. */
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

/* The same outputs and inputs of every plane of a quantised matrix. */
static void add_planes(struct builder *b, int64_t from, int64_t to, int64_t count, int64_t in_from, int64_t in)
{
    for (int i = 0; i < b->planes.n; i++) {
        const struct plane_source *plane = &b->planes.plane[i];
        struct weight_slice *slice = new_slice(b, plane->tensor);
        if (slice == NULL)
            return;
        slice->dst_row = to;
        slice->cells = plane->cells;
        slice->cells.out = b->first_out + from;
        slice->cells.n_out = count;
        slice->cells.in = b->first_in + in_from;
        slice->cells.n_in = in;
        cover(slice, b->c);
        if (plane->cells.plane == PLANE_CODES && plane->cells.in_first && plane->cells.bits == 4 && in_from % 2 != 0)
            ERR(b->e, ERR_UNSUPPORTED, "%s: %s: rank %d begins at input %lld, expected an even one: codes of 4 bits",
                checkpoint_short_path(b->c->dir), weight_name(b->map->slot[b->map->n_slots].id), b->s->rank,
                (long long)in_from);
    }
}

/* `count` out features of the source, from `from` on, go to the slot's rows (or columns, of a vector) from `to` on. */
static void add_slice(struct builder *b, const struct weight_source *source, int tensor, int64_t from, int64_t to,
                      int64_t count)
{
    enum axis in_axis = roles[source->id].in;
    int64_t in = role_axis_length(b->m, b->s, in_axis), in_from = first_input(b, in_axis);
    if (count == 0 || in == 0 || b->e->code != ERR_NONE)
        return;
    if (b->planes.n > 0) {
        add_planes(b, from, to, count, in_from, in);
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

/* The heads of this rank where each KV head stands behind its query heads. */
static void slice_groups(struct builder *b, const struct weight_source *source, int tensor)
{
    const struct range heads = b->s->heads, kv = b->s->kv_heads;
    int64_t d = b->m->head_dim, group = b->m->n_heads / b->m->n_kv_heads, to = 0;
    for (int h = heads.begin; h < heads.end; h++, to += d)
        add_slice(b, source, tensor, (h / group * (group + 2) + h % group) * d, to, d);
    for (int part = 0; part < 2; part++)
        for (int k = kv.begin; k < kv.end; k++, to += d)
            add_slice(b, source, tensor, (k * (group + 2) + group + part) * d, to, d);
}

/* The out features of a QKV part. */
static void slice_qkv(struct builder *b, const struct weight_source *source, int tensor)
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
    case PART_QKV_GROUPS:
        slice_groups(b, source, tensor);
        break;
    case PART_WHOLE:
    case PART_KEYS:
    case PART_VALUES:
    case PART_HEAD:
    case PART_ROWS:
    case PART_GATE:
    case PART_UP:
    case PART_GATE_UP:
    case PART_PAIRS:
        ERR(b->e, ERR_INTERNAL, "family %s: no such part of %s", b->family->model_type, weight_name(source->id));
    }
}

/* The rank's columns of an MLP that is `width` wide: gate rows, up rows or both (what is not gated has one kind), from
 * row `to` of the slot on. */
static void slice_mlp(struct builder *b, const struct weight_source *source, int tensor, int64_t to,
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

/* One expert of a tensor that holds this one only, or all of them one below the other. */
static void slice_expert(struct builder *b, const struct weight_source *source, int tensor, int expert)
{
    int64_t hidden = b->m->hidden, columns = range_length(b->s->expert_ffn), at = expert - b->s->experts.begin;
    int64_t shape[3];
    if (source_shape(b, source, shape) == 3)
        b->first_row = expert * shape[1], b->first_out = expert * source_out(b, source);
    if (source->id == WEIGHT_EXPERTS_IN)
        slice_mlp(b, source, tensor, at * 2 * columns, b->s->expert_ffn, b->m->experts.ffn);
    else
        add_slice(b, source, tensor, 0, at * hidden, hidden);
    b->first_row = b->first_out = 0;
}

/* This rank's first output, of what is in one piece. */
static int64_t first_output(const struct builder *b, enum axis axis)
{
    switch (axis) {
    case AXIS_VOCAB:
        return b->s->vocab.begin;
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
static void slice_rows(struct builder *b, const struct weight_source *source, int tensor)
{
    int64_t d = b->m->head_dim, first = first_output(b, roles[source->id].out) / d;
    int64_t n = role_axis_length(b->m, b->s, roles[source->id].out) / d;
    for (int64_t h = 0; h < n; h++) {
        b->first_row = first + h;
        add_slice(b, source, tensor, 0, h * d, d);
    }
    b->first_row = 0;
}

/* The rows that make, for each of this rank's heads, its keys of the latent, transposed, or those that make its
 * values. */
static void slice_latent(struct builder *b, const struct weight_source *source, int tensor)
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

static void slice_source(struct builder *b, const struct weight_source *source, int tensor)
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
        add_slice(b, source, tensor, first_output(b, out), 0, role_axis_length(b->m, b->s, out));
}

/* ---- checks ---- */

static void format_shape(char *to, size_t bytes, const int64_t *shape, int n)
{
    size_t used = (size_t)snprintf(to, bytes, "[");
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    if (used < bytes)
        (void)snprintf(to + used, bytes - used, "]");
}

static int check_shape(const struct builder *b, const struct weight_source *source, const struct tensor_info *t,
                       const char *name)
{
    int64_t want[3];
    int n = source_shape(b, source, want);
    if (t->n_dims == n && memcmp(t->shape, want, (size_t)n * sizeof *want) == 0)
        return 0;
    char found[120], expected[60];
    format_shape(found, sizeof found, t->shape, t->n_dims);
    format_shape(expected, sizeof expected, want, n);
    return ERR(b->e, ERR_INPUT, "%s/%.80s: tensor \"%s\" has shape %s, expected %s from config.json",
               checkpoint_short_path(b->c->dir), checkpoint_file_name(b->c, t->file), name, found, expected);
}

/* The slot takes its type from its first part. */
static int check_type(const struct builder *b, struct weight_slot *slot, const struct tensor_info *t, const char *name,
                      bool first)
{
    const char *found = b->c->text + t->dtype;
    enum dtype type = DTYPE_F32;
    while (type < DTYPE_COUNT && strcmp(found, dtype_name(type)) != 0)
        type++;
    if (type == DTYPE_COUNT)
        return ERR(b->e, ERR_UNSUPPORTED, "%s/%.80s: tensor \"%s\" is %s%s, expected F32, F16 or BF16",
                   checkpoint_short_path(b->c->dir), checkpoint_file_name(b->c, t->file), name, found,
                   found[0] == 'F' && strcmp(found, "F64") != 0 ? " (quantised)" : "");
    if (!first && type != slot->type)
        return ERR(b->e, ERR_UNSUPPORTED, "%s/%.80s: tensor \"%s\" is %s, expected %s like the other parts of %s",
                   checkpoint_short_path(b->c->dir), checkpoint_file_name(b->c, t->file), name, found,
                   dtype_name(slot->type), weight_name(slot->id));
    slot->type = type;
    return 0;
}

/* ---- what is quantised ---- */

/* The slot takes its form from its first part. */
static int check_form(const struct builder *b, const struct weight_source *source, struct weight_slot *slot,
                      const char *module, bool first)
{
    const char *folder = checkpoint_short_path(b->c->dir);
    struct code_form form = b->planes.form;
    if (!weight_may_be_quantised(slot->id) || (source->in_out && !role_is_of_experts(slot->id)))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised (%s), expected %s of %s in 16 or 32 bits", folder,
                   module, b->m->quantization.method, weight_name(slot->id), b->m->model_type);
    if (quantization_exempts(&b->m->quantization, module))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised, but config.json (%s) leaves it out", folder, module,
                   b->m->quantization.method);
    form.first = (int)(first_input(b, roles[slot->id].in) % form.group);
    if (!first && !code_form_equal(&form, &slot->form))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised otherwise than the other parts of %s (%s)", folder,
                   module, weight_name(slot->id), b->m->quantization.method);
    slot->form = form;
    return 0;
}

/* The planes of a matrix whose heads' rows become columns: of codes of 8 bits, with scales of blocks, of which one
 * begins with every head. */
static int transpose_planes(struct builder *b, const char *module)
{
    const struct model_latent *l = &b->m->latent;
    for (int i = 0; i < b->planes.n; i++) {
        struct weight_cells *k = &b->planes.plane[i].cells;
        int64_t rows = k->cell_rows;
        k->cell_rows = k->cell_cols;
        k->cell_cols = rows;
        k->in_first = !k->in_first;
        if (k->plane == PLANE_SCALES)
            b->planes.form.group = (int)k->cell_cols;
        if (k->plane != PLANE_SCALES && (k->plane != PLANE_CODES || k->fields > 1 || k->bits != 8))
            b->planes.form.group = 0;
    }
    if (b->planes.form.group < 32 || (l->key + l->value) % b->planes.form.group != 0)
        return ERR(
            b->e, ERR_UNSUPPORTED,
            "%s: \"%s\" is quantised (%s), expected codes of 8 bits, scales of blocks of 32 rows or more, of which the "
            "%d of a head are a multiple",
            checkpoint_short_path(b->c->dir), module, b->m->quantization.method, l->key + l->value);
    return 0;
}

/* b->planes of the source's matrix. -1 and b->e, or 0. */
static int take_planes(struct builder *b, const struct weight_source *source, struct weight_slot *slot, int expert,
                       bool first)
{
    const struct format *format = format_of(&b->m->quantization);
    char name[128];
    int64_t shape[3];
    b->planes.n = 0;
    if (format == NULL || roles[source->id].in == AXIS_ONE)
        return 0;
    tensor_names_module(&b->names, source, (struct tensor_place){slot->layer, expert}, name, sizeof name);
    const struct module module = {.c = b->c,
                                  .q = &b->m->quantization,
                                  .name = name,
                                  .out = source_out(b, source),
                                  .in = source_in(b, source),
                                  .experts = (int)(source_shape(b, source, shape) == 3 ? shape[0] : 0)};
    int found = format->planes(&module, &b->planes, b->e);
    if (found <= 0) {
        b->planes.n = 0;
        return found;
    }
    if (source->part == PART_KEYS && transpose_planes(b, name) != 0)
        return -1;
    return check_form(b, source, slot, name, first);
}

/* ---- the map ---- */

/* It may be there in codes of which the config says nothing, or something else. */
static int refuse_missing(const struct builder *b, const struct weight_slot *slot, const char *name)
{
    const char *folder = checkpoint_short_path(b->c->dir), *method = b->m->quantization.method;
    int codes = formats_find_codes(b->c, name);
    if (codes >= 0)
        return ERR(b->e, ERR_UNSUPPORTED,
                   "%s: tensor \"%s\" is quantised, expected a \"quantization_config\" in config.json that says how, "
                   "found %s",
                   folder, checkpoint_tensor_name(b->c, codes), method[0] != '\0' ? method : "none");
    return ERR(b->e, ERR_INPUT,
               "%s: tensor \"%s\" is missing among the %d in the checkpoint; config.json (%s) needs it%s", folder, name,
               b->c->n_tensors, b->m->model_type,
               slot->id == WEIGHT_HEAD ? ", since \"tie_word_embeddings\" is false" : "");
}

/* The source's tensor in its place, checked, or -1; first: of the slot. Of a quantised matrix: b->planes, and the
 * codes'. */
static int take_tensor(struct builder *b, const struct weight_source *source, struct weight_slot *slot, int expert,
                       bool first)
{
    char name[128];
    if (take_planes(b, source, slot, expert, first) != 0)
        return -1;
    if (b->planes.n > 0)
        return b->planes.plane[0].tensor;
    int tensor = tensor_names_find(&b->names, source, (struct tensor_place){slot->layer, expert}, name, sizeof name);
    if (tensor < 0)
        return refuse_missing(b, slot, name);
    const struct tensor_info *t = &b->c->tensor[tensor];
    if (!first && slot->form.codes != CODES_NONE)
        return ERR(b->e, ERR_UNSUPPORTED, "%s: tensor \"%s\" is not quantised, unlike the other parts of %s",
                   checkpoint_short_path(b->c->dir), name, weight_name(slot->id));
    return check_shape(b, source, t, name) == 0 && check_type(b, slot, t, name, first) == 0 ? tensor : -1;
}

static int add_experts(struct builder *b, const struct weight_source *source, struct weight_slot *slot, bool first)
{
    for (int expert = b->s->experts.begin; expert < b->s->experts.end; expert++) {
        int tensor = take_tensor(b, source, slot, expert, first && expert == b->s->experts.begin);
        if (tensor < 0)
            return -1;
        slice_expert(b, source, tensor, expert);
    }
    return 0;
}

/* The vectors of this rank's heads, one after the other. */
static int add_heads(struct builder *b, const struct weight_source *source, struct weight_slot *slot)
{
    int64_t d = b->m->head_dim;
    int begin = (int)(first_output(b, roles[source->id].out) / d), n = slot->cols / (int)d;
    for (int i = 0; i < n; i++) {
        int tensor = take_tensor(b, source, slot, begin + i, i == 0);
        if (tensor < 0)
            return -1;
        add_slice(b, source, tensor, 0, i * d, d);
    }
    return 0;
}

/* Fill the slices of the slot at map->n_slots. */
static int add_sources(struct builder *b, struct weight_slot *slot)
{
    bool first = true;
    for (const struct weight_source *source = b->family->source; source->name != NULL; source++) {
        if (source->id != slot->id || (source->form > 0 && source->form != b->names.form))
            continue;
        if (role_is_of_experts(slot->id)) {
            if (add_experts(b, source, slot, first) != 0)
                return -1;
        } else if (source->part == PART_HEAD) {
            if (add_heads(b, source, slot) != 0)
                return -1;
        } else {
            int tensor = take_tensor(b, source, slot, 0, first);
            if (tensor < 0)
                return -1;
            slice_source(b, source, tensor);
        }
        first = false;
    }
    if (first)
        return ERR(b->e, ERR_INTERNAL, "family %s names no source of %s", b->family->model_type, weight_name(slot->id));
    return b->e->code == ERR_NONE ? 0 : -1;
}

static int add_slot(struct builder *b, enum weight_id id, int layer)
{
    struct weight_slot *slot = &b->map->slot[b->map->n_slots];
    int64_t out = role_axis_length(b->m, b->s, roles[id].out), in = role_axis_length(b->m, b->s, roles[id].in);
    bool vector = roles[id].in == AXIS_ONE;
    *slot = (struct weight_slot){id, layer, b->m->dtype, vector ? 1 : (int)out, vector ? (int)out : (int)in, {0}};
    if (b->c == NULL && weight_may_be_quantised(id) && id != WEIGHT_HEAD) {
        slot->form = quantization_form(&b->m->quantization, role_is_of_experts(id));
        slot->form.first = (int)(slot->form.codes != CODES_NONE ? first_input(b, roles[id].in) % slot->form.group : 0);
    }
    if (b->c != NULL && add_sources(b, slot) != 0)
        return -1;
    b->map->n_slots++;
    return 0;
}

static int by_tensor(const void *left, const void *right)
{
    const struct weight_slice *a = left, *b = right;
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->col < b->col ? -1 : a->col > b->col;
}

int weight_map_build(struct weight_map *map, const struct model_config *m, const struct shard *s,
                     const struct checkpoint *c, struct err *e)
{
    struct builder b = {.map = map, .m = m, .s = s, .c = c, .family = family_find(m->model_type), .e = e};
    memset(map, 0, sizeof *map);
    if (b.family == NULL)
        return ERR(e, ERR_INTERNAL, "no family \"%s\"", m->model_type);
    shard_make(&b.whole, m, 0, 1);
    if (c != NULL)
        tensor_names_open(&b.names, b.family, m, c);
    size_t most = WEIGHT_FIRST_OF_LAYER + (size_t)m->n_layers * (WEIGHT_COUNT - WEIGHT_FIRST_OF_LAYER);
    map->slot = err_calloc(e, most, sizeof map->slot[0], "the weight map");
    if (map->slot == NULL)
        return -1;
    for (int layer = -1; layer < m->n_layers; layer++) {
        enum weight_id first = layer < 0 ? WEIGHT_EMBED : WEIGHT_FIRST_OF_LAYER;
        enum weight_id end = layer < 0 ? WEIGHT_FIRST_OF_LAYER : WEIGHT_COUNT;
        for (enum weight_id id = first; id < end; id++)
            if (weight_exists(m, id, layer) && add_slot(&b, id, layer) != 0) {
                weight_map_free(map);
                return -1;
            }
    }
    if (map->n_slices > 1)
        qsort(map->slice, (size_t)map->n_slices, sizeof map->slice[0], by_tensor);
    return 0;
}
