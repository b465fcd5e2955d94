/* text/template/filters_list.c - filters of lists and dicts. See builtin.h. */
#include "text/template/strings.h"

#include <string.h>

static struct value made(struct renderer *m, enum list_form form, const struct list *from)
{
    struct value v = value_list(&m->heap, form);
    renderer_step(m, from->n);
    for (size_t i = 0; i < from->n; i++)
        list_add(&m->heap, v.list, from->item[i]);
    return v;
}

static struct value length(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_integer(value_length(m, v));
}

static struct value list(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, v);
    (void)a;
    return made(m, FORM_LIST, &all);
}

static struct value first(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    if (v.kind == VALUE_LIST && v.list->form == FORM_GENERATOR && v.list->n > 0) { /* incremented by this function */
        v.list->n--;
        return *v.list->item++;
    }
    struct list all = value_iterate(m, v);
    return all.n > 0 ? all.item[0] : value_undefined(text_of("the first item of an empty sequence"));
}

static struct value last(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    if (v.kind == VALUE_LIST && v.list->form == FORM_GENERATOR)
        renderer_fail(m, "found a generator, expected a list: \"| list\" makes one");
    struct list all = value_iterate(m, v);
    return all.n > 0 ? all.item[all.n - 1] : value_undefined(text_of("the last item of an empty sequence"));
}

static struct value join(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, v);
    struct text between = a[0].kind == VALUE_ABSENT ? text_of("") : subject_text(m, a[0]);
    if (a[1].kind != VALUE_ABSENT && a[1].kind != VALUE_NONE) {
        struct value members = value_list(&m->heap, FORM_LIST);
        for (size_t i = 0; i < all.n; i++)
            list_add(&m->heap, members.list, member_path(m, all.item[i], a[1], NULL));
        all = *members.list;
    }
    return value_text(string_join(m, between, &all, false));
}

static struct value items(struct renderer *m, struct value v, const struct value *a)
{
    struct value out = value_list(&m->heap, FORM_GENERATOR);
    (void)a;
    if (v.kind == VALUE_UNDEFINED)
        return out;
    if (v.kind != VALUE_DICT)
        renderer_fail(m, "found a value of type %s for \"items\", expected a dict", value_type(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        struct value pair = value_list(&m->heap, FORM_TUPLE);
        list_add(&m->heap, pair.list, v.dict->entry[i].key);
        list_add(&m->heap, pair.list, v.dict->entry[i].value);
        list_add(&m->heap, out.list, pair);
    }
    return out;
}

static struct value reverse(struct renderer *m, struct value v, const struct value *a)
{
    struct builder b = {.w = &m->heap};
    struct list all = value_iterate(m, v);
    struct value out = value_list(&m->heap, FORM_GENERATOR);
    (void)a;
    renderer_step(m, all.n);
    for (size_t i = all.n; i-- > 0;)
        if (v.kind == VALUE_STRING)
            build(&b, all.item[i].text);
        else
            list_add(&m->heap, out.list, all.item[i]);
    return v.kind == VALUE_STRING ? value_text(built(&b)) : out;
}

/* Strings are ordered without regard to case, unless told otherwise. */
static struct value sort_key(struct renderer *m, struct value v, const struct value *path, bool cased)
{
    if (path->kind != VALUE_ABSENT && path->kind != VALUE_NONE)
        v = member_path(m, v, *path, NULL);
    return v.kind == VALUE_STRING && !cased ? value_text(string_lower(m, v.text)) : v;
}

struct keyed {
    struct value key, value;
};

/* Stable merge sort of n items; backwards: the largest first, also stable. */
static void merge_sort(struct renderer *m, struct keyed *x, struct keyed *spare, size_t n, bool backwards)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, k = half, out = 0;
    merge_sort(m, x, spare, half, backwards);
    merge_sort(m, x + half, spare, n - half, backwards);
    while (i < half && k < n) {
        int c = value_compare(m, x[k].key, x[i].key);
        spare[out++] = (backwards ? c > 0 && c != 2 : c < 0) ? x[k++] : x[i++];
    }
    while (i < half)
        spare[out++] = x[i++];
    while (k < n)
        spare[out++] = x[k++];
    memcpy(x, spare, n * sizeof *x);
}

static struct value sorted(struct renderer *m, struct keyed *x, size_t n, bool backwards)
{
    struct value out = value_list(&m->heap, FORM_LIST);
    merge_sort(m, x, heap_alloc(&m->heap, n, sizeof *x), n, backwards);
    for (size_t i = 0; i < n; i++)
        list_add(&m->heap, out.list, x[i].value);
    return out;
}

static struct value sort(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, v);
    struct keyed *x = heap_alloc(&m->heap, all.n, sizeof *x);
    for (size_t i = 0; i < all.n; i++)
        x[i] = (struct keyed){sort_key(m, all.item[i], &a[2], argument_true(&a[1], false)), all.item[i]};
    return sorted(m, x, all.n, argument_true(&a[0], false));
}

static struct value dictsort(struct renderer *m, struct value v, const struct value *a)
{
    static const struct value none = {.kind = VALUE_ABSENT};
    bool by_value = a[1].kind == VALUE_STRING && text_is(a[1].text, "value");
    if (v.kind != VALUE_DICT)
        renderer_fail(m, "found a value of type %s for \"dictsort\", expected a dict", value_type(v));
    struct value pairs = items(m, v, NULL);
    struct keyed *x = heap_alloc(&m->heap, pairs.list->n, sizeof *x);
    for (size_t i = 0; i < pairs.list->n; i++) {
        struct value pair = pairs.list->item[i];
        x[i] = (struct keyed){sort_key(m, pair.list->item[by_value], &none, argument_true(&a[0], false)), pair};
    }
    return sorted(m, x, pairs.list->n, argument_true(&a[2], false));
}

static struct value unique(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, v);
    struct value seen = value_list(&m->heap, FORM_LIST), out = value_list(&m->heap, FORM_GENERATOR);
    for (size_t i = 0; i < all.n; i++) {
        struct value key = sort_key(m, all.item[i], &a[1], argument_true(&a[0], false));
        renderer_step(m, 0);
        if (value_contains(m, seen, key))
            continue;
        list_add(&m->heap, seen.list, key);
        list_add(&m->heap, out.list, all.item[i]);
    }
    return out;
}

static struct value extreme(struct renderer *m, struct value v, const struct value *a, bool largest)
{
    struct list all = value_iterate(m, v);
    size_t best = 0;
    if (all.n == 0)
        return value_undefined(text_of("the extreme of an empty sequence"));
    for (size_t i = 1; i < all.n; i++) {
        int c = value_compare(m, sort_key(m, all.item[i], &a[1], argument_true(&a[0], false)),
                              sort_key(m, all.item[best], &a[1], argument_true(&a[0], false)));
        best = c != 2 && (largest ? c > 0 : c < 0) ? i : best;
    }
    return all.item[best];
}

static struct value largest_of(struct renderer *m, struct value v, const struct value *a)
{
    return extreme(m, v, a, true);
}

static struct value smallest_of(struct renderer *m, struct value v, const struct value *a)
{
    return extreme(m, v, a, false);
}

static struct value sum(struct renderer *m, struct value v, const struct value *a)
{
    struct list all = value_iterate(m, v);
    struct value total = a[1].kind != VALUE_ABSENT ? a[1] : value_integer(0);
    for (size_t i = 0; i < all.n; i++) {
        bool path = a[0].kind != VALUE_ABSENT && a[0].kind != VALUE_NONE;
        total = operate(m, OP_ADD, total, path ? member_path(m, all.item[i], a[0], NULL) : all.item[i]);
    }
    return total;
}

const struct builtin list_filters[] = {{"count", "", 0, length, NULL},
                                       {"dictsort", "case_sensitive by reverse", 0, dictsort, NULL},
                                       {"first", "", 0, first, NULL},
                                       {"items", "", 0, items, NULL},
                                       {"join", "d attribute", 0, join, NULL},
                                       {"last", "", 0, last, NULL},
                                       {"length", "", 0, length, NULL},
                                       {"list", "", 0, list, NULL},
                                       {"max", "case_sensitive attribute", 0, largest_of, NULL},
                                       {"min", "case_sensitive attribute", 0, smallest_of, NULL},
                                       {"reverse", "", 0, reverse, NULL},
                                       {"sort", "reverse case_sensitive attribute", 0, sort, NULL},
                                       {"sum", "attribute start", 0, sum, NULL},
                                       {"unique", "case_sensitive attribute", 0, unique, NULL},
                                       {NULL, NULL, 0, NULL, NULL}};
