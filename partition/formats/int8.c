/* partition/formats/int8.c - weights of 8 bits with a sign, with a scale for the matrix or for each row:
 * compressed-tensors' int-quantized. Stored as unsigned codes, so that integers of 8 and 4 bits are handled alike. */
#include "partition/formats.h"

#include <string.h>

static int planes_int8(const struct module *m, struct planes *p, struct err *e)
{
    int weight = module_tensor(m, ".weight"), scales = module_tensor(m, ".weight_scale");
    if (weight < 0)
        return 0;
    const char *type = m->c->text + m->c->tensor[weight].dtype;
    if (strcmp(type, "I8") != 0 && scales < 0)
        return 0;
    const int64_t shape[2] = {m->out, m->in};
    *p = (struct planes){.form = {.codes = CODES_INT8}};
    struct plane_source *s = planes_add(p, m, PLANE_CODES, weight, "I8", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.cell_rows = s->cells.cell_cols = 1;
    s->cells.add = 128;
    if (scales < 0)
        return module_refuse(m, e, ".weight", "has no scale beside it", "weight_scale");
    if (module_tensor(m, ".weight_zero_point") >= 0)
        return module_refuse(m, e, ".weight_zero_point", "is there", "symmetric weights");
    return planes_add_scales(p, m, scales, m->q->group, e) == 0 ? 1 : -1;
}

const struct format format_int8 = {"INT8", ".weight", planes_int8};
