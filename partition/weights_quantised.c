/* partition/weights_quantised.c - the tensors of a quantised matrix, and whether the parts of a role agree: see
 * weights_builder.h. */
#include "partition/weights_builder.h"

/* The slot takes its form from its first part. */
static int check_form(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot,
                      const char *module, bool first)
{
    const char *folder = checkpoint_short_path(b->c->dir);
    struct code_form form = b->planes.form;
    if (!weight_may_be_quantised(slot->id) || (source->in_out && !weight_is_of_experts(slot->id)))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised (%s), expected %s of %s in 16 or 32 bits", folder,
                   module, b->m->quantization.method, weight_name(slot->id), b->m->model_type);
    if (quantization_exempts(&b->m->quantization, module))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised, but config.json (%s) leaves it out", folder, module,
                   b->m->quantization.method);
    form.first = (int)(role_first_input(b->m, b->s, roles[slot->id].in) % form.group);
    if (take_order(b, slot, module, first, &form) != 0)
        return -1;
    if (!first && !code_form_equal(&form, &slot->form))
        return ERR(b->e, ERR_UNSUPPORTED, "%s: \"%s\" is quantised otherwise than the other parts of %s (%s)", folder,
                   module, weight_name(slot->id), b->m->quantization.method);
    slot->form = form;
    return 0;
}

/* Transposes the planes of a matrix whose heads' rows become columns: 8-bit codes with block scales, if a block begins
 * at every head. */
static int transpose_planes(struct map_builder *b, const char *module)
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

/* Parts that share their inputs share an input scale, the largest, so that nothing saturates. This includes experts on
 * other ranks, so that the scale does not depend on their distribution. */
static int take_input_scale(struct map_builder *b, struct weight_slot *slot, const struct module *module)
{
    int tensor = module_tensor(module, ".input_scale");
    if (b->c->n_input_scales == 0)
        return 0;
    if (tensor < 0)
        return module_refuse(module, b->e, ".input_scale", "is missing",
                             "it, since activations are declared static (--quantized-activations off: not needed)");
    float scale = b->c->input_scale[tensor];
    slot->input_scale = scale > slot->input_scale ? scale : slot->input_scale;
    return 0;
}

void take_experts_scale(const struct map_builder *b, const struct weight_source *source, struct weight_slot *slot)
{
    char name[128];
    struct module module = {.c = b->c, .name = name};
    for (int expert = 0; expert < b->m->experts.routing.n_experts && slot->input_scale > 0; expert++) {
        tensor_names_module(&b->names, source, (struct tensor_place){slot->layer, expert}, name, sizeof name);
        int tensor = module_tensor(&module, ".input_scale");
        float scale = tensor >= 0 ? b->c->input_scale[tensor] : 0;
        slot->input_scale = scale > slot->input_scale ? scale : slot->input_scale;
    }
}

/* b->planes of the source's matrix. -1 and b->e, or 0. */
int take_planes(struct map_builder *b, const struct weight_source *source, struct weight_slot *slot, int expert,
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
                                  .out = source_outputs(b, source),
                                  .in = source_inputs(b, source),
                                  .experts = (int)(source_shape(b, source, shape) == 3 ? shape[0] : 0)};
    int found = format->planes(&module, &b->planes, b->e);
    if (found <= 0) {
        b->planes.n = 0;
        return found;
    }
    if (source->part == PART_KEYS && transpose_planes(b, name) != 0)
        return -1;
    return check_form(b, source, slot, name, first) == 0 ? take_input_scale(b, slot, &module) : -1;
}
