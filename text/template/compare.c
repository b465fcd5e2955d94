/* text/template/compare.c - equality, order and membership as Python has them. */
#include "text/template/renderer.h"

#include <math.h>

/* Lists are equal to lists, tuples to tuples. */
static bool lists_equal(struct renderer *m, const struct list *a, const struct list *b)
{
    bool comparable = a->form == b->form && a->form != FORM_GENERATOR;
    if (a == b || !comparable || a->n != b->n)
        return a == b;
    for (size_t i = 0; i < a->n; i++)
        if (!value_equal(m, a->item[i], b->item[i]))
            return false;
    return true;
}

static bool dicts_equal(struct renderer *m, const struct dict *a, const struct dict *b)
{
    if (a == b || a->n != b->n)
        return a == b;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_find(m, b, a->entry[i].key);
        if (other == NULL || !value_equal(m, a->entry[i].value, *other))
            return false;
    }
    return true;
}

static bool numbers_equal(struct value a, struct value b)
{
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
        return value_to_integer(a) == value_to_integer(b);
    return value_to_real(a) == value_to_real(b);
}

static bool equal_of_kind(struct renderer *m, struct value a, struct value b)
{
    switch (a.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_STRING:
        return text_equal(a.text, b.text);
    case VALUE_LIST:
        return lists_equal(m, a.list, b.list);
    case VALUE_DICT:
        return dicts_equal(m, a.dict, b.dict);
    case VALUE_NAMESPACE:
        return a.dict == b.dict;
    case VALUE_LOOP:
        return a.loop == b.loop;
    case VALUE_MACRO:
        return a.macro == b.macro;
    case VALUE_BUILTIN:
        return a.bound == b.bound;
    default:
        return numbers_equal(a, b);
    }
}

bool value_equal(struct renderer *m, struct value a, struct value b)
{
    if (value_is_number(a) && value_is_number(b))
        return numbers_equal(a, b);
    if (a.kind != b.kind)
        return false;
    renderer_enter(m);
    renderer_step(m, a.kind == VALUE_STRING ? a.text.n : 0);
    bool equal = equal_of_kind(m, a, b);
    renderer_leave(m);
    return equal;
}

static int compare_numbers(struct value a, struct value b)
{
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT) {
        int64_t x = value_to_integer(a), y = value_to_integer(b);
        return (x > y) - (x < y);
    }
    double x = value_to_real(a), y = value_to_real(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int compare_lists(struct renderer *m, const struct list *a, const struct list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!value_equal(m, a->item[i], b->item[i]))
            return value_compare(m, a->item[i], b->item[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int value_compare(struct renderer *m, struct value a, struct value b)
{
    int c = 0;
    renderer_enter(m);
    renderer_step(m, a.kind == VALUE_STRING ? a.text.n : 0);
    if (value_is_number(a) && value_is_number(b))
        c = compare_numbers(a, b);
    else if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        c = text_compare(a.text, b.text);
    else if (a.kind == VALUE_LIST && b.kind == VALUE_LIST && a.list->form == b.list->form && a.list->form <= FORM_TUPLE)
        c = compare_lists(m, a.list, b.list);
    else
        renderer_fail(m, "found a comparison of %s with %s, expected two of a kind that has an order", value_type(a),
                      value_type(b));
    renderer_leave(m);
    return c;
}

bool value_contains(struct renderer *m, struct value where, struct value what)
{
    if (where.kind == VALUE_STRING) {
        if (what.kind != VALUE_STRING)
            renderer_fail(m, "found a value of type %s before \"in\" and a string, expected a string",
                          value_type(what));
        renderer_step(m, where.text.n + what.text.n);
        return text_find(where.text, what.text, 0) <= where.text.n;
    }
    if (where.kind == VALUE_DICT)
        return dict_find(m, where.dict, what) != NULL;
    struct list all = value_iterate(m, where);
    for (size_t i = 0; i < all.n; i++)
        if (value_equal(m, all.item[i], what))
            return true;
    return false;
}

bool compare(struct renderer *m, enum operation operation, struct value a, struct value b)
{
    switch (operation) {
    case OP_EQUAL:
        return value_equal(m, a, b);
    case OP_NOT_EQUAL:
        return !value_equal(m, a, b);
    case OP_IN:
        return value_contains(m, b, a);
    case OP_NOT_IN:
        return !value_contains(m, b, a);
    default:
        break;
    }
    int c = value_compare(m, a, b);
    if (c == 2)
        return false;
    return operation == OP_LESS         ? c < 0
           : operation == OP_LESS_EQUAL ? c <= 0
           : operation == OP_GREATER    ? c > 0
                                        : c >= 0;
}
