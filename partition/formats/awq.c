/* partition/formats/awq.c - AutoAWQ's "gemm": integers of 4 bits, stored [in, out] and packed along the outputs in
 * AutoAWQ's own order; scales and zeros of groups of inputs, [groups, out]. */
#include "partition/formats.h"

#include <string.h>
#include <strings.h>

#define PER_WORD 8

static void config(struct quantization *q, const struct config *c)
{
    const char *version =
        json_get_string(c->json, config_has(c, "version") ? "version" : "format", "gemm", c->what, c->e);
    q->format = FORMAT_AWQ;
    q->bits = config_int(c, "bits|w_bit", 4, 1, 32);
    q->group = config_int(c, "group_size|q_group_size", 128, -1, 1 << 20);
    q->zeros = true;
    q->rule = MATCH_SUBSTRING;
    if (strcasecmp(version, "gemm") != 0)
        quantization_refuse(c, "version", version, "gemm");
    if (q->bits != 4)
        quantization_refuse(c, "bits", "another number", "4");
    if (!config_bool(c, "zero_point", true))
        quantization_refuse(c, "zero_point", "false", "true");
    if (q->group == -1)
        q->group = 0;
    else if (q->group < 16)
        quantization_refuse(c, "group_size", "less than 16", "16 or more, or -1");
    quantization_list(q, c, "modules_to_not_convert");
}

static int add_words(struct planes *p, const struct module *m, enum weight_plane plane, const char *suffix,
                     int64_t cell_cols, struct err *e)
{
    int tensor = module_tensor(m, suffix);
    const int64_t shape[2] = {(m->in + cell_cols - 1) / cell_cols, (m->out + PER_WORD - 1) / PER_WORD};
    if (tensor < 0)
        return module_refuse(m, e, suffix, "is missing", "it beside qweight");
    struct plane_source *s = planes_add(p, m, plane, tensor, "I32", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.in_first = s->cells.field_output = s->cells.field_awq = true;
    s->cells.bits = 4;
    s->cells.fields = PER_WORD;
    s->cells.cell_rows = PER_WORD;
    s->cells.cell_cols = cell_cols;
    return 0;
}

static int planes_awq(const struct module *m, struct planes *p, struct err *e)
{
    int64_t group = m->q->group > 0 ? m->q->group : m->in;
    int scales = module_tensor(m, ".scales");
    if (module_tensor(m, ".qweight") < 0)
        return 0;
    if (module_tensor(m, ".weight") >= 0)
        return module_refuse(m, e, ".qweight", "and weight are both there", "one of them");
    if (scales < 0)
        return module_refuse(m, e, ".qweight", "has no scales beside it", "scales");
    *p = (struct planes){.form = {.codes = CODES_INT4, .group = (int)group, .zeros = true}};
    if (add_words(p, m, PLANE_CODES, ".qweight", 1, e) != 0 || add_words(p, m, PLANE_ZEROS, ".qzeros", group, e) != 0)
        return -1;
    const int64_t shape[2] = {(m->in + group - 1) / group, m->out};
    struct plane_source *s = planes_add(p, m, PLANE_SCALES, scales, "F16|BF16|F32", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.in_first = true;
    s->cells.cell_rows = 1;
    s->cells.cell_cols = group;
    return 1;
}

const struct quant_method method_awq = {"awq", config};
const struct format format_awq = {"AWQ", ".qweight", planes_awq};
