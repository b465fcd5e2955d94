/* text/template/json.c - json.dumps(), and values from JSON. */
#include "text/template/json.h"

#include "text/template/renderer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_unit(struct builder *b, unsigned unit)
{
    char out[16];
    (void)snprintf(out, sizeof out, "\\u%04x", unit);
    build_string(b, out, true);
}

static void write_character(struct builder *b, int32_t cp, struct text as, bool ascii)
{
    static const char plain[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (const char *p = plain; *p != '\0'; p += 2)
        if (*p == cp) {
            build_string(b, "\\", true);
            build_bytes(b, p + 1, 1, true);
            return;
        }
    if (cp >= 0x10000 && ascii) {
        write_unit(b, 0xd800 + ((unsigned)(cp - 0x10000) >> 10));
        write_unit(b, 0xdc00 + ((unsigned)(cp - 0x10000) & 0x3ff));
    } else if (cp < 0x20 || (ascii && cp > 0x7e)) {
        write_unit(b, (unsigned)cp);
    } else {
        build(b, as);
    }
}

static void write_string(struct builder *b, struct text t, bool ascii)
{
    size_t from = 0;
    build_string(b, "\"", true);
    for (size_t at = 0, next; at < t.n; at = next) {
        unsigned char c = (unsigned char)t.s[at];
        next = at + 1;
        if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7f))
            continue;
        next = text_next(t, at);
        build(b, text_slice(t, from, at));
        write_character(b, text_char(t, at), text_slice(t, at, next), ascii);
        from = next;
    }
    build(b, text_slice(t, from, t.n));
    build_string(b, "\"", true);
}

struct writer {
    struct renderer *m;
    struct builder b;
    const struct json_style *style;
    int level;
};

static void write_json(struct writer *w, struct value v);

static void new_line(struct writer *w)
{
    if (!w->style->lines)
        return;
    build_string(&w->b, "\n", true);
    for (int i = 0; i < w->level; i++)
        build(&w->b, w->style->indent);
}

static void write_array(struct writer *w, const struct list *l)
{
    if (l->form > FORM_TUPLE)
        renderer_fail(w->m, "found a %s for JSON, expected a list: \"| list\" makes one",
                      value_type((struct value){.kind = VALUE_LIST, .list = (struct list *)l}));
    build_string(&w->b, "[", true);
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            build(&w->b, w->style->comma);
        new_line(w);
        write_json(w, l->item[i]);
    }
    w->level--;
    if (l->n > 0)
        new_line(w);
    build_string(&w->b, "]", true);
}

static void write_real(struct builder *b, double x)
{
    char out[40];
    print_real(out, x);
    build_string(b, isnan(x) ? "NaN" : isinf(x) ? (x > 0 ? "Infinity" : "-Infinity") : out, true);
}

static void write_key(struct writer *w, struct value key)
{
    if (key.kind == VALUE_STRING) {
        write_string(&w->b, key.text, w->style->ascii);
        return;
    }
    if (key.kind != VALUE_NONE && !value_is_number(key))
        renderer_fail(w->m, "found a key of type %s for JSON, expected a string", value_type(key));
    build_string(&w->b, "\"", true);
    write_json(w, key);
    build_string(&w->b, "\"", true);
}

static int by_key(const void *a, const void *b)
{
    return text_compare(((const struct entry *)a)->key.text, ((const struct entry *)b)->key.text);
}

static const struct entry *sorted(struct writer *w, const struct dict *d)
{
    struct entry *entry = heap_alloc(&w->m->heap, d->n, sizeof *entry);
    for (size_t i = 0; i < d->n; i++) {
        entry[i] = d->entry[i];
        if (entry[i].key.kind != VALUE_STRING)
            renderer_fail(w->m, "found a key of type %s to sort, expected a string", value_type(entry[i].key));
    }
    if (d->n > 1)
        qsort(entry, d->n, sizeof *entry, by_key);
    return entry;
}

static void write_object(struct writer *w, const struct dict *d)
{
    const struct entry *entry = w->style->sort ? sorted(w, d) : d->entry;
    build_string(&w->b, "{", true);
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            build(&w->b, w->style->comma);
        new_line(w);
        write_key(w, entry[i].key);
        build(&w->b, w->style->colon);
        write_json(w, entry[i].value);
    }
    w->level--;
    if (d->n > 0)
        new_line(w);
    build_string(&w->b, "}", true);
}

static void write_json(struct writer *w, struct value v)
{
    renderer_enter(w->m);
    renderer_step(w->m, v.kind == VALUE_STRING ? v.text.n : 0);
    switch (v.kind) {
    case VALUE_NONE:
        build_string(&w->b, "null", true);
        break;
    case VALUE_BOOL:
        build_string(&w->b, v.boolean ? "true" : "false", true);
        break;
    case VALUE_INTEGER:
        build(&w->b, value_print(w->m, v));
        break;
    case VALUE_FLOAT:
        write_real(&w->b, v.real);
        break;
    case VALUE_STRING:
        write_string(&w->b, v.text, w->style->ascii);
        break;
    case VALUE_LIST:
        write_array(w, v.list);
        break;
    case VALUE_DICT:
        write_object(w, v.dict);
        break;
    default:
        renderer_fail(w->m, "a value of type %s cannot be written as JSON", value_type(v));
    }
    renderer_leave(w->m);
}

struct text value_json(struct renderer *m, struct value v, const struct json_style *style)
{
    struct writer w = {.m = m, .b = {.w = &m->heap}, .style = style};
    write_json(&w, v);
    return built(&w.b);
}

static struct value from_array(struct renderer *m, const json_t *json, bool foreign)
{
    struct value v = value_list(&m->heap, FORM_LIST);
    for (size_t i = 0; i < json_array_size(json); i++)
        list_add(&m->heap, v.list, value_from_json(m, json_array_get(json, i), foreign));
    return v;
}

static struct value from_object(struct renderer *m, const json_t *json, bool foreign)
{
    struct value v = value_dict(&m->heap);
    const char *key;
    size_t bytes;
    json_t *value;
    json_object_keylen_foreach((json_t *)json, key, bytes, value)
    {
        struct text name = {key, bytes, NULL, foreign};
        dict_append(&m->heap, v.dict, value_text(name), value_from_json(m, value, foreign));
    }
    return v;
}

struct value value_from_json(struct renderer *m, const json_t *json, bool foreign)
{
    struct value v = value_none();
    renderer_enter(m);
    switch (json_typeof(json)) {
    case JSON_NULL:
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = value_bool(json_is_true(json));
        break;
    case JSON_INTEGER:
        v = value_integer(json_integer_value(json));
        break;
    case JSON_REAL:
        v = value_real(json_real_value(json));
        break;
    case JSON_STRING:
        v = value_text((struct text){json_string_value(json), json_string_length(json), NULL, foreign});
        break;
    case JSON_ARRAY:
        v = from_array(m, json, foreign);
        break;
    case JSON_OBJECT:
        v = from_object(m, json, foreign);
        break;
    }
    renderer_leave(m);
    return v;
}
