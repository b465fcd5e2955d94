/* partition/formats/fp8.c - weights of 8 bits, E4M3, with a scale for the matrix, for each row, or for blocks:
 * DeepSeek's and Qwen's (quant_method fp8 with weight_block_size), AutoFP8's (without), Meta's (fbgemm_fp8),
 * compressed-tensors'. The tensor beside the weight is the scale that multiplies it, even where its name says
 * "inverse". */
#include "partition/formats.h"

#include <string.h>

static bool is_block(int n)
{
    return n == 1 || n == 32 || n == 64 || n == 128;
}

static void read_block(struct quantization *q, const struct config *c)
{
    const json_t *size = json_object_get(c->json, "weight_block_size");
    if (!config_has(c, "weight_block_size"))
        return;
    json_int_t rows = json_integer_value(json_array_get(size, 0)), cols = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows > 128 || cols > 128 || !is_block((int)rows) || !is_block((int)cols) ||
        cols < 32) {
        quantization_refuse(c, "weight_block_size", "another size",
                            "[rows, columns]: 1, 32, 64 or 128 rows, 32, 64 or "
                            "128 columns");
        return;
    }
    q->block_rows = (int)rows;
    q->block_cols = (int)cols;
}

static void config_fp8(struct quantization *q, const struct config *c)
{
    const char *fmt = json_get_string(c->json, "fmt", "e4m3", c->what, c->e);
    const char *scheme = json_get_string(c->json, "activation_scheme", "dynamic", c->what, c->e);
    const char *experts = json_get_string(c->json, "expert_dtype", "fp8", c->what, c->e);
    q->format = FORMAT_FP8;
    q->bits = 8;
    q->rule = MATCH_PARTS;
    if (strcmp(fmt, "e4m3") != 0)
        quantization_refuse(c, "fmt", fmt, "e4m3");
    if (strcmp(experts, "fp8") != 0)
        quantization_refuse(c, "expert_dtype", experts, "fp8");
    if (strcmp(scheme, "static") != 0 && strcmp(scheme, "dynamic") != 0)
        quantization_refuse(c, "activation_scheme", scheme, "static or dynamic");
    q->activations = strcmp(scheme, "static") == 0 ? ACTIVATIONS_STATIC : ACTIVATIONS_DYNAMIC;
    read_block(q, c);
    q->inputs_known = q->activations == ACTIVATIONS_DYNAMIC || q->block_cols == 0;
    q->input_group = q->block_cols;
    quantization_list(q, c, "modules_to_not_convert|ignored_layers");
}

static void config_fbgemm(struct quantization *q, const struct config *c)
{
    q->format = FORMAT_FP8;
    q->bits = 8;
    q->rule = MATCH_PARTS;
    q->activations = ACTIVATIONS_DYNAMIC;
    q->inputs_known = true;
    q->input_most = (float)config_real(c, "activation_scale_ub", 0, 0, 1e30);
    quantization_list(q, c, "modules_to_not_convert");
}

/* The tensor of the scales, or -1. */
static int find_scales(const struct module *m, struct err *e)
{
    static const char *const suffix[] = {".weight_scale_inv", ".weight_scale", ".scale", ".qscale_weight"};
    int found = -1;
    for (size_t i = 0; i < sizeof suffix / sizeof suffix[0]; i++) {
        int tensor = module_tensor(m, suffix[i]);
        if (tensor >= 0 && found >= 0)
            return module_refuse(m, e, suffix[i], "is a second scale", "one of the two");
        found = tensor >= 0 ? tensor : found;
    }
    return found;
}

static int add_blocks(struct planes *p, const struct module *m, int tensor, struct err *e)
{
    int rows = m->q->block_rows, cols = m->q->block_cols;
    const int64_t shape[2] = {(m->out + rows - 1) / rows, (m->in + cols - 1) / cols};
    struct plane_source *s = planes_add(p, m, PLANE_SCALES, tensor, "F32|BF16|F16|F8_E8M0|U8", 2, shape, e);
    if (s == NULL)
        return -1;
    if (s->cells.number == CELL_BITS) /* U8: the exponents of scale_fmt ue8m0 */
        s->cells.number = CELL_E8M0;
    p->form.group = cols;
    s->cells.cell_rows = rows;
    s->cells.cell_cols = cols;
    return 0;
}

static int planes_fp8(const struct module *m, struct planes *p, struct err *e)
{
    int weight = module_tensor(m, ".weight"), scales = find_scales(m, e);
    if (weight < 0 || e->code != ERR_NONE)
        return e->code == ERR_NONE ? 0 : -1;
    const char *type = m->c->text + m->c->tensor[weight].dtype;
    bool dense = strcmp(type, "F32") == 0 || strcmp(type, "F16") == 0 || strcmp(type, "BF16") == 0;
    if (dense && scales < 0)
        return 0;
    const int64_t shape[2] = {m->out, m->in};
    *p = (struct planes){.form = {.codes = CODES_E4M3}};
    struct plane_source *s = planes_add(p, m, PLANE_CODES, weight, "F8_E4M3|U8|I8", 2, shape, e);
    if (s == NULL)
        return -1;
    s->cells.cell_rows = s->cells.cell_cols = 1;
    if (scales < 0)
        return module_refuse(m, e, ".weight", "has no scale beside it", "weight_scale_inv or weight_scale");
    int rc = m->q->block_rows > 0 ? add_blocks(p, m, scales, e) : planes_add_scales(p, m, scales, 0, e);
    return rc == 0 ? 1 : -1;
}

const struct quant_method method_fp8 = {"fp8", config_fp8};
const struct quant_method method_fbgemm = {"fbgemm_fp8", config_fbgemm};
const struct format format_fp8 = {"FP8", ".weight", planes_fp8};
