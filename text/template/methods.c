/* text/template/methods.c - methods of strings, dicts, lists and loops. See builtin.h. */
#include "text/template/strings.h"

#include <string.h>

#include <utf8proc.h>

static struct value upper(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_upper(m, v.text));
}

static struct value lower(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_lower(m, v.text));
}

static struct value capitalize(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_capitalize(m, v.text));
}

static bool is_cased(int32_t cp)
{
    return utf8proc_tolower(cp) != cp || utf8proc_toupper(cp) != cp;
}

/* str.title(): letters after a letter are lower case. */
static struct value title(struct renderer *m, struct value v, const struct value *a)
{
    struct builder b = {.w = &m->heap};
    bool inside = false;
    (void)a;
    renderer_step(m, 8 * v.text.n);
    for (size_t at = 0; at < v.text.n; at = text_next(v.text, at)) {
        int32_t cp = text_char(v.text, at);
        build_char(&b, inside ? utf8proc_tolower(cp) : utf8proc_totitle(cp), text_marked(v.text, at));
        inside = is_cased(cp);
    }
    return value_text(built(&b));
}

static struct value strip_ends(struct renderer *m, struct value v, const struct value *a, bool left, bool right)
{
    struct text set = {0};
    renderer_step(m, 8 * v.text.n);
    if (a->kind == VALUE_ABSENT || a->kind == VALUE_NONE)
        return value_text(text_strip(v.text, NULL, left, right));
    set = argument_text(m, a, set);
    renderer_step(m, set.n > 64 ? v.text.n * (set.n / 64) : 0);
    return value_text(text_strip(v.text, &set, left, right));
}

static struct value strip(struct renderer *m, struct value v, const struct value *a)
{
    return strip_ends(m, v, a, true, true);
}

static struct value lstrip(struct renderer *m, struct value v, const struct value *a)
{
    return strip_ends(m, v, a, true, false);
}

static struct value rstrip(struct renderer *m, struct value v, const struct value *a)
{
    return strip_ends(m, v, a, false, true);
}

static void split_blanks(struct renderer *m, struct text t, int64_t most, struct list *out)
{
    t = text_strip(t, NULL, true, false);
    while (t.n > 0 && most-- != 0) {
        size_t at = 0;
        while (at < t.n && !text_is_blank(text_char(t, at)))
            at = text_next(t, at);
        list_add(&m->heap, out, value_text(text_slice(t, 0, at)));
        t = text_strip(text_slice(t, at, t.n), NULL, true, false);
    }
    if (t.n > 0)
        list_add(&m->heap, out, value_text(t));
}

static struct value split(struct renderer *m, struct value v, const struct value *a)
{
    struct value out = value_list(&m->heap, FORM_LIST);
    int64_t most = argument_integer(m, &a[1], -1);
    struct text t = v.text;
    renderer_step(m, t.n);
    if (a[0].kind == VALUE_ABSENT || a[0].kind == VALUE_NONE) {
        split_blanks(m, t, most, out.list);
        return out;
    }
    struct text by = argument_text(m, &a[0], t);
    if (by.n == 0)
        renderer_fail(m, "found an empty separator, expected one");
    for (size_t at = text_find(t, by, 0); at <= t.n && most-- != 0; at = text_find(t, by, 0)) {
        list_add(&m->heap, out.list, value_text(text_slice(t, 0, at)));
        t = text_slice(t, at + by.n, t.n);
    }
    list_add(&m->heap, out.list, value_text(t));
    return out;
}

/* Offset of the last `what` in t, or t.n + 1. */
static size_t find_last(struct text t, struct text what)
{
    for (size_t at = what.n > t.n ? 0 : t.n - what.n + 1; at-- > 0;)
        if (text_equal(text_slice(t, at, at + what.n), what))
            return at;
    return t.n + 1;
}

static struct value rsplit(struct renderer *m, struct value v, const struct value *a)
{
    struct value back = value_list(&m->heap, FORM_LIST), out = value_list(&m->heap, FORM_LIST);
    int64_t most = argument_integer(m, &a[1], -1);
    struct text t = v.text, by = argument_text(m, &a[0], text_of(""));
    renderer_step(m, 8 * t.n);
    if (by.n == 0)
        renderer_fail(m, "found no separator of \"rsplit\", expected one");
    for (size_t at = find_last(t, by); at <= t.n && most-- != 0; at = find_last(t, by)) {
        list_add(&m->heap, back.list, value_text(text_slice(t, at + by.n, t.n)));
        t = text_slice(t, 0, at);
    }
    list_add(&m->heap, out.list, value_text(t));
    for (size_t i = back.list->n; i-- > 0;)
        list_add(&m->heap, out.list, back.list->item[i]);
    return out;
}

static struct value splitlines(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return string_lines(m, v.text);
}

static struct value partition_at(struct renderer *m, struct text t, struct text by, size_t at, bool first)
{
    struct value out = value_list(&m->heap, FORM_TUPLE);
    bool found = at <= t.n;
    size_t end = found ? at : first ? t.n : 0;
    list_add(&m->heap, out.list, value_text(text_slice(t, 0, end)));
    list_add(&m->heap, out.list, value_text(found ? by : text_of("")));
    list_add(&m->heap, out.list, value_text(text_slice(t, found ? at + by.n : end, t.n)));
    return out;
}

static struct value partition(struct renderer *m, struct value v, const struct value *a)
{
    struct text by = argument_text(m, a, v.text);
    renderer_step(m, v.text.n);
    return partition_at(m, v.text, by, text_find(v.text, by, 0), true);
}

static struct value rpartition(struct renderer *m, struct value v, const struct value *a)
{
    struct text by = argument_text(m, a, v.text);
    renderer_step(m, 8 * v.text.n);
    return partition_at(m, v.text, by, find_last(v.text, by), false);
}

static bool has_end(struct text t, struct text end, bool front)
{
    return end.n <= t.n && text_equal(front ? text_slice(t, 0, end.n) : text_slice(t, t.n - end.n, t.n), end);
}

/* Accepts one string, or a tuple of alternatives. */
static struct value any_end(struct renderer *m, struct value v, const struct value *a, bool front)
{
    bool found = false;
    if (a->kind != VALUE_LIST)
        return value_bool(has_end(v.text, argument_text(m, a, v.text), front));
    renderer_step(m, a->list->n);
    for (size_t i = 0; i < a->list->n; i++)
        found = found || has_end(v.text, argument_text(m, &a->list->item[i], v.text), front);
    return value_bool(found);
}

static struct value startswith(struct renderer *m, struct value v, const struct value *a)
{
    return any_end(m, v, a, true);
}

static struct value endswith(struct renderer *m, struct value v, const struct value *a)
{
    return any_end(m, v, a, false);
}

static struct value removeprefix(struct renderer *m, struct value v, const struct value *a)
{
    struct text end = argument_text(m, a, v.text);
    return value_text(has_end(v.text, end, true) ? text_slice(v.text, end.n, v.text.n) : v.text);
}

static struct value removesuffix(struct renderer *m, struct value v, const struct value *a)
{
    struct text end = argument_text(m, a, v.text);
    return value_text(has_end(v.text, end, false) ? text_slice(v.text, 0, v.text.n - end.n) : v.text);
}

static struct value replace(struct renderer *m, struct value v, const struct value *a)
{
    return value_text(string_replace(m, v.text, argument_text(m, &a[0], v.text), argument_text(m, &a[1], v.text),
                                     argument_integer(m, &a[2], -1)));
}

static struct value position_of(struct renderer *m, struct text t, size_t at)
{
    renderer_step(m, t.n);
    return value_integer(at <= t.n ? (int64_t)text_characters(text_slice(t, 0, at)) : -1);
}

static struct value find(struct renderer *m, struct value v, const struct value *a)
{
    return position_of(m, v.text, text_find(v.text, argument_text(m, a, v.text), 0));
}

static struct value rfind(struct renderer *m, struct value v, const struct value *a)
{
    renderer_step(m, 8 * v.text.n);
    return position_of(m, v.text, find_last(v.text, argument_text(m, a, v.text)));
}

static struct value count(struct renderer *m, struct value v, const struct value *a)
{
    struct text what = argument_text(m, a, v.text);
    int64_t n = 0;
    renderer_step(m, v.text.n);
    if (what.n == 0)
        return value_integer((int64_t)text_characters(v.text) + 1);
    for (size_t at = text_find(v.text, what, 0); at <= v.text.n; at = text_find(v.text, what, at + what.n))
        n++;
    return value_integer(n);
}

static struct value format(struct renderer *m, struct value v, const struct arguments *given)
{
    return value_text(string_format(m, v.text, given));
}

static struct value join(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, a[0]);
    return value_text(string_join(m, v.text, &all, true));
}

static bool is_letter(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(int32_t cp)
{
    return utf8proc_category(cp) == UTF8PROC_CATEGORY_ND;
}

static bool is_letter_or_digit(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return is_letter(cp) || c == UTF8PROC_CATEGORY_ND;
}

static struct value every(struct renderer *m, struct text t, bool (*is)(int32_t cp))
{
    bool all = t.n > 0;
    renderer_step(m, t.n);
    for (size_t at = 0; all && at < t.n; at = text_next(t, at))
        all = is(text_char(t, at));
    return value_bool(all);
}

static struct value isdigit_(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return every(m, v.text, is_decimal);
}

static struct value isalpha_(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return every(m, v.text, is_letter);
}

static struct value isalnum_(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return every(m, v.text, is_letter_or_digit);
}

static struct value isspace_(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return every(m, v.text, text_is_blank);
}

const struct builtin string_methods[] = {{"capitalize", "", 0, capitalize, NULL},
                                         {"count", "sub", 1, count, NULL},
                                         {"endswith", "suffix", 1, endswith, NULL},
                                         {"find", "sub", 1, find, NULL},
                                         {"format", NULL, 0, NULL, format},
                                         {"isalnum", "", 0, isalnum_, NULL},
                                         {"isalpha", "", 0, isalpha_, NULL},
                                         {"isdigit", "", 0, isdigit_, NULL},
                                         {"isspace", "", 0, isspace_, NULL},
                                         {"join", "iterable", 1, join, NULL},
                                         {"lower", "", 0, lower, NULL},
                                         {"lstrip", "chars", 0, lstrip, NULL},
                                         {"partition", "sep", 1, partition, NULL},
                                         {"removeprefix", "prefix", 1, removeprefix, NULL},
                                         {"removesuffix", "suffix", 1, removesuffix, NULL},
                                         {"replace", "old new count", 2, replace, NULL},
                                         {"rfind", "sub", 1, rfind, NULL},
                                         {"rpartition", "sep", 1, rpartition, NULL},
                                         {"rsplit", "sep maxsplit", 1, rsplit, NULL},
                                         {"rstrip", "chars", 0, rstrip, NULL},
                                         {"split", "sep maxsplit", 0, split, NULL},
                                         {"splitlines", "", 0, splitlines, NULL},
                                         {"startswith", "prefix", 1, startswith, NULL},
                                         {"strip", "chars", 0, strip, NULL},
                                         {"title", "", 0, title, NULL},
                                         {"upper", "", 0, upper, NULL},
                                         {NULL, NULL, 0, NULL, NULL}};

static struct value pairs(struct renderer *m, const struct dict *d, bool keys, bool values, enum list_form form)
{
    struct value out = value_list(&m->heap, form);
    renderer_step(m, d->n);
    for (size_t i = 0; i < d->n; i++) {
        struct value pair = value_list(&m->heap, FORM_TUPLE);
        list_add(&m->heap, pair.list, d->entry[i].key);
        list_add(&m->heap, pair.list, d->entry[i].value);
        list_add(&m->heap, out.list, keys && values ? pair : keys ? d->entry[i].key : d->entry[i].value);
    }
    return out;
}

static struct value items(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return pairs(m, v.dict, true, true, FORM_VIEW);
}

static struct value keys(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return pairs(m, v.dict, true, false, FORM_VIEW);
}

static struct value values(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return pairs(m, v.dict, false, true, FORM_VIEW);
}

static struct value get(struct renderer *m, struct value v, const struct value *a)
{
    const struct value *found = dict_find(m, v.dict, a[0]);
    return found != NULL ? *found : a[1].kind != VALUE_ABSENT ? a[1] : value_none();
}

static struct value copy(struct renderer *m, struct value v, const struct value *a)
{
    struct value out = value_dict(&m->heap);
    (void)a;
    renderer_step(m, v.dict->n);
    for (size_t i = 0; i < v.dict->n; i++)
        dict_append(&m->heap, out.dict, v.dict->entry[i].key, v.dict->entry[i].value);
    return out;
}

/* transformers renders in a sandbox in which variables are immutable. */
static struct value changes(struct renderer *m, struct value v, const struct arguments *given)
{
    (void)given;
    renderer_fail(m, "found a method that changes a %s, expected none: transformers refuses them, too", value_type(v));
}

const struct builtin dict_methods[] = {
    {"copy", "", 0, copy, NULL},        {"get", "key default", 1, get, NULL}, {"items", "", 0, items, NULL},
    {"keys", "", 0, keys, NULL},        {"values", "", 0, values, NULL},      {"clear", NULL, 0, NULL, changes},
    {"pop", NULL, 0, NULL, changes},    {"popitem", NULL, 0, NULL, changes},  {"setdefault", NULL, 0, NULL, changes},
    {"update", NULL, 0, NULL, changes}, {NULL, NULL, 0, NULL, NULL}};

static struct value list_count(struct renderer *m, struct value v, const struct value *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < v.list->n; i++)
        n += value_equal(m, v.list->item[i], a[0]);
    return value_integer(n);
}

static struct value list_index(struct renderer *m, struct value v, const struct value *a)
{
    for (size_t i = 0; i < v.list->n; i++)
        if (value_equal(m, v.list->item[i], a[0]))
            return value_integer((int64_t)i);
    renderer_fail(m, "found no such item in the list");
}

const struct builtin list_methods[] = {{"count", "value", 1, list_count, NULL}, {"index", "value", 1, list_index, NULL},
                                       {"append", NULL, 0, NULL, changes},      {"extend", NULL, 0, NULL, changes},
                                       {"insert", NULL, 0, NULL, changes},      {"pop", NULL, 0, NULL, changes},
                                       {"remove", NULL, 0, NULL, changes},      {"reverse", NULL, 0, NULL, changes},
                                       {"sort", NULL, 0, NULL, changes},        {NULL, NULL, 0, NULL, NULL}};

static struct value cycle(struct renderer *m, struct value v, const struct arguments *given)
{
    if (given->n == 0)
        renderer_fail(m, "found no argument of \"cycle\", expected at least one");
    return given->value[v.loop->at % (size_t)given->n];
}

/* Whether the arguments differ from those of the last call. */
static struct value changed(struct renderer *m, struct value v, const struct arguments *given)
{
    struct value now = value_list(&m->heap, FORM_TUPLE);
    for (int i = 0; i < given->n; i++)
        list_add(&m->heap, now.list, given->value[i]);
    bool other = v.loop->changed == NULL || !value_equal(m, *v.loop->changed, now);
    v.loop->changed = heap_alloc(&m->heap, 1, sizeof now);
    *v.loop->changed = now;
    return value_bool(other);
}

const struct builtin loop_methods[] = {
    {"cycle", NULL, 0, NULL, cycle}, {"changed", NULL, 0, NULL, changed}, {NULL, NULL, 0, NULL, NULL}};
