/* partition/formats/packed.c - integers of 4 or 8 bits, packed into words along the inputs, with a scale for each group
 * of inputs or for each row: compressed-tensors' pack-quantized. Zeros, where there are any, are packed along the
 * outputs. */
#include "partition/formats.h"

static int add_codes(struct planes *p, const struct module *m, int packed, struct err *e)
{
    int per_word = 32 / m->q->bits;
    const int64_t shape[2] = {m->out, (m->in + per_word - 1) / per_word};
    struct plane_source *s = planes_add(p, m, PLANE_CODES, packed, "I32", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.bits = m->q->bits;
    s->cells.fields = per_word;
    s->cells.cell_rows = 1;
    s->cells.cell_cols = per_word;
    return 0;
}

static int add_zeros(struct planes *p, const struct module *m, int group, struct err *e)
{
    int per_word = 32 / m->q->bits, zeros = module_tensor(m, ".weight_zero_point");
    const int64_t shape[2] = {(m->out + per_word - 1) / per_word, group > 0 ? (m->in + group - 1) / group : 1};
    if (zeros < 0)
        return module_refuse(m, e, ".weight_zero_point", "is missing", "zeros, since \"symmetric\" is false");
    struct plane_source *s = planes_add(p, m, PLANE_ZEROS, zeros, "I32", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.bits = m->q->bits;
    s->cells.fields = per_word;
    s->cells.field_output = true;
    s->cells.cell_rows = per_word;
    s->cells.cell_cols = group > 0 ? group : m->in;
    p->form.zeros = true;
    return 0;
}

/* Tensors beside the codes that must agree with the config and the codes. */
static int add_checks(struct planes *p, const struct module *m, int group, struct err *e)
{
    int shape = module_tensor(m, ".weight_shape"), index = module_tensor(m, ".weight_g_idx");
    const int64_t two[1] = {2}, inputs[1] = {m->in};
    struct plane_source *s = NULL;
    if (shape >= 0 && (s = planes_add(p, m, PLANE_SHAPE, shape, "I64|I32", 1, two, e)) == NULL)
        return -1;
    if (shape >= 0) {
        s->cells.cell_rows = m->out;
        s->cells.cell_cols = m->in;
    }
    if (index < 0 && m->q->reordered)
        return module_refuse(m, e, ".weight_g_idx", "is missing", "it beside the codes, since \"actorder\" is group");
    if (index >= 0 && (s = planes_add(p, m, PLANE_INDEX, index, "I32", 1, inputs, e)) == NULL)
        return -1;
    if (index >= 0) {
        s->cells.cell_rows = m->out;
        s->cells.cell_cols = group > 0 ? group : m->in;
    }
    return 0;
}

static int planes_packed(const struct module *m, struct planes *p, struct err *e)
{
    int packed = module_tensor(m, ".weight_packed"), scales = module_tensor(m, ".weight_scale");
    if (packed < 0)
        return 0;
    if (module_tensor(m, ".weight") >= 0)
        return module_refuse(m, e, ".weight_packed", "and weight are both there", "one of them");
    if (scales < 0)
        return module_refuse(m, e, ".weight_packed", "has no scale beside it", "weight_scale");
    *p = (struct planes){.form = {.codes = m->q->bits == 8 ? CODES_INT8 : CODES_INT4}};
    if (add_codes(p, m, packed, e) != 0 || planes_add_scales(p, m, scales, m->q->group, e) != 0 ||
        add_checks(p, m, m->q->group, e) != 0)
        return -1;
    return m->q->zeros && add_zeros(p, m, m->q->group, e) != 0 ? -1 : 1;
}

const struct format format_packed = {"packed integers", ".weight_packed", planes_packed};
