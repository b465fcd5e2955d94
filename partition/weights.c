/* partition/weights.c - see weights.h: every role of a rank, and the tensors that it comes from. */
#include "partition/weights_builder.h"

#include <stdlib.h>
#include <string.h>

/* Explains a missing tensor that exists as codes which the config does not declare, or declares differently. */
static int refuse_missing(const struct map_builder *b, const struct weight_slot *slot, const char *name)
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

/* Finds and checks the source's tensor; -1 on failure. first: it is the slot's first part. For a quantised matrix the
 * tensor is that of the codes, and b->planes is set. */
static int take_tensor(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot, int expert,
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

static int add_experts(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot, bool first)
{
    const struct range mine = b->s->experts;
    for (int expert = mine.begin; expert < mine.end; expert++) {
        int tensor = take_tensor(b, source, slot, expert, first && expert == mine.begin);
        if (tensor < 0)
            return -1;
        slice_expert(b, source, tensor, expert);
    }
    take_experts_scale(b, source, slot);
    return 0;
}

/* The vectors of this rank's heads, one after the other. */
static int add_heads(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot)
{
    int64_t d = b->m->head_dim;
    int begin = (int)(shard_first_output(b, roles[source->id].out) / d), n = slot->cols / (int)d;
    for (int i = 0; i < n; i++) {
        int tensor = take_tensor(b, source, slot, begin + i, i == 0);
        if (tensor < 0)
            return -1;
        add_slice(b, source, tensor, 0, i * d, d);
    }
    return 0;
}

/* Fill the slices of the slot at map->n_slots. */
static int add_sources(struct map_builder *b, struct weight_slot *slot)
{
    bool first = true;
    for (const struct weight_source *source = b->family->source; source->name != NULL; source++) {
        if (source->id != slot->id || (source->form > 0 && source->form != b->names.form))
            continue;
        if (weight_is_of_experts(slot->id)) {
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

static int add_slot(struct map_builder *b, enum weight_id id, int layer)
{
    struct weight_slot *slot = &b->map->slot[b->map->n_slots];
    int64_t out = role_axis_length(b->m, b->s, roles[id].out), in = role_axis_length(b->m, b->s, roles[id].in);
    bool vector = roles[id].in == AXIS_ONE;
    *slot = (struct weight_slot){.id = id,
                                 .layer = layer,
                                 .type = b->m->dtype,
                                 .rows = vector ? 1 : (int)out,
                                 .cols = vector ? (int)out : (int)in};
    if (b->c == NULL && weight_may_be_quantised(id) && id != WEIGHT_HEAD) {
        slot->form = quantization_form(&b->m->quantization, weight_is_of_experts(id));
        slot->form.first =
            (int)(slot->form.codes != CODES_NONE ? role_first_input(b->m, b->s, roles[id].in) % slot->form.group : 0);
    }
    if (b->c != NULL && add_sources(b, slot) != 0) {
        free(slot->order);
        return -1;
    }
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
    struct map_builder b = {.map = map, .m = m, .s = s, .c = c, .family = family_find(m->model_type), .e = e};
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
