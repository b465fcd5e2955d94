/* partition/formats/mxfp4.c - gpt-oss' experts: FP4 in blocks of 32 inputs, each with an exponent; all experts of a
 * layer in one tensor, [experts, out, in], unlike the same weights in 16 bits. */
#include "partition/formats.h"

#define BLOCK 32

static void config(struct quantization *q, const struct config *c)
{
    q->format = FORMAT_MXFP4;
    q->bits = 4;
    q->group = BLOCK;
    q->rule = MATCH_PARTS;
    quantization_list(q, c, "modules_to_not_convert");
}

static int planes_mxfp4(const struct module *m, struct planes *p, struct err *e)
{
    int blocks = module_tensor(m, "_blocks"), scales = module_tensor(m, "_scales");
    if (blocks < 0)
        return 0;
    if (module_tensor(m, "") >= 0)
        return module_refuse(m, e, "_blocks", "and the 16-bit weight are both there", "one of them");
    if (scales < 0)
        return module_refuse(m, e, "_blocks", "has no scales beside it", "_scales");
    const int64_t shape[4] = {m->experts, m->out, (m->in + BLOCK - 1) / BLOCK, BLOCK / 2};
    *p = (struct planes){.form = {.codes = CODES_E2M1, .scale = SCALE_E8M0, .group = BLOCK}};
    if (planes_add_fours(p, m, blocks, 4, shape, e) != 0)
        return -1;
    struct plane_source *s = planes_add(p, m, PLANE_SCALES, scales, "U8|F8_E8M0", 3, shape, e);
    if (s == NULL)
        return -1;
    s->cells.number = CELL_E8M0;
    s->cells.cell_rows = 1;
    s->cells.cell_cols = BLOCK;
    return 1;
}

const struct quant_method method_mxfp4 = {"mxfp4", config};
const struct format format_mxfp4 = {"MXFP4", "_blocks", planes_mxfp4};
