/* text/template/operate.c - arithmetic, members, items and slices as Python and jinja2 have them. */
#include "text/template/renderer.h"

#include <math.h>
#include <string.h>

_Noreturn static void bad_operands(struct renderer *m, const char *sign, struct value a, struct value b)
{
    const struct value *lost = a.kind == VALUE_UNDEFINED ? &a : b.kind == VALUE_UNDEFINED ? &b : NULL;
    if (lost != NULL)
        renderer_fail(m, "\"%.*s\" is undefined, expected a value at \"%s\"",
                      (int)(lost->text.n < 80 ? lost->text.n : 80), lost->text.s, sign);
    renderer_fail(m, "found %s %s %s, expected two numbers or two of a kind", value_type(a), sign, value_type(b));
}

static struct value checked(struct renderer *m, bool overflow, const int64_t *i)
{
    if (overflow)
        renderer_fail(m, "an integer has more than 64 bits");
    return value_integer(*i);
}

static struct value repeat(struct renderer *m, struct value v, int64_t times)
{
    struct builder b = {.w = &m->heap};
    times = times < 0 ? 0 : times;
    size_t n = v.kind == VALUE_STRING ? v.text.n : v.list->n;
    if (n > 0 && times > (int64_t)(RENDERER_MAX_OUTPUT / n))
        renderer_fail(m, "found something repeated %lld times, expected at most %zu bytes", (long long)times,
                      RENDERER_MAX_OUTPUT);
    renderer_step(m, n * (size_t)times);
    if (v.kind == VALUE_STRING) {
        for (int64_t i = 0; n > 0 && i < times; i++)
            build(&b, v.text);
        return value_text(built(&b));
    }
    struct value all = value_list(&m->heap, v.list->form);
    for (int64_t i = 0; n > 0 && i < times; i++)
        for (size_t k = 0; k < v.list->n; k++)
            list_add(&m->heap, all.list, v.list->item[k]);
    return all;
}

static struct value join_two(struct renderer *m, struct value a, struct value b)
{
    if (a.kind == VALUE_STRING) {
        struct builder t = {.w = &m->heap};
        renderer_step(m, a.text.n + b.text.n);
        build(&t, a.text);
        build(&t, b.text);
        return value_text(built(&t));
    }
    struct value all = value_list(&m->heap, a.list->form);
    renderer_step(m, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n + b.list->n; i++)
        list_add(&m->heap, all.list, i < a.list->n ? a.list->item[i] : b.list->item[i - a.list->n]);
    return all;
}

static bool is_sequence(struct value v)
{
    return v.kind == VALUE_STRING || (v.kind == VALUE_LIST && v.list->form <= FORM_TUPLE);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static double modulo(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static struct value power(struct renderer *m, struct value a, struct value b)
{
    int64_t base = value_to_integer(a), n = value_to_integer(b), all = 1;
    bool overflow = false;
    if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT || n < 0)
        return value_real(pow(value_to_real(a), value_to_real(b)));
    if (base == 0 || base == 1)
        return value_integer(n == 0 ? 1 : base);
    if (base == -1)
        return value_integer(n % 2 == 0 ? 1 : -1);
    for (; n > 0 && !overflow; n--)
        overflow = __builtin_mul_overflow(all, base, &all);
    return checked(m, overflow, &all);
}

static struct value operate_reals(struct renderer *m, enum operation operation, double x, double y)
{
    if (y == 0 && (operation == OP_DIVIDE || operation == OP_FLOOR_DIVIDE || operation == OP_MODULO))
        renderer_fail(m, "found a division by zero");
    switch (operation) {
    case OP_ADD:
        return value_real(x + y);
    case OP_SUBTRACT:
        return value_real(x - y);
    case OP_MULTIPLY:
        return value_real(x * y);
    case OP_DIVIDE:
        return value_real(x / y);
    case OP_MODULO:
        return value_real(modulo(x, y));
    default:
        return value_real(floor(x / y));
    }
}

static struct value operate_integers(struct renderer *m, enum operation operation, int64_t x, int64_t y)
{
    int64_t z = 0;
    if (operation == OP_ADD)
        return checked(m, __builtin_add_overflow(x, y, &z), &z);
    if (operation == OP_SUBTRACT)
        return checked(m, __builtin_sub_overflow(x, y, &z), &z);
    if (operation == OP_MULTIPLY)
        return checked(m, __builtin_mul_overflow(x, y, &z), &z);
    if (y == 0 || operation == OP_DIVIDE)
        return operate_reals(m, operation, (double)x, (double)y);
    if (y == -1)
        return operation == OP_MODULO ? value_integer(0) : checked(m, __builtin_sub_overflow(0, x, &z), &z);
    return value_integer(operation == OP_MODULO ? x - y * floor_divide(x, y) : floor_divide(x, y));
}

struct value operate(struct renderer *m, enum operation operation, struct value a, struct value b)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (value_is_number(a) && value_is_number(b)) {
        if (operation == OP_POWER)
            return power(m, a, b);
        if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
            return operate_reals(m, operation, value_to_real(a), value_to_real(b));
        return operate_integers(m, operation, value_to_integer(a), value_to_integer(b));
    }
    bool alike = a.kind == b.kind && is_sequence(a) && (a.kind == VALUE_STRING || a.list->form == b.list->form);
    if (operation == OP_ADD && alike)
        return join_two(m, a, b);
    if (operation == OP_MULTIPLY && is_sequence(a) && value_is_number(b) && b.kind != VALUE_FLOAT)
        return repeat(m, a, value_to_integer(b));
    if (operation == OP_MULTIPLY && is_sequence(b) && value_is_number(a) && a.kind != VALUE_FLOAT)
        return repeat(m, b, value_to_integer(a));
    bad_operands(m, signs[operation], a, b);
}

/* A member of the variable `loop`. */
static struct value loop_member(struct renderer *m, const struct for_loop *l, struct text name)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        struct value value;
    } members[] = {{"index", value_integer(at + 1)},
                   {"index0", value_integer(at)},
                   {"revindex", value_integer(n - at)},
                   {"revindex0", value_integer(n - at - 1)},
                   {"first", value_bool(at == 0)},
                   {"last", value_bool(at == n - 1)},
                   {"length", value_integer(n)},
                   {"depth", value_integer(l->depth)},
                   {"depth0", value_integer(l->depth - 1)},
                   {"previtem", at > 0 ? l->items->item[at - 1] : value_undefined(text_of("loop.previtem"))},
                   {"nextitem", at + 1 < n ? l->items->item[at + 1] : value_undefined(text_of("loop.nextitem"))}};
    (void)m;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (text_is(name, members[i].name))
            return members[i].value;
    return value_undefined(name);
}

/* The method of an object, or VALUE_ABSENT. */
static struct value method(struct renderer *m, struct value object, struct text name)
{
    const struct builtin *table = object.kind == VALUE_STRING                                    ? string_methods
                                  : object.kind == VALUE_DICT                                    ? dict_methods
                                  : object.kind == VALUE_LOOP                                    ? loop_methods
                                  : object.kind == VALUE_LIST && object.list->form <= FORM_TUPLE ? list_methods
                                                                                                 : NULL;
    const struct builtin *found = table != NULL ? find_in(table, name) : NULL;
    if (found == NULL)
        return (struct value){.kind = VALUE_ABSENT};
    struct bound *bound = heap_alloc(&m->heap, 1, sizeof *bound);
    *bound = (struct bound){found, object};
    return (struct value){.kind = VALUE_BUILTIN, .bound = bound};
}

struct value member(struct renderer *m, struct value a, struct text name)
{
    if (a.kind == VALUE_UNDEFINED)
        renderer_fail(m, "\"%.*s\" is undefined: it has no \"%.*s\"", (int)(a.text.n < 80 ? a.text.n : 80), a.text.s,
                      (int)(name.n < 80 ? name.n : 80), name.s);
    if (a.kind != VALUE_NAMESPACE) {
        struct value found = method(m, a, name);
        if (found.kind != VALUE_ABSENT)
            return found;
    }
    if (a.kind == VALUE_LOOP)
        return loop_member(m, a.loop, name);
    if (a.kind == VALUE_DICT || a.kind == VALUE_NAMESPACE) {
        const struct value *found = dict_find_string(m, a.dict, name);
        if (found != NULL)
            return *found;
    }
    return value_undefined(name);
}

/* Index of a sequence of n; negative ones count from its end. -1: outside. */
static int64_t position(int64_t index, int64_t n)
{
    int64_t at = index < 0 ? index + n : index;
    return at >= 0 && at < n ? at : -1;
}

static struct value character(struct renderer *m, struct text t, int64_t index)
{
    int64_t at = position(index, value_length(m, value_text(t)));
    size_t byte = 0;
    if (at < 0)
        return value_undefined(text_of("a character of a string"));
    for (; at > 0; at--)
        byte = text_next(t, byte);
    return value_text(text_slice(t, byte, text_next(t, byte)));
}

struct value item(struct renderer *m, struct value a, struct value b)
{
    bool counted = b.kind == VALUE_INTEGER || b.kind == VALUE_BOOL;
    if (a.kind == VALUE_UNDEFINED)
        renderer_fail(m, "\"%.*s\" is undefined: it has no items", (int)(a.text.n < 80 ? a.text.n : 80), a.text.s);
    if (a.kind == VALUE_DICT) {
        const struct value *found = dict_find(m, a.dict, b);
        if (found != NULL)
            return *found;
    }
    if (a.kind == VALUE_LIST && counted && a.list->form <= FORM_RANGE) {
        int64_t at = position(value_to_integer(b), (int64_t)a.list->n);
        return at >= 0 ? a.list->item[at] : value_undefined(text_of("an item of a list"));
    }
    if (a.kind == VALUE_STRING && counted)
        return character(m, a.text, value_to_integer(b));
    return b.kind == VALUE_STRING ? member(m, a, b.text) : value_undefined(text_of("an item"));
}

static int64_t bound_of(struct value v, int64_t n, int64_t low, int64_t high, int64_t missing)
{
    if (v.kind == VALUE_ABSENT || v.kind == VALUE_NONE)
        return missing;
    int64_t at = value_to_integer(v);
    at = at < 0 ? (at < -n ? -1 : at + n) : at;
    return at < low ? low : at > high ? high : at;
}

/* From one character of a string to another, of n in all. */
static struct value substring(struct renderer *m, struct text t, const struct value part[3])
{
    int64_t n = value_length(m, value_text(t));
    int64_t start = bound_of(part[0], n, 0, n, 0), stop = bound_of(part[1], n, 0, n, n);
    size_t from = 0, to;
    for (int64_t i = 0; i < start; i++)
        from = text_next(t, from);
    to = from;
    for (int64_t i = start; i < stop; i++)
        to = text_next(t, to);
    return value_text(text_slice(t, from, to));
}

static struct value join_characters(struct renderer *m, const struct list *l)
{
    struct builder b = {.w = &m->heap};
    for (size_t i = 0; i < l->n; i++)
        build(&b, l->item[i].text);
    return value_text(built(&b));
}

static bool is_bound(struct value v)
{
    return v.kind == VALUE_ABSENT || v.kind == VALUE_NONE || v.kind == VALUE_INTEGER || v.kind == VALUE_BOOL;
}

static int64_t step_of(struct renderer *m, struct value v)
{
    if (v.kind == VALUE_ABSENT || v.kind == VALUE_NONE)
        return 1;
    if (value_to_integer(v) == 0)
        renderer_fail(m, "found a step of 0 in a slice, expected another");
    return value_to_integer(v);
}

struct value slice(struct renderer *m, struct value a, const struct value part[3])
{
    if (a.kind == VALUE_UNDEFINED)
        renderer_fail(m, "\"%.*s\" is undefined: it cannot be sliced", (int)(a.text.n < 80 ? a.text.n : 80), a.text.s);
    bool cuts = is_sequence(a) || (a.kind == VALUE_LIST && a.list->form == FORM_RANGE);
    if (!cuts || !is_bound(part[0]) || !is_bound(part[1]) || !is_bound(part[2]))
        return value_undefined(text_of("a slice"));
    int64_t step = step_of(m, part[2]);
    if (a.kind == VALUE_STRING && step == 1)
        return substring(m, a.text, part);
    struct list all = value_iterate(m, a);
    int64_t n = (int64_t)all.n, low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    int64_t start = bound_of(part[0], n, low, high, step > 0 ? 0 : n - 1);
    int64_t stop = bound_of(part[1], n, low, high, step > 0 ? n : -1);
    struct value out = value_list(&m->heap, a.kind == VALUE_LIST ? a.list->form : FORM_LIST);
    renderer_step(m, all.n);
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        list_add(&m->heap, out.list, all.item[i]);
        if (step > 0 ? step >= stop - i : step <= stop - i)
            break;
    }
    return a.kind == VALUE_STRING ? join_characters(m, out.list) : out;
}

static struct value or_missing(struct value v, const struct value *missing)
{
    return v.kind == VALUE_UNDEFINED && missing != NULL ? *missing : v;
}

struct value member_path(struct renderer *m, struct value a, struct value path, const struct value *missing)
{
    if (path.kind != VALUE_STRING)
        return or_missing(item(m, a, path), missing);
    for (size_t from = 0; from <= path.text.n;) {
        size_t to = text_find(path.text, text_of("."), from);
        struct text name = text_slice(path.text, from, to < path.text.n ? to : path.text.n);
        bool digits = name.n > 0 && name.n < 10;
        int64_t index = 0;
        for (size_t i = 0; i < name.n; i++) {
            digits = digits && name.s[i] >= '0' && name.s[i] <= '9';
            index = digits ? 10 * index + (name.s[i] - '0') : 0;
        }
        a = or_missing(item(m, a, digits ? value_integer(index) : value_text(name)), missing);
        from = to + 1;
    }
    return a;
}
