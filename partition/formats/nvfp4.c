/* partition/formats/nvfp4.c - FP4 in groups of 16 inputs, each with a scale in E4M3, and a number for the whole matrix:
 * compressed-tensors divides by that number (weight_packed, weight_global_scale), ModelOpt multiplies by it (weight,
 * weight_scale_2). Activations are not quantised: their scales are not read. */
#include "partition/formats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GROUP 16

/* The factor that multiplies the scales, from the per-matrix number. 0: refused. */
static float factor_of(const struct module *m, bool divides, struct err *e)
{
    const char *suffix = divides ? ".weight_global_scale" : ".weight_scale_2";
    int tensor = module_tensor(m, suffix);
    char found[60];
    if (tensor < 0) {
        (void)module_refuse(m, e, suffix, "is missing", "a number beside the codes");
        return 0;
    }
    float x = m->c->scalar != NULL ? m->c->scalar[tensor] : 0;
    if (!(x > 0) || isinf(x) || isinf(1 / x)) {
        (void)snprintf(found, sizeof found, "is %s, %g", m->c->text + m->c->tensor[tensor].dtype, (double)x);
        (void)module_refuse(m, e, suffix, found, "one positive number, F32");
        return 0;
    }
    return divides ? 1 / x : x;
}

static int add_parts(struct planes *p, const struct module *m, int codes, int scales, float factor, struct err *e)
{
    const int64_t pairs[2] = {m->out, (m->in + 1) / 2}, groups[2] = {m->out, (m->in + GROUP - 1) / GROUP};
    if (planes_add_fours(p, m, codes, 2, pairs, e) != 0)
        return -1;
    struct plane_source *s = planes_add(p, m, PLANE_SCALES, scales, "F8_E4M3", 2, groups, e);
    if (s == NULL)
        return -1;
    s->cells.number = CELL_E4M3;
    s->cells.factor = factor;
    s->cells.cell_rows = 1;
    s->cells.cell_cols = GROUP;
    return 0;
}

static int planes_nvfp4(const struct module *m, struct planes *p, struct err *e)
{
    int packed = module_tensor(m, ".weight_packed"), weight = module_tensor(m, ".weight");
    int scales = module_tensor(m, ".weight_scale"), codes = packed >= 0 ? packed : weight;
    const char *suffix = packed >= 0 ? ".weight_packed" : ".weight";
    if (packed >= 0 && weight >= 0)
        return module_refuse(m, e, ".weight_packed", "and weight are both there", "one of them");
    if (codes < 0 || strcmp(m->c->text + m->c->tensor[codes].dtype, "U8") != 0)
        return 0;
    if (scales < 0)
        return module_refuse(m, e, suffix, "has no scale beside it", "weight_scale");
    *p = (struct planes){.form = {.codes = CODES_E2M1, .scale = SCALE_F32, .group = GROUP}};
    float factor = factor_of(m, packed >= 0, e);
    return factor > 0 && add_parts(p, m, codes, scales, factor, e) == 0 ? 1 : -1;
}

const struct format format_nvfp4 = {"NVFP4", ".weight_packed", planes_nvfp4};
