/* partition/formats.c - the tables of quantised formats and of methods, and code that formats share. */
#include "partition/formats.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct quant_method *const methods[] = {&method_fp8,  &method_fbgemm, &method_compressed, &method_awq,
                                                     &method_gptq, &method_mxfp4,  &method_modelopt};

static const struct format *const formats[FORMAT_COUNT] = {
    [FORMAT_FP8] = &format_fp8,     [FORMAT_INT8] = &format_int8, [FORMAT_PACKED] = &format_packed,
    [FORMAT_AWQ] = &format_awq,     [FORMAT_GPTQ] = &format_gptq, [FORMAT_MXFP4] = &format_mxfp4,
    [FORMAT_NVFP4] = &format_nvfp4,
};

const struct format *format_of(const struct quantization *q)
{
    return formats[q->format];
}

const struct quant_method *quant_method_find(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i]->name, name) == 0)
            return methods[i];
    return NULL;
}

const char *quant_method_names(void)
{
    return "fp8, fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt";
}

int formats_find_codes(const struct checkpoint *c, const char *weight)
{
    size_t n = strlen(weight), end = strlen(".weight");
    n -= n > end && strcmp(weight + n - end, ".weight") == 0 ? end : 0;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        char name[200];
        if (formats[i] == NULL ||
            (size_t)snprintf(name, sizeof name, "%.*s%s", (int)n, weight, formats[i]->codes) >= sizeof name)
            continue;
        int tensor = checkpoint_find(c, name);
        if (tensor >= 0)
            return tensor;
    }
    return -1;
}

int module_tensor(const struct module *m, const char *suffix)
{
    char name[200];
    if ((size_t)snprintf(name, sizeof name, "%s%s", m->name, suffix) >= sizeof name)
        return -1;
    return checkpoint_find(m->c, name);
}

int module_refuse(const struct module *m, struct err *e, const char *suffix, const char *found, const char *expected)
{
    return ERR(e, ERR_UNSUPPORTED, "%s: tensor \"%.100s%s\" %.80s (%s), expected %s", checkpoint_short_path(m->c->dir),
               m->name, suffix, found, m->q->method, expected);
}

/* Is the text one of those of "a|b|c"? */
static bool one_of(const char *text, const char *list)
{
    size_t n = strlen(text);
    for (; *list != '\0'; list += strcspn(list, "|"), list += *list == '|')
        if (strcspn(list, "|") == n && memcmp(list, text, n) == 0)
            return true;
    return false;
}

static void format_shape(char *to, size_t bytes, int n, const int64_t *shape)
{
    size_t used = (size_t)snprintf(to, bytes, "[");
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    if (used < bytes)
        (void)snprintf(to + used, bytes - used, "]");
}

static bool set_number(struct weight_cells *cells, const char *type)
{
    static const struct {
        const char *type;
        enum cell_number number;
        int bytes;
    } table[] = {{"F32", CELL_F32, 4},      {"F16", CELL_F16, 2},      {"BF16", CELL_BF16, 2},
                 {"F8_E8M0", CELL_E8M0, 1}, {"F8_E4M3", CELL_BITS, 1}, {"U8", CELL_BITS, 1},
                 {"I8", CELL_BITS, 1},      {"I32", CELL_BITS, 4},     {"I64", CELL_I64, 8}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].type, type) == 0) {
            cells->number = table[i].number;
            cells->bytes = table[i].bytes;
            return true;
        }
    return false;
}

struct plane_source *planes_add(struct planes *p, const struct module *m, enum weight_plane plane, int tensor,
                                const char *types, int n_dims, const int64_t *shape, struct err *e)
{
    const struct tensor_info *t = &m->c->tensor[tensor];
    const char *type = m->c->text + t->dtype;
    const char *suffix = checkpoint_tensor_name(m->c, tensor) + strlen(m->name);
    char found[100], expected[60];
    struct plane_source *to = &p->plane[p->n];
    *to = (struct plane_source){.tensor = tensor, .cells = {.plane = plane, .fields = 1}};
    if (!one_of(type, types) || !set_number(&to->cells, type)) {
        (void)snprintf(found, sizeof found, "is %s", type);
        (void)module_refuse(m, e, suffix, found, types);
        return NULL;
    }
    if (t->n_dims != n_dims || memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape) != 0) {
        size_t used = (size_t)snprintf(found, sizeof found, "has shape ");
        format_shape(found + used, sizeof found - used, t->n_dims, t->shape);
        format_shape(expected, sizeof expected, n_dims, shape);
        (void)module_refuse(m, e, suffix, found, expected);
        return NULL;
    }
    to->cells.bits = to->cells.bytes * 8;
    p->n++;
    return to;
}

int planes_add_fours(struct planes *p, const struct module *m, int tensor, int n_dims, const int64_t *shape,
                     struct err *e)
{
    struct plane_source *s = planes_add(p, m, PLANE_CODES, tensor, "U8", n_dims, shape, e);
    if (s == NULL)
        return -1;
    s->cells.bits = 4;
    s->cells.fields = 2;
    s->cells.cell_rows = 1;
    s->cells.cell_cols = 2;
    return 0;
}

#define SCALE_TYPES "F32|BF16|F16|F8_E8M0"

int planes_add_scales(struct planes *p, const struct module *m, int tensor, int group, struct err *e)
{
    const struct tensor_info *t = &m->c->tensor[tensor];
    bool one = t->n_dims == 0 || (t->n_dims == 1 && t->shape[0] == 1 && m->out != 1);
    bool vector = !one && t->n_dims == 1;
    int64_t shape[2] = {one ? 1 : m->out, group > 0 ? (m->in + group - 1) / group : 1};
    if (t->n_dims == 2 && t->shape[0] == 1 && t->shape[1] == 1)
        shape[0] = 1, one = true; /* [1, 1] is accepted as [1] */
    int n_dims = t->n_dims < 2 && group == 0 ? t->n_dims : 2;
    struct plane_source *s = planes_add(p, m, PLANE_SCALES, tensor, SCALE_TYPES, n_dims, shape, e);
    if (s == NULL)
        return -1;
    p->form.group = group > 0 ? group : INT_MAX;
    s->cells.in_first = vector;
    s->cells.cell_rows = one ? m->out : 1;
    s->cells.cell_cols = group > 0 ? group : m->in;
    return 0;
}
