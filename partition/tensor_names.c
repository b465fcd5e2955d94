/* partition/tensor_names.c - see tensor_names.h. */
#include "partition/tensor_names.h"

#include "partition/formats.h"

#include <stdio.h>
#include <string.h>

static bool in_list(const char *const *list, const char *name)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* The layer's number in the checkpoint; -1 stands for the model's own weights. */
static struct tensor_place in_checkpoint(const struct tensor_names *n, struct tensor_place at)
{
    return (struct tensor_place){at.layer >= 0 ? at.layer + n->m->first_layer : at.layer, at.expert};
}

/* The name in the file of a source's name: prefix, the layer in place of the first %d, the expert in that of the
 * second. */
static void file_name(const struct family *family, const struct tensor_prefixes *prefixes, const char *name,
                      struct tensor_place at, char *to, size_t bytes)
{
    const char *prefix = in_list(family->outside_prefix, name) ? prefixes->outside : prefixes->inside;
    size_t used = (size_t)snprintf(to, bytes, "%s", prefix);
    int number = at.layer;
    for (const char *percent; (percent = strstr(name, "%d")) != NULL && used < bytes; name = percent + 2) {
        used += (size_t)snprintf(to + used, bytes - used, "%.*s%d", (int)(percent - name), name, number);
        number = at.expert;
    }
    if (used < bytes)
        (void)snprintf(to + used, bytes - used, "%s", name);
}

bool tensor_names_expert(const struct weight_source *source)
{
    const char *layer = strstr(source->name, "%d");
    return layer != NULL && strstr(layer + 2, "%d") != NULL;
}

/* All names have the same prefixes; the first weight that is found under one of the family's prefixes decides which. */
static struct tensor_prefixes find_prefixes(const struct family *family, const struct checkpoint *c)
{
    const struct tensor_prefixes plain[] = {{family->prefix, ""}, {"", ""}};
    const struct tensor_prefixes wrapped[] = {
        {"language_model.model.", "language_model."}, {"model.language_model.", ""}, {family->prefix, ""}};
    const struct tensor_prefixes *known = family->wrapped != NOT_WRAPPED ? wrapped : plain;
    int n = family->wrapped == WRAPPED_OR_FLAT ? 3 : 2;
    for (const struct weight_source *source = family->source; source->name != NULL; source++)
        for (int i = 0; i < n && !in_list(family->outside_prefix, source->name); i++) {
            char name[128];
            file_name(family, &known[i], source->name, (struct tensor_place){0, 0}, name, sizeof name);
            if (checkpoint_find(c, name) >= 0)
                return known[i];
        }
    return known[0];
}

/* The name of a tensor without ".weight": that of the module. */
static void cut_weight(char *name)
{
    size_t n = strlen(name), end = strlen(".weight");
    if (n > end && strcmp(name + n - end, ".weight") == 0)
        name[n - end] = '\0';
}

/* The tensor, or the one that a quantised format has in its place. */
static bool is_there(const struct tensor_names *n, char *name, size_t bytes)
{
    const struct format *format = format_of(&n->m->quantization);
    if (checkpoint_find(n->c, name) >= 0 || format == NULL)
        return checkpoint_find(n->c, name) >= 0;
    cut_weight(name);
    size_t used = strlen(name);
    return (size_t)snprintf(name + used, bytes - used, "%s", format->codes) < bytes - used &&
           checkpoint_find(n->c, name) >= 0;
}

/* Two forms may have the same names, and the experts' matrices transposed in one of them. */
static bool lies_so(const struct tensor_names *n, const struct weight_source *source, const char *name)
{
    int tensor = checkpoint_find(n->c, name);
    if (tensor < 0 || source->id != WEIGHT_EXPERTS_OUT || n->c->tensor[tensor].n_dims != 3)
        return true;
    return n->c->tensor[tensor].shape[source->in_out ? 2 : 1] == n->m->hidden;
}

static bool in_any_layer(const struct tensor_names *n, const struct weight_source *source)
{
    for (int layer = 0; layer < n->m->n_layers; layer++) {
        char name[128];
        file_name(n->family, &n->prefixes, source->name, in_checkpoint(n, (struct tensor_place){layer, 0}), name,
                  sizeof name);
        if (is_there(n, name, sizeof name) && lies_so(n, source, name))
            return true;
    }
    return false;
}

/* The form whose first source is found; 1 if none is. */
static int find_form(const struct tensor_names *n)
{
    int last = 0;
    for (const struct weight_source *source = n->family->source; source->name != NULL; last = source++->form)
        if (source->form != last && source->form > 0 && in_any_layer(n, source))
            return source->form;
    return 1;
}

int tensor_names_find(const struct tensor_names *n, const struct weight_source *source, struct tensor_place at,
                      char *name, size_t bytes)
{
    at = in_checkpoint(n, at);
    file_name(n->family, &n->prefixes, source->name, at, name, bytes);
    int tensor = checkpoint_find(n->c, name);
    if (tensor >= 0 || source->id != WEIGHT_EMBED || !n->m->tied_head)
        return tensor;
    for (const struct weight_source *head = n->family->source; head->name != NULL; head++) {
        char other[128];
        if (head->id != WEIGHT_HEAD)
            continue;
        file_name(n->family, &n->prefixes, head->name, at, other, sizeof other);
        tensor = checkpoint_find(n->c, other);
    }
    return tensor;
}

void tensor_names_module(const struct tensor_names *n, const struct weight_source *source, struct tensor_place at,
                         char *name, size_t bytes)
{
    file_name(n->family, &n->prefixes, source->name, in_checkpoint(n, at), name, bytes);
    cut_weight(name);
}

void tensor_names_open(struct tensor_names *n, const struct family *family, const struct model_config *m,
                       const struct checkpoint *c)
{
    *n = (struct tensor_names){.family = family, .m = m, .c = c, .form = 1};
    n->prefixes = find_prefixes(family, c);
    n->form = find_form(n);
}
