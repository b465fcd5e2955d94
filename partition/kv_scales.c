/* partition/kv_scales.c - see kv_scales.h. Quantisers store them beside the projections or the attention, under various
 * names; the number in the name is the layer. */
#include "partition/kv_scales.h"
#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends of names, and what their scales apply to. */
static const struct {
    const char *end;
    bool k, v;
} table[] = {{".k_scale", true, false},
             {".v_scale", false, true},
             {".kv_scale", true, true},
             {".k_proj.output_scale", true, false},
             {".v_proj.output_scale", false, true}};

#define N_ENDS (sizeof table / sizeof table[0])

/* N_ENDS: another tensor. */
static size_t find_end(const char *name)
{
    size_t n = strlen(name), i = 0;
    for (; i < N_ENDS; i++) {
        size_t end = strlen(table[i].end);
        if (n > end && strcmp(name + n - end, table[i].end) == 0)
            break;
    }
    return i;
}

bool kv_scales_name(const char *name)
{
    return find_end(name) < N_ENDS;
}

/* The first part of the name that is a number, or -1. */
static int layer_of(const char *name)
{
    for (const char *part = name; part != NULL; part = strchr(part, '.') != NULL ? strchr(part, '.') + 1 : NULL) {
        size_t n = strspn(part, "0123456789");
        if (n > 0 && n < 6 && part[n] == '.')
            return atoi(part);
    }
    return -1;
}

static int refuse(const struct checkpoint *c, int tensor, const char *found, const char *expected, struct err *e)
{
    return ERR(e, ERR_UNSUPPORTED,
               "%s: tensor \"%.100s\" %.80s, expected %s: --kv-cache-dtype fp8 needs the scales of keys and values",
               checkpoint_short_path(c->dir), checkpoint_tensor_name(c, tensor), found, expected);
}

/* The tensor's numbers, one or n_heads, as n_heads floats. */
static int read_numbers(const struct checkpoint *c, int tensor, int n_heads, float *to, struct err *e)
{
    const struct tensor_info *t = &c->tensor[tensor];
    const char *type = c->text + t->dtype;
    enum dtype is = DTYPE_F32;
    int64_t n = 1;
    char found[60];
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    while (is < DTYPE_COUNT && strcmp(type, dtype_name(is)) != 0)
        is++;
    if (is == DTYPE_COUNT) {
        (void)snprintf(found, sizeof found, "is %.20s", type);
        return refuse(c, tensor, found, "F32, F16 or BF16", e);
    }
    if ((n != 1 && n != n_heads) || (t->n_dims > 0 && t->shape[0] != n)) {
        (void)snprintf(found, sizeof found, "has %lld elements", (long long)n);
        return refuse(c, tensor, found, "one, or one for each KV head", e);
    }
    unsigned char *bytes = err_calloc(e, (size_t)n, sizeof(float), "scales of keys and values");
    int rc = bytes == NULL ? -1 : checkpoint_read_tensor(c, tensor, bytes, e);
    for (int h = 0; h < n_heads && rc == 0; h++) {
        to[h] = dtype_load(bytes, is, n == 1 ? 0 : (size_t)h);
        if (!(to[h] > 0) || !isfinite(to[h])) {
            (void)snprintf(found, sizeof found, "has the scale %g", (double)to[h]);
            rc = refuse(c, tensor, found, "positive numbers", e);
        }
    }
    free(bytes);
    return rc;
}

/* Stores a tensor of scales as those of keys, of values, or both; entries not set before are 0. */
static int take_scales(struct checkpoint *c, int tensor, size_t kind, const struct model_config *m, struct err *e)
{
    const char *name = checkpoint_tensor_name(c, tensor);
    int layer = layer_of(name), n = m->n_kv_heads;
    if (layer < 0 || layer >= m->n_layers)
        return refuse(c, tensor, "is of no layer of the model", "the number of a layer in its name", e);
    float *at = c->kv_scale + (size_t)layer * 2 * (size_t)n;
    for (int part = 0; part < 2; part++, at += n) {
        if (!(part == 0 ? table[kind].k : table[kind].v))
            continue;
        if (*at != 0)
            return refuse(c, tensor, "is a second scale", "one for keys and one for values of a layer", e);
        if (read_numbers(c, tensor, n, at, e) != 0)
            return -1;
    }
    return 0;
}

/* Checks that either all layers have both scales or none has any. n: number of tensors found. */
static int check_all(struct checkpoint *c, const struct model_config *m, int n, struct err *e)
{
    for (int i = 0; i < 2 * m->n_layers && n > 0; i++)
        if (c->kv_scale[(size_t)i * (size_t)m->n_kv_heads] == 0)
            return ERR(e, ERR_UNSUPPORTED,
                       "%s: layer %d has no scale of %s for --kv-cache-dtype fp8, expected one in every layer, or in "
                       "none",
                       checkpoint_short_path(c->dir), i / 2, i % 2 == 0 ? "keys" : "values");
    if (n == 0) {
        free(c->kv_scale);
        c->kv_scale = NULL;
    }
    c->n_kv_scales = n > 0 ? 2 * m->n_layers * m->n_kv_heads : 0;
    return 0;
}

int kv_scales_read(struct checkpoint *c, const struct model_config *m, struct err *e)
{
    int n = 0;
    if (m->quantization.kv == KV_DECLARED_OTHERWISE)
        return ERR(e, ERR_UNSUPPORTED,
                   "%s: --kv-cache-dtype fp8: config.json (%s) has keys and values quantised otherwise, expected FP8 "
                   "that is not dynamic; without the option they are kept as activations are",
                   checkpoint_short_path(c->dir), m->quantization.method);
    c->kv_scale = err_calloc(e, 2 * (size_t)m->n_layers * (size_t)m->n_kv_heads, sizeof *c->kv_scale,
                             "scales of keys and values");
    if (c->kv_scale == NULL)
        return -1;
    for (int i = 0; i < c->n_tensors; i++) {
        size_t kind = find_end(checkpoint_tensor_name(c, i));
        if (kind == N_ENDS)
            continue;
        if (take_scales(c, i, kind, m, e) != 0)
            return -1;
        n++;
    }
    return check_all(c, m, n, e);
}
