/* text/tokenizer/template.c - see template.h. */
#include "text/tokenizer/template.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 1024

struct items { /* a template under construction */
    int32_t item[MAX_ITEMS];
    size_t n;
};

void template_close(struct template *t)
{
    free(t->item);
    *t = (struct template){0};
}

static int add_item(struct items *to, const struct source *l, int32_t item)
{
    if (to->n == MAX_ITEMS)
        return ERR(l->e, ERR_INPUT, "%s: the post_processor makes more than %d ids", l->file, MAX_ITEMS);
    to->item[to->n++] = item;
    return 0;
}

static int add_id(struct items *to, const struct source *l, const json_t *id, int32_t n_ids, const char *what)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_ids)
        return ERR(l->e, ERR_INPUT, "%s: post_processor %s has the id %lld, expected an integer in [0, %d]", l->file,
                   what, json_is_integer(id) ? (long long)json_integer_value(id) : -1LL, (int)n_ids - 1);
    return add_item(to, l, (int32_t)json_integer_value(id));
}

static int add_all(struct items *to, const struct source *l, const struct items *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (add_item(to, l, from->item[i]) != 0)
            return -1;
    return 0;
}

/* {"SpecialToken": {"id": name}}: its ids stand in "special_tokens" under that name. */
static int add_special(struct items *to, const struct source *l, const json_t *part, const json_t *special,
                       int32_t n_ids)
{
    const json_t *name = json_object_get(special, "id");
    const json_t *entry =
        json_is_string(name) ? json_object_get(json_object_get(part, "special_tokens"), json_string_value(name)) : NULL;
    const json_t *ids = json_object_get(entry, "ids");
    if (!json_is_array(ids) || json_array_size(ids) == 0)
        return ERR(l->e, ERR_INPUT,
                   "%s: post_processor: the template's token \"%.60s\" has no ids in \"special_tokens\"", l->file,
                   json_is_string(name) ? json_string_value(name) : "?");
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (add_id(to, l, json_array_get(ids, i), n_ids, "TemplateProcessing") != 0)
            return -1;
    return 0;
}

static int apply_template(struct items *now, const struct source *l, const json_t *part, int32_t n_ids)
{
    const json_t *single = json_object_get(part, "single");
    struct items *next = err_calloc(l->e, 1, sizeof *next, "post_processor");
    int rc = next == NULL ? -1 : 0;
    if (rc == 0 && !json_is_array(single))
        rc = ERR(l->e, ERR_INPUT, "%s: post_processor \"single\" is %s, expected an array", l->file,
                 json_type_name(single));
    for (size_t i = 0; rc == 0 && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        const json_t *id = json_object_get(json_object_get(item, "Sequence"), "id");
        if (special != NULL)
            rc = add_special(next, l, part, special, n_ids);
        else if (json_is_string(id) && strcmp(json_string_value(id), "A") == 0)
            rc = add_all(next, l, now);
        else
            rc = ERR(l->e, ERR_INPUT,
                     "%s: post_processor \"single\"[%zu] is neither a SpecialToken nor the Sequence \"A\"", l->file, i);
    }
    if (rc == 0)
        *now = *next;
    free(next);
    return rc;
}

/* RobertaProcessing, BertProcessing: "cls" and "sep" are [content, id]. */
static int apply_cls_sep(struct items *now, const struct source *l, const json_t *part, int32_t n_ids)
{
    struct items *next = err_calloc(l->e, 1, sizeof *next, "post_processor");
    int rc = next == NULL ? -1 : add_id(next, l, json_array_get(json_object_get(part, "cls"), 1), n_ids, "\"cls\"");
    if (rc == 0)
        rc = add_all(next, l, now);
    if (rc == 0)
        rc = add_id(next, l, json_array_get(json_object_get(part, "sep"), 1), n_ids, "\"sep\"");
    if (rc == 0)
        *now = *next;
    free(next);
    return rc;
}

static int apply_part(struct items *now, const struct source *l, const json_t *part, int32_t n_ids)
{
    const char *type = source_type(l, part, "post_processor");
    if (type == NULL)
        return -1;
    if (strcmp(type, "ByteLevel") == 0) /* changes offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return apply_template(now, l, part, n_ids);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return apply_cls_sep(now, l, part, n_ids);
    if (strcmp(type, "Sequence") != 0)
        return ERR(l->e, ERR_UNSUPPORTED,
                   "%s: post_processor type \"%.40s\" is not supported; supported: ByteLevel, TemplateProcessing, "
                   "RobertaProcessing, BertProcessing, Sequence",
                   l->file, type);
    const json_t *list = source_sequence(l, part, "processors", "post_processor Sequence");
    if (list == NULL)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (apply_part(now, l, json_array_get(list, i), n_ids) != 0)
            return -1;
    return 0;
}

static int keep_items(struct template *t, const int32_t *item, size_t n, struct err *e)
{
    int32_t *copy = err_calloc(e, n, sizeof *copy, "post_processor");
    if (copy == NULL)
        return -1;
    if (n > 0)
        memcpy(copy, item, n * sizeof *copy);
    template_close(t);
    t->item = copy;
    t->n = n;
    return 0;
}

int template_load(struct template *t, const struct source *l, const json_t *part, int32_t n_ids)
{
    if (part == NULL || json_is_null(part))
        return 0;
    struct items *now = err_calloc(l->e, 1, sizeof *now, "post_processor");
    if (now == NULL)
        return -1;
    now->item[now->n++] = TEMPLATE_TEXT;
    int rc = apply_part(now, l, part, n_ids);
    if (rc == 0)
        rc = keep_items(t, now->item, now->n, l->e);
    free(now);
    return rc;
}

int template_set(struct template *t, int32_t bos, int32_t eos, struct err *e)
{
    int32_t item[3];
    size_t n = 0;
    if (bos >= 0)
        item[n++] = bos;
    item[n++] = TEMPLATE_TEXT;
    if (eos >= 0)
        item[n++] = eos;
    return keep_items(t, item, n, e);
}
