/* text/template/filters_value.c - filters of any value, and functions. See builtin.h. */
#include "text/template/json.h"
#include "text/template/renderer.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct value default_(struct renderer *m, struct value v, const struct value *a)
{
    bool missing = v.kind == VALUE_UNDEFINED || (argument_true(&a[1], false) && !value_true(v));
    (void)m;
    return !missing ? v : a[0].kind != VALUE_ABSENT ? a[0] : value_text(text_of(""));
}

/* The number that a string contains, if it contains nothing else. */
static bool parse_number(struct text t, bool real, struct value *out)
{
    char digits[64];
    char *end;
    size_t n = 0;
    t = text_strip(t, NULL, true, true);
    for (size_t i = 0; i < t.n && n < sizeof digits; i++)
        if (t.s[i] != '_')
            digits[n++] = t.s[i];
    if (n == 0 || n == sizeof digits || strspn(digits, real ? "0123456789+-.eE" : "0123456789+-") < n)
        return false;
    digits[n] = '\0';
    errno = 0;
    *out = real ? value_real(strtod(digits, &end)) : value_integer(strtoll(digits, &end, 10));
    return *end == '\0' && errno != ERANGE;
}

static struct value integer(struct renderer *m, struct value v, const struct value *a)
{
    struct value missing = a[0].kind != VALUE_ABSENT ? a[0] : value_integer(0), number = v;
    (void)m;
    if (v.kind == VALUE_STRING && parse_number(v.text, false, &number))
        return number;
    if (v.kind == VALUE_STRING && !parse_number(v.text, true, &number))
        return missing;
    if (!value_is_number(number))
        return missing;
    if (number.kind != VALUE_FLOAT)
        return value_integer(value_to_integer(number));
    return fabs(number.real) < 9e18 ? value_integer((int64_t)number.real) : missing;
}

static struct value real(struct renderer *m, struct value v, const struct value *a)
{
    struct value number = v;
    (void)m;
    if (v.kind == VALUE_STRING ? parse_number(v.text, true, &number) : value_is_number(v))
        return value_real(value_to_real(number));
    return a[0].kind != VALUE_ABSENT ? a[0] : value_real(0);
}

static struct value absolute(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    if (!value_is_number(v))
        renderer_fail(m, "found a value of type %s, expected a number", value_type(v));
    if (v.kind == VALUE_FLOAT)
        return value_real(fabs(v.real));
    return value_to_integer(v) < 0 ? operate(m, OP_MULTIPLY, v, value_integer(-1)) : value_integer(value_to_integer(v));
}

static struct value round_(struct renderer *m, struct value v, const struct value *a)
{
    int64_t digits = argument_integer(m, &a[0], 0);
    struct text method = argument_text(m, &a[1], text_of("common"));
    if (!value_is_number(v) || digits < -300 || digits > 300)
        renderer_fail(m, "found a value of type %s to round to %lld digits, expected a number and up to 300",
                      value_type(v), (long long)digits);
    double scale = pow(10, (double)digits), x = value_to_real(v);
    if (text_is(method, "ceil") || text_is(method, "floor"))
        return value_real((text_is(method, "ceil") ? ceil(x * scale) : floor(x * scale)) / scale);
    if (!text_is(method, "common"))
        renderer_fail(m, "found another method of rounding, expected common, ceil or floor");
    if (v.kind != VALUE_FLOAT)
        return digits >= 0 ? v : value_integer((int64_t)(nearbyint(x * scale) / scale));
    char out[400];
    if (digits < 0 || digits > 17)
        return value_real(digits > 17 ? x : nearbyint(x * scale) / scale);
    (void)snprintf(out, sizeof out, "%.*f", (int)digits, x);
    return value_real(strtod(out, NULL));
}

static struct value attr(struct renderer *m, struct value v, const struct value *a)
{
    struct text name = argument_text(m, a, text_of(""));
    return v.kind == VALUE_DICT ? value_undefined(name) : member(m, v, name); /* members, never items */
}

/* Not in jinja2, but used by templates: parses JSON. */
static struct value from_json(struct renderer *m, struct value v, const struct value *a)
{
    struct err e = {0};
    (void)a;
    struct text t = argument_text(m, &v, text_of(""));
    renderer_step(m, 32 * t.n);
    struct kept *kept = heap_alloc(&m->heap, 1, sizeof *kept);
    kept->json = json_parse(t.s, t.n, "from_json", &e);
    if (kept->json == NULL)
        renderer_fail(m, "%.300s", e.text);
    kept->next = m->kept;
    m->kept = kept;
    return value_from_json(m, kept->json, true);
}

const struct builtin value_filters[] = {{"abs", "", 0, absolute, NULL},
                                        {"attr", "name", 1, attr, NULL},
                                        {"d", "default_value boolean", 0, default_, NULL},
                                        {"default", "default_value boolean", 0, default_, NULL},
                                        {"float", "default", 0, real, NULL},
                                        {"from_json", "", 0, from_json, NULL},
                                        {"int", "default", 0, integer, NULL},
                                        {"round", "precision method", 0, round_, NULL},
                                        {NULL, NULL, 0, NULL, NULL}};

static struct value range(struct renderer *m, struct value v, const struct value *a)
{
    bool both = a[1].kind != VALUE_ABSENT;
    int64_t start = both ? argument_integer(m, &a[0], 0) : 0, step = argument_integer(m, &a[2], 1);
    int64_t stop = argument_integer(m, &a[both], 0);
    struct value out = value_list(&m->heap, FORM_RANGE);
    (void)v;
    if (step == 0)
        renderer_fail(m, "found a range with a step of 0, expected another");
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (out.list->n == RANGE_MAX)
            renderer_fail(m, "found a range of more than %d, expected fewer", RANGE_MAX);
        list_add(&m->heap, out.list, value_integer(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return out;
}

static void put_named(struct renderer *m, struct dict *d, const struct arguments *given)
{
    for (int i = 0; i < given->n_named; i++)
        dict_put(m, d, value_text(given->name[i]), given->named[i]);
}

/* From a dict or pairs, and from named arguments. */
static struct value dict(struct renderer *m, struct value v, const struct arguments *given)
{
    struct value out = value_dict(&m->heap);
    (void)v;
    if (given->n > 1)
        renderer_fail(m, "found %d arguments of \"dict\", expected at most 1 without a name", given->n);
    if (given->n == 1 && given->value[0].kind == VALUE_DICT) {
        for (size_t i = 0; i < given->value[0].dict->n; i++)
            dict_append(&m->heap, out.dict, given->value[0].dict->entry[i].key, given->value[0].dict->entry[i].value);
    } else if (given->n == 1) {
        struct list all = value_iterate(m, given->value[0]);
        for (size_t i = 0; i < all.n; i++) {
            struct list pair = value_iterate(m, all.item[i]);
            if (pair.n != 2)
                renderer_fail(m, "found %zu values, expected a key and a value", pair.n);
            dict_put(m, out.dict, pair.item[0], pair.item[1]);
        }
    }
    put_named(m, out.dict, given);
    return out;
}

static struct value namespace(struct renderer *m, struct value v, const struct arguments *given)
{
    struct value out = dict(m, v, given);
    out.kind = VALUE_NAMESPACE;
    return out;
}

/* The template refuses the chat with this message. */
static struct value raise_exception(struct renderer *m, struct value v, const struct value *a)
{
    struct text t = subject_text(m, a[0]);
    (void)v;
    renderer_fail(m, "the template says: %.*s", (int)(t.n < 300 ? t.n : 300), t.n > 0 ? t.s : "");
}

static struct value strftime_now(struct renderer *m, struct value v, const struct value *a)
{
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    struct builder b = {.w = &m->heap};
    struct text format = argument_text(m, a, text_of(""));
    struct tm now;
    (void)v;
    if (localtime_r(&m->now, &now) == NULL)
        renderer_fail(m, "the clock cannot be read");
    for (size_t i = 0; i < format.n; i++) {
        char out[64], one[3] = {'%', i + 1 < format.n ? format.s[i + 1] : '%', '\0'};
        if (format.s[i] != '%') {
            build(&b, text_slice(format, i, i + 1));
            continue;
        }
        i++;
        if (one[1] == 'A' || one[1] == 'a') /* in English, whatever the locale is */
            (void)snprintf(out, sizeof out, "%.*s", one[1] == 'A' ? 20 : 3, days[now.tm_wday]);
        else if (one[1] == 'B' || one[1] == 'b' || one[1] == 'h')
            (void)snprintf(out, sizeof out, "%.*s", one[1] == 'B' ? 20 : 3, months[now.tm_mon]);
        else if (strchr("dmyYHIMSjpUWwZzFTDRcxXneuGV%", one[1]) == NULL || strftime(out, sizeof out, one, &now) == 0)
            renderer_fail(m,
                          "found %%%c in a time, expected one of %%Y %%m %%d %%B %%b %%A %%a %%H %%M %%S and the like",
                          one[1]);
        build_string(&b, out, false);
    }
    return value_text(built(&b));
}

const struct builtin global_functions[] = {{"dict", NULL, 0, NULL, dict},
                                           {"namespace", NULL, 0, NULL, namespace},
                                           {"raise_exception", "message", 1, raise_exception, NULL},
                                           {"range", "start stop step", 1, range, NULL},
                                           {"strftime_now", "format", 1, strftime_now, NULL},
                                           {NULL, NULL, 0, NULL, NULL}};
