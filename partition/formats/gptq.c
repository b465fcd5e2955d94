/* partition/formats/gptq.c - GPTQ: integers of 4 or 8 bits, stored [in, out] and packed along the inputs; scales of
 * groups of inputs, [groups, out], and their zeros, packed along the outputs. The first version stores zeros minus
 * one. */
#include "partition/formats.h"

#include <string.h>

/* {"+:REGEX": changed settings, "-:REGEX": {}}: only modules that are left out ("-:") are supported. */
static void read_dynamic(const struct config *c)
{
    const json_t *rules = json_object_get(c->json, "dynamic");
    const char *key;
    json_t *value;
    if (!config_has(c, "dynamic"))
        return;
    json_object_foreach((json_t *)rules, key, value) if (strncmp(key, "-:", 2) != 0)
    {
        quantization_refuse(c, "dynamic", key, "rules \"-:...\", which leave modules out");
        return;
    }
}

static void config(struct quantization *q, const struct config *c)
{
    const char *key = config_has(c, "checkpoint_format") ? "checkpoint_format" : "format";
    const char *version = json_get_string(c->json, key, "gptq", c->what, c->e);
    q->format = FORMAT_GPTQ;
    q->bits = config_int(c, "bits", 4, 1, 32);
    q->group = config_int(c, "group_size", 128, -1, 1 << 20);
    q->zeros = !config_bool(c, "sym", true);
    q->zero_less_one = strcmp(version, "gptq") == 0;
    q->rule = MATCH_PARTS;
    if (strcmp(version, "gptq") != 0 && strcmp(version, "gptq_v2") != 0)
        quantization_refuse(c, key, version, "gptq or gptq_v2");
    if (q->bits != 4 && q->bits != 8)
        quantization_refuse(c, "bits", "another number", "4 or 8");
    q->reordered = config_bool(c, "desc_act", false) && q->group != -1;
    if (q->group == -1)
        q->group = 0;
    else if (q->group < 16)
        quantization_refuse(c, "group_size", "less than 16", "16 or more, or -1");
    read_dynamic(c);
}

static struct plane_source *add_plane(struct planes *p, const struct module *m, enum weight_plane plane,
                                      const char *suffix, const char *types, int64_t cell_cols, int64_t cell_rows,
                                      struct err *e)
{
    int tensor = module_tensor(m, suffix);
    const int64_t shape[2] = {(m->in + cell_cols - 1) / cell_cols, (m->out + cell_rows - 1) / cell_rows};
    if (tensor < 0) {
        (void)module_refuse(m, e, suffix, "is missing", "it beside qweight");
        return NULL;
    }
    struct plane_source *s = planes_add(p, m, plane, tensor, types, 2, shape, e);
    if (s == NULL)
        return NULL;
    s->cells.in_first = true;
    s->cells.cell_rows = cell_rows;
    s->cells.cell_cols = cell_cols;
    return s;
}

/* Symmetric matrices also have zeros in their files, all equal. */
static int add_zeros(struct planes *p, const struct module *m, int64_t group, struct err *e)
{
    int per_word = 32 / m->q->bits;
    struct plane_source *s =
        add_plane(p, m, m->q->zeros ? PLANE_ZEROS : PLANE_SAME_ZEROS, ".qzeros", "I32", group, per_word, e);
    if (s == NULL)
        return -1;
    s->cells.bits = m->q->bits;
    s->cells.fields = per_word;
    s->cells.field_output = true;
    s->cells.add = m->q->zero_less_one ? 1 : 0;
    return 0;
}

static int add_index(struct planes *p, const struct module *m, int64_t group, struct err *e)
{
    int index = module_tensor(m, ".g_idx");
    const int64_t inputs[1] = {m->in};
    if (index < 0 && m->q->reordered)
        return module_refuse(m, e, ".g_idx", "is missing", "it beside qweight, since \"desc_act\" is true");
    if (index < 0)
        return 0;
    struct plane_source *s = planes_add(p, m, PLANE_INDEX, index, "I32", 1, inputs, e);
    if (s == NULL)
        return -1;
    s->cells.cell_rows = m->out;
    s->cells.cell_cols = group;
    return 0;
}

static int planes_gptq(const struct module *m, struct planes *p, struct err *e)
{
    int64_t group = m->q->group > 0 ? m->q->group : m->in;
    int per_word = 32 / m->q->bits;
    if (module_tensor(m, ".qweight") < 0)
        return 0;
    if (module_tensor(m, ".weight") >= 0)
        return module_refuse(m, e, ".qweight", "and weight are both there", "one of them");
    *p = (struct planes){
        .form = {.codes = m->q->bits == 8 ? CODES_INT8 : CODES_INT4, .group = (int)group, .zeros = m->q->zeros}};
    struct plane_source *s = add_plane(p, m, PLANE_CODES, ".qweight", "I32", per_word, 1, e);
    if (s == NULL)
        return -1;
    s->cells.bits = m->q->bits;
    s->cells.fields = per_word;
    if (add_plane(p, m, PLANE_SCALES, ".scales", "F16|BF16|F32", group, 1, e) == NULL ||
        add_zeros(p, m, group, e) != 0 || add_index(p, m, group, e) != 0)
        return -1;
    return 1;
}

const struct quant_method method_gptq = {"gptq", config};
const struct format format_gptq = {"GPTQ", ".qweight", planes_gptq};
