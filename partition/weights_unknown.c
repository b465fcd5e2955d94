/* partition/weights_unknown.c - tensors of a checkpoint that are not used: weight_unknown, see weights.h. */
#include "partition/families.h"
#include "partition/kv_scales.h"
#include "partition/weights.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* Does it belong to a layer after the model's own, which predicts further tokens? */
static bool is_predicting(const struct model_config *m, const char *name)
{
    const char *layer = strstr(name, "layers.");
    int number = 0;
    return layer != NULL && sscanf(layer, "layers.%9d.", &number) == 1 && number >= m->n_layers &&
           number < m->n_layers + m->n_predicting;
}

/* Is it a buffer, not a part of the language model, a tied head, a scale of quantised activations, keys or values, or
 * an order of inputs, which is read before the weights? */
static bool is_ignored(const struct family *family, const struct model_config *m, const char *name)
{
    if (ends_with(name, ".input_scale") || ends_with(name, ".input_global_scale") ||
        ends_with(name, ".weight_global_scale") || ends_with(name, ".weight_scale_2") || ends_with(name, ".q_scale") ||
        kv_scales_name(name) || (m->quantization.reordered && ends_with(name, "g_idx")))
        return true;
    for (const char *const *part = family->ignored; *part != NULL; part++)
        if (ends_with(*part, ".") ? strstr(name, *part) != NULL : ends_with(name, *part))
            return true;
    for (const struct weight_source *source = family->source; source->name != NULL; source++)
        if (m->tied_head && source->id == WEIGHT_HEAD && ends_with(name, source->name))
            return true;
    return false;
}

int weight_unknown(const struct weight_map *whole, const struct model_config *m, const struct checkpoint *c,
                   char *names, size_t names_bytes)
{
    const struct family *family = family_find(m->model_type);
    int n = 0, slice = 0;
    size_t used = 0;
    names[0] = '\0';
    for (int tensor = 0; tensor < c->n_tensors; tensor++) {
        while (slice < whole->n_slices && whole->slice[slice].tensor < tensor)
            slice++;
        const char *name = checkpoint_tensor_name(c, tensor);
        if ((slice < whole->n_slices && whole->slice[slice].tensor == tensor) || is_ignored(family, m, name) ||
            is_predicting(m, name))
            continue;
        const char *separator = used > 0 ? ", " : "";
        if (used + strlen(separator) + strlen(name) < names_bytes)
            used += (size_t)snprintf(names + used, names_bytes - used, "%s%s", separator, name);
        n++;
    }
    for (char *at = names; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?'; /* a message must stay one line */
    return n;
}
