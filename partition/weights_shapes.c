/* partition/weights_shapes.c - the shape and the type that a tensor must have: see weights_builder.h. */
#include "partition/weights_builder.h"

#include <stdio.h>
#include <string.h>

/* Out features of a source's whole matrix, of one expert where it is of experts. */
int64_t source_outputs(const struct map_builder *b, const struct weight_source *source)
{
    int64_t d = b->m->head_dim, out = role_axis_length(b->m, &b->whole, roles[source->id].out);
    if (weight_is_of_experts(source->id))
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
    case PART_QKV_HEADS:
    case PART_QKV_BLOCKS:
    case PART_ROWS:
    case PART_ROW:
    case PART_GATE_UP:
    case PART_PAIRS:
    case PART_WHOLE:
        break;
    }
    return out;
}

/* Inputs of a source's whole matrix. */
int64_t source_inputs(const struct map_builder *b, const struct weight_source *source)
{
    return source->part == PART_KEYS ? b->m->latent.rank : role_axis_length(b->m, &b->whole, roles[source->id].in);
}

/* The shape that a source's tensor must have; returns the number of dimensions. */
int source_shape(const struct map_builder *b, const struct weight_source *source, int64_t shape[3])
{
    int n = 0;
    int64_t out = source_outputs(b, source), in = source_inputs(b, source);
    if (source->part == PART_ROWS) {
        shape[n++] = out / b->m->head_dim;
        shape[n++] = b->m->head_dim;
        return n;
    }
    if (source->part == PART_ROW)
        shape[n++] = 1;
    if (weight_is_of_experts(source->id) && !tensor_names_expert(source))
        shape[n++] = b->m->experts.routing.n_experts;
    if (roles[source->id].in == AXIS_ONE) {
        shape[n++] = out;
    } else {
        shape[n++] = source->in_out ? in : out;
        shape[n++] = source->in_out ? out : in;
    }
    return n;
}

static void format_shape(char *to, size_t bytes, const int64_t *shape, int n)
{
    size_t used = (size_t)snprintf(to, bytes, "[");
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    if (used < bytes)
        (void)snprintf(to + used, bytes - used, "]");
}

int check_shape(const struct map_builder *b, const struct weight_source *source, const struct tensor_info *t,
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
int check_type(const struct map_builder *b, struct weight_slot *slot, const struct tensor_info *t, const char *name,
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
