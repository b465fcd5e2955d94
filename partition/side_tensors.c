/* partition/side_tensors.c - see side_tensors.h. */
#include "partition/side_tensors.h"
#include "partition/kv_scales.h"
#include "partition/tied_head.h"
#include "partition/xielu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ORDERS ((int64_t)1 << 28) /* numbers of all tensors together */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Does the tensor give the group of every input (g_idx)? Those of experts are not read here; their inputs must be in
 * order, which loading checks. */
static bool is_order(const struct checkpoint *c, int tensor)
{
    const struct tensor_info *t = &c->tensor[tensor];
    const char *name = checkpoint_tensor_name(c, tensor);
    return (ends_with(name, ".g_idx") || ends_with(name, ".weight_g_idx")) && strstr(name, ".experts.") == NULL &&
           strcmp(c->text + t->dtype, "I32") == 0 && t->n_dims == 1;
}

static int refuse_size(const struct checkpoint *c, struct err *e)
{
    return ERR(e, ERR_UNSUPPORTED, "%s: groups of inputs (g_idx) of more than %lld numbers, at most that many are read",
               checkpoint_short_path(c->dir), (long long)MAX_ORDERS);
}

static int read_orders(struct checkpoint *c, struct err *e)
{
    c->order_at = err_calloc(e, (size_t)c->n_tensors + 1, sizeof *c->order_at, "the order of inputs");
    if (c->order_at == NULL)
        return -1;
    c->n_orders = c->n_tensors;
    for (int i = 0; i < c->n_tensors; i++) {
        c->order_at[i] = is_order(c, i) ? c->n_order : -1;
        c->n_order += c->order_at[i] >= 0 ? c->tensor[i].shape[0] : 0;
        if (c->n_order > MAX_ORDERS)
            return refuse_size(c, e);
    }
    c->order = err_calloc(e, (size_t)c->n_order + 1, sizeof *c->order, "the order of inputs");
    for (int i = 0; i < c->n_tensors && c->order != NULL; i++)
        if (c->order_at[i] >= 0 && checkpoint_read_tensor(c, i, c->order + c->order_at[i], e) != 0)
            return -1;
    return c->order != NULL ? 0 : -1;
}

/* Reads the scale of a matrix's activations. */
static int read_input_scale(struct checkpoint *c, int tensor, struct err *e)
{
    float *scale = &c->input_scale[tensor];
    if (checkpoint_read_number(c, tensor, scale, e) != 0)
        return -1;
    if (*scale > 0 && isfinite(*scale))
        return 0;
    return ERR(e, ERR_UNSUPPORTED, "%s: tensor \"%.120s\" is %g, expected a positive number",
               checkpoint_short_path(c->dir), checkpoint_tensor_name(c, tensor), (double)*scale);
}

static int read_input_scales(struct checkpoint *c, struct err *e)
{
    c->input_scale = err_calloc(e, (size_t)c->n_tensors + 1, sizeof *c->input_scale, "scales of activations");
    if (c->input_scale == NULL)
        return -1;
    c->n_input_scales = c->n_tensors;
    for (int i = 0; i < c->n_tensors; i++)
        if (ends_with(checkpoint_tensor_name(c, i), ".input_scale") && read_input_scale(c, i, e) != 0)
            return -1;
    return 0;
}

int side_tensors_read(struct checkpoint *c, struct model_config *m, struct err *e)
{
    if (tied_head_read(c, m, e) != 0 || xielu_read(c, m, e) != 0)
        return -1;
    if (m->kv_fp8 && kv_scales_read(c, m, e) != 0)
        return -1;
    if (m->quantised_inputs && m->quantization.activations == ACTIVATIONS_STATIC && read_input_scales(c, e) != 0)
        return -1;
    return m->quantization.reordered ? read_orders(c, e) : 0;
}
