/* text/template/value.c - see value.h. Constructors of values, and their truth. */
#include "text/template/renderer.h"

#include <string.h>

struct value value_undefined(struct text name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .text = name};
}

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool b)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = b};
}

struct value value_integer(int64_t i)
{
    return (struct value){.kind = VALUE_INTEGER, .integer = i};
}

struct value value_real(double x)
{
    return (struct value){.kind = VALUE_FLOAT, .real = x};
}

struct value value_text(struct text t)
{
    return (struct value){.kind = VALUE_STRING, .text = t};
}

struct value value_list(struct heap *w, enum list_form form)
{
    struct list *l = heap_alloc(w, 1, sizeof *l);
    l->form = form;
    return (struct value){.kind = VALUE_LIST, .list = l};
}

struct value value_dict(struct heap *w)
{
    return (struct value){.kind = VALUE_DICT, .dict = heap_alloc(w, 1, sizeof(struct dict))};
}

void list_add(struct heap *w, struct list *l, struct value v)
{
    if (l->n == l->capacity) {
        size_t capacity = 2 * l->capacity + 4;
        struct value *value = heap_alloc(w, capacity, sizeof *value);
        if (l->n > 0)
            memcpy(value, l->item, l->n * sizeof *value);
        l->item = value;
        l->capacity = capacity;
    }
    l->item[l->n++] = v;
}

const struct value *dict_find(struct renderer *m, const struct dict *d, struct value key)
{
    if (key.kind == VALUE_STRING)
        return dict_find_string(m, d, key.text);
    renderer_step(m, d->n);
    for (size_t i = 0; i < d->n; i++)
        if (value_equal(m, d->entry[i].key, key))
            return &d->entry[i].value;
    return NULL;
}

const struct value *dict_find_string(struct renderer *m, const struct dict *d, struct text key)
{
    renderer_step(m, d->n);
    for (size_t i = 0; i < d->n; i++)
        if (d->entry[i].key.kind == VALUE_STRING && text_equal(d->entry[i].key.text, key))
            return &d->entry[i].value;
    return NULL;
}

void dict_append(struct heap *w, struct dict *d, struct value key, struct value value)
{
    if (d->n == d->capacity) {
        size_t capacity = 2 * d->capacity + 4;
        struct entry *entry = heap_alloc(w, capacity, sizeof *entry);
        if (d->n > 0)
            memcpy(entry, d->entry, d->n * sizeof *entry);
        d->entry = entry;
        d->capacity = capacity;
    }
    d->entry[d->n++] = (struct entry){key, value};
}

void dict_put(struct renderer *m, struct dict *d, struct value key, struct value value)
{
    if (key.kind == VALUE_DICT || (key.kind == VALUE_LIST && key.list->form == FORM_LIST))
        renderer_fail(m, "found a %s as a key, expected a string or a number", value_type(key));
    struct value *found = (struct value *)dict_find(m, d, key);
    if (found != NULL)
        *found = value;
    else
        dict_append(&m->heap, d, key, value);
}

const char *value_type(struct value v)
{
    static const char *const lists[] = {"list", "tuple", "range", "dict view", "generator"};
    static const char *const names[] = {"absent", "Undefined", "NoneType",  "bool", "int",   "float",   "str",
                                        "list",   "dict",      "Namespace", "loop", "macro", "function"};
    return v.kind == VALUE_LIST ? lists[v.list->form] : names[v.kind];
}

bool value_true(struct value v)
{
    switch (v.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.boolean;
    case VALUE_INTEGER:
        return v.integer != 0;
    case VALUE_FLOAT:
        return v.real != 0;
    case VALUE_STRING:
        return v.text.n > 0;
    case VALUE_LIST:
        return v.list->n > 0 || v.list->form == FORM_GENERATOR;
    case VALUE_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

bool value_is_number(struct value v)
{
    return v.kind == VALUE_BOOL || v.kind == VALUE_INTEGER || v.kind == VALUE_FLOAT;
}

double value_to_real(struct value v)
{
    return v.kind == VALUE_FLOAT ? v.real : (double)value_to_integer(v);
}

int64_t value_to_integer(struct value v)
{
    return v.kind == VALUE_BOOL ? v.boolean : v.integer;
}

struct list value_iterate(struct renderer *m, struct value v)
{
    struct list all = {.form = FORM_LIST};
    renderer_step(m, 0);
    if (v.kind == VALUE_LIST) {
        all = *v.list;
        if (v.list->form == FORM_GENERATOR)
            v.list->n = 0;
    } else if (v.kind == VALUE_STRING) {
        for (size_t at = 0; at < v.text.n; at = text_next(v.text, at))
            list_add(&m->heap, &all, value_text(text_slice(v.text, at, text_next(v.text, at))));
    } else if (v.kind == VALUE_DICT) {
        for (size_t i = 0; i < v.dict->n; i++)
            list_add(&m->heap, &all, v.dict->entry[i].key);
    } else if (v.kind != VALUE_UNDEFINED) {
        renderer_fail(m, "found a value of type %s, expected one that can be iterated", value_type(v));
    }
    return all;
}

int64_t value_length(struct renderer *m, struct value v)
{
    renderer_step(m, v.kind == VALUE_STRING ? v.text.n : 0);
    if (v.kind == VALUE_UNDEFINED)
        return 0;
    if (v.kind == VALUE_STRING)
        return (int64_t)text_characters(v.text);
    if (v.kind == VALUE_DICT)
        return (int64_t)v.dict->n;
    if (v.kind == VALUE_LIST && v.list->form != FORM_GENERATOR)
        return (int64_t)v.list->n;
    renderer_fail(m, "a value of type %s has no length", value_type(v));
}
