/* text/template/tests.c - the tests that follow "is". See builtin.h. */
#include "text/template/strings.h"

#define KIND_TEST(name, condition)                                                           \
    static struct value is_##name(struct renderer *m, struct value v, const struct value *a) \
    {                                                                                        \
        (void)m;                                                                             \
        (void)a;                                                                             \
        return value_bool(condition);                                                        \
    }

KIND_TEST(defined, v.kind != VALUE_UNDEFINED)
KIND_TEST(undefined, v.kind == VALUE_UNDEFINED)
KIND_TEST(none, v.kind == VALUE_NONE)
KIND_TEST(boolean, v.kind == VALUE_BOOL)
KIND_TEST(true, v.kind == VALUE_BOOL && v.boolean)
KIND_TEST(false, v.kind == VALUE_BOOL && !v.boolean)
KIND_TEST(integer, v.kind == VALUE_INTEGER)
KIND_TEST(float, v.kind == VALUE_FLOAT)
KIND_TEST(number, value_is_number(v))
KIND_TEST(string, v.kind == VALUE_STRING)
KIND_TEST(mapping, v.kind == VALUE_DICT)
KIND_TEST(iterable, v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED)
KIND_TEST(sequence, v.kind == VALUE_STRING || (v.kind == VALUE_LIST && v.list->form <= FORM_RANGE) ||
                        v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED)
KIND_TEST(callable, v.kind == VALUE_MACRO || v.kind == VALUE_BUILTIN || v.kind == VALUE_UNDEFINED)

#define COMPARE_TEST(name, operation)                                                        \
    static struct value is_##name(struct renderer *m, struct value v, const struct value *a) \
    {                                                                                        \
        return value_bool(compare(m, operation, v, a[0]));                                   \
    }

COMPARE_TEST(equal, OP_EQUAL)
COMPARE_TEST(not_equal, OP_NOT_EQUAL)
COMPARE_TEST(less, OP_LESS)
COMPARE_TEST(less_equal, OP_LESS_EQUAL)
COMPARE_TEST(greater, OP_GREATER)
COMPARE_TEST(greater_equal, OP_GREATER_EQUAL)
COMPARE_TEST(in, OP_IN)

static struct value remainder_is(struct renderer *m, struct value v, struct value by, int64_t wanted)
{
    return value_bool(value_equal(m, operate(m, OP_MODULO, v, by), value_integer(wanted)));
}

static struct value is_divisible(struct renderer *m, struct value v, const struct value *a)
{
    return remainder_is(m, v, a[0], 0);
}

static struct value is_even(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return remainder_is(m, v, value_integer(2), 0);
}

static struct value is_odd(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return remainder_is(m, v, value_integer(2), 1);
}

/* There is at least one letter, and all letters have this case. */
static struct value is_case(struct renderer *m, struct value v, bool upper)
{
    struct text t = subject_text(m, v), same = upper ? string_upper(m, t) : string_lower(m, t);
    struct text other = upper ? string_lower(m, t) : string_upper(m, t);
    return value_bool(text_equal(t, same) && !text_equal(t, other));
}

static struct value is_lower(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return is_case(m, v, false);
}

static struct value is_upper(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return is_case(m, v, true);
}

/* The same object; for none, booleans and numbers the same value of the same type. */
static struct value is_same(struct renderer *m, struct value v, const struct value *a)
{
    bool one = v.kind == a->kind && value_equal(m, v, *a);
    if (v.kind == VALUE_LIST || v.kind == VALUE_DICT)
        one = v.kind == a->kind && (v.kind == VALUE_LIST ? v.list == a->list : v.dict == a->dict);
    return value_bool(one);
}

const struct builtin value_tests[] = {{"boolean", "", 0, is_boolean, NULL},
                                      {"callable", "", 0, is_callable, NULL},
                                      {"defined", "", 0, is_defined, NULL},
                                      {"divisibleby", "num", 1, is_divisible, NULL},
                                      {"eq", "other", 1, is_equal, NULL},
                                      {"equalto", "other", 1, is_equal, NULL},
                                      {"==", "other", 1, is_equal, NULL},
                                      {"even", "", 0, is_even, NULL},
                                      {"false", "", 0, is_false, NULL},
                                      {"float", "", 0, is_float, NULL},
                                      {"ge", "other", 1, is_greater_equal, NULL},
                                      {">=", "other", 1, is_greater_equal, NULL},
                                      {"gt", "other", 1, is_greater, NULL},
                                      {"greaterthan", "other", 1, is_greater, NULL},
                                      {">", "other", 1, is_greater, NULL},
                                      {"in", "seq", 1, is_in, NULL},
                                      {"integer", "", 0, is_integer, NULL},
                                      {"iterable", "", 0, is_iterable, NULL},
                                      {"le", "other", 1, is_less_equal, NULL},
                                      {"<=", "other", 1, is_less_equal, NULL},
                                      {"lower", "", 0, is_lower, NULL},
                                      {"lt", "other", 1, is_less, NULL},
                                      {"lessthan", "other", 1, is_less, NULL},
                                      {"<", "other", 1, is_less, NULL},
                                      {"mapping", "", 0, is_mapping, NULL},
                                      {"ne", "other", 1, is_not_equal, NULL},
                                      {"!=", "other", 1, is_not_equal, NULL},
                                      {"none", "", 0, is_none, NULL},
                                      {"number", "", 0, is_number, NULL},
                                      {"odd", "", 0, is_odd, NULL},
                                      {"sameas", "other", 1, is_same, NULL},
                                      {"sequence", "", 0, is_sequence, NULL},
                                      {"string", "", 0, is_string, NULL},
                                      {"true", "", 0, is_true, NULL},
                                      {"undefined", "", 0, is_undefined, NULL},
                                      {"upper", "", 0, is_upper, NULL},
                                      {NULL, NULL, 0, NULL, NULL}};
