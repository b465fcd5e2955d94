/* text/template/print.c - str(), repr() and json.dumps(). Text that they write between a user's words counts as the
 * request's. */
#include "text/template/renderer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

/* The fewest digits that read back as the same number, in Python's choice of notations. */
void print_real(char *out, double x)
{
    char digits[40];
    int precision = 0;
    if (isnan(x) || isinf(x)) {
        (void)snprintf(out, 40, "%s", isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    do
        (void)snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (strtod(digits, NULL) != x && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        (void)snprintf(out, 40, "%.*f", precision > exponent ? precision - exponent : 1, x);
    else
        (void)snprintf(out, 40, "%s", digits);
}

static void write_number(struct builder *b, struct value v)
{
    char out[40];
    if (v.kind == VALUE_FLOAT)
        print_real(out, v.real);
    else
        (void)snprintf(out, sizeof out, "%lld", (long long)v.integer);
    build_string(b, out, true);
}

/* Categories that Python's repr writes as escapes. */
static bool is_printable(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    bool blank = c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
    bool other = c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CS ||
                 c == UTF8PROC_CATEGORY_CO || c == UTF8PROC_CATEGORY_CN;
    return cp == ' ' || (!blank && !other);
}

static void write_escape(struct builder *b, int32_t cp)
{
    char out[16];
    (void)snprintf(out, sizeof out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
    build_string(b, out, true);
}

static void write_repr(struct builder *b, struct text t)
{
    const char *quote = text_find(t, text_of("'"), 0) < t.n && text_find(t, text_of("\""), 0) >= t.n ? "\"" : "'";
    build_string(b, quote, true);
    for (size_t at = 0, next; at < t.n; at = next) {
        int32_t cp = text_char(t, at);
        next = text_next(t, at);
        if (cp == '\n' || cp == '\r' || cp == '\t')
            build_string(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t", true);
        else if (!is_printable(cp))
            write_escape(b, cp);
        else {
            if (cp == '\\' || cp == quote[0])
                build_string(b, "\\", true);
            build(b, text_slice(t, at, next));
        }
    }
    build_string(b, quote, true);
}

static void write_value(struct renderer *m, struct builder *b, struct value v);

static void write_entries(struct renderer *m, struct builder *b, const struct dict *d)
{
    build_string(b, "{", true);
    for (size_t i = 0; i < d->n; i++) {
        build_string(b, i > 0 ? ", " : "", true);
        write_value(m, b, d->entry[i].key);
        build_string(b, ": ", true);
        write_value(m, b, d->entry[i].value);
    }
    build_string(b, "}", true);
}

static void write_items(struct renderer *m, struct builder *b, const struct list *l)
{
    bool tuple = l->form == FORM_TUPLE;
    if (l->form > FORM_TUPLE)
        renderer_fail(m, "found a %s to print, expected a list: \"| list\" makes one",
                      value_type((struct value){.kind = VALUE_LIST, .list = (struct list *)l}));
    build_string(b, tuple ? "(" : "[", true);
    for (size_t i = 0; i < l->n; i++) {
        build_string(b, i > 0 ? ", " : "", true);
        write_value(m, b, l->item[i]);
    }
    build_string(b, tuple && l->n == 1 ? ",)" : tuple ? ")" : "]", true);
}

static void write_value(struct renderer *m, struct builder *b, struct value v)
{
    renderer_enter(m);
    renderer_step(m, v.kind == VALUE_STRING ? v.text.n : 0);
    switch (v.kind) {
    case VALUE_UNDEFINED:
        build_string(b, "Undefined", true);
        break;
    case VALUE_NONE:
        build_string(b, "None", true);
        break;
    case VALUE_BOOL:
        build_string(b, v.boolean ? "True" : "False", true);
        break;
    case VALUE_INTEGER:
    case VALUE_FLOAT:
        write_number(b, v);
        break;
    case VALUE_STRING:
        write_repr(b, v.text);
        break;
    case VALUE_LIST:
        write_items(m, b, v.list);
        break;
    case VALUE_DICT:
        write_entries(m, b, v.dict);
        break;
    case VALUE_NAMESPACE:
        build_string(b, "<Namespace ", true);
        write_entries(m, b, v.dict);
        build_string(b, ">", true);
        break;
    default:
        renderer_fail(m, "found a %s to print, expected a value", value_type(v));
    }
    renderer_leave(m);
}

struct text value_print(struct renderer *m, struct value v)
{
    struct builder b = {.w = &m->heap};
    if (v.kind == VALUE_STRING)
        return v.text;
    if (v.kind != VALUE_UNDEFINED)
        write_value(m, &b, v);
    return built(&b);
}
