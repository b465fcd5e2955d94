/* text/template/filters_text.c - filters of strings, and tojson. See builtin.h. */
#include "text/template/strings.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

static struct value upper(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_upper(m, subject_text(m, v)));
}

static struct value lower(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_lower(m, subject_text(m, v)));
}

static struct value capitalize(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(string_capitalize(m, subject_text(m, v)));
}

/* Words begin after blanks, hyphens and opening brackets. */
static struct value title(struct renderer *m, struct value v, const struct value *a)
{
    struct builder b = {.w = &m->heap};
    struct text t = subject_text(m, v);
    bool first = true;
    (void)a;
    renderer_step(m, 8 * t.n);
    for (size_t at = 0; at < t.n; at = text_next(t, at)) {
        int32_t cp = text_char(t, at);
        build_char(&b, first ? utf8proc_toupper(cp) : utf8proc_tolower(cp), text_marked(t, at));
        first = text_is_blank(cp) || (cp < 0x80 && cp > 0 && strchr("-({[<", (int)cp) != NULL);
    }
    return value_text(built(&b));
}

static struct value trim(struct renderer *m, struct value v, const struct value *a)
{
    struct text t = subject_text(m, v), set = {0};
    renderer_step(m, 8 * t.n);
    if (a->kind == VALUE_ABSENT || a->kind == VALUE_NONE)
        return value_text(text_strip(t, NULL, true, true));
    set = argument_text(m, a, set);
    return value_text(text_strip(t, &set, true, true));
}

static struct value replace(struct renderer *m, struct value v, const struct value *a)
{
    struct text t = subject_text(m, v);
    return value_text(
        string_replace(m, t, subject_text(m, a[0]), subject_text(m, a[1]), argument_integer(m, &a[2], -1)));
}

/* str() without any escaping: nothing is escaped in the first place. */
static struct value string(struct renderer *m, struct value v, const struct value *a)
{
    (void)a;
    return value_text(value_print(m, v));
}

static struct text blanks(struct renderer *m, int64_t n)
{
    struct builder b = {.w = &m->heap};
    if (n > 1000)
        renderer_fail(m, "found an indentation of %lld, expected at most 1000", (long long)n);
    for (int64_t i = 0; i < n; i++)
        build_string(&b, " ", false);
    return built(&b);
}

static struct text indentation(struct renderer *m, const struct value *a, int64_t missing)
{
    return a->kind == VALUE_STRING ? a->text : blanks(m, argument_integer(m, a, missing));
}

static struct value indent(struct renderer *m, struct value v, const struct value *a)
{
    struct builder b = {.w = &m->heap}, all = {.w = &m->heap};
    struct text margin = indentation(m, &a[0], 4);
    if (v.kind != VALUE_STRING)
        renderer_fail(m, "found a value of type %s to indent, expected a string", value_type(v));
    build(&all, v.text);
    build_string(&all, "\n", false);
    struct value lines = string_lines(m, built(&all));
    if (argument_true(&a[1], false))
        build(&b, margin);
    for (size_t i = 0; i < lines.list->n; i++) {
        struct text line = lines.list->item[i].text;
        if (i > 0)
            build_string(&b, "\n", false);
        if (i > 0 && (line.n > 0 || argument_true(&a[2], false)))
            build(&b, margin);
        build(&b, line);
        renderer_step(m, margin.n + line.n);
    }
    return value_text(built(&b));
}

/* json.dumps(x, ensure_ascii, indent, separators, sort_keys), with which transformers replaces jinja2's filter. */
static struct value tojson(struct renderer *m, struct value v, const struct value *a)
{
    bool lines = a[1].kind != VALUE_ABSENT && a[1].kind != VALUE_NONE;
    struct json_style style = {.ascii = argument_true(&a[0], false),
                               .sort = argument_true(&a[3], false),
                               .lines = lines,
                               .comma = text_of(lines ? "," : ", "),
                               .colon = text_of(": ")};
    style.comma.foreign = style.colon.foreign = true;
    if (lines)
        style.indent = indentation(m, &a[1], 0);
    if (a[2].kind != VALUE_ABSENT && a[2].kind != VALUE_NONE) {
        struct list both = value_iterate(m, a[2]);
        if (both.n != 2)
            renderer_fail(m, "found %zu separators, expected 2", both.n);
        style.comma = argument_text(m, &both.item[0], style.comma);
        style.colon = argument_text(m, &both.item[1], style.colon);
    }
    return value_text(value_json(m, v, &style));
}

static struct value format(struct renderer *m, struct value v, const struct arguments *given)
{
    if (given->n > 0 && given->n_named > 0)
        renderer_fail(m, "found arguments of \"format\" with names and without, expected one kind of them");
    return value_text(string_percent(m, subject_text(m, v), given));
}

static struct value wordcount(struct renderer *m, struct value v, const struct value *a)
{
    struct text t = subject_text(m, v);
    int64_t n = 0;
    bool inside = false;
    (void)a;
    for (size_t at = 0; at < t.n; at = text_next(t, at)) {
        int32_t cp = text_char(t, at);
        bool word =
            cp == '_' || utf8proc_category(cp) <= UTF8PROC_CATEGORY_LO || utf8proc_category(cp) == UTF8PROC_CATEGORY_ND;
        n += word && !inside;
        inside = word;
    }
    return value_integer(n);
}

const struct builtin text_filters[] = {{"capitalize", "", 0, capitalize, NULL},
                                       {"format", NULL, 0, NULL, format},
                                       {"indent", "width first blank", 0, indent, NULL},
                                       {"lower", "", 0, lower, NULL},
                                       {"replace", "old new count", 2, replace, NULL},
                                       {"safe", "", 0, string, NULL},
                                       {"string", "", 0, string, NULL},
                                       {"title", "", 0, title, NULL},
                                       {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson, NULL},
                                       {"trim", "chars", 0, trim, NULL},
                                       {"upper", "", 0, upper, NULL},
                                       {"wordcount", "", 0, wordcount, NULL},
                                       {NULL, NULL, 0, NULL, NULL}};
