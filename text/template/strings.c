/* text/template/strings.c - see strings.h. */
#include "text/template/strings.h"

#include <utf8proc.h>

/* Python's case mappings, except for the few characters other than sharp s that become several. */
static void build_cased(struct builder *b, struct text c, bool upper)
{
    int32_t cp = text_char(c, 0);
    bool foreign = text_marked(c, 0);
    if (cp == 0xdf && upper)
        build_string(b, "SS", foreign);
    else if (cp == 0x130 && !upper)
        build_string(b, "i\xcc\x87", foreign);
    else
        build_char(b, upper ? utf8proc_toupper(cp) : utf8proc_tolower(cp), foreign);
}

static void build_case(struct renderer *m, struct builder *b, struct text t, bool upper)
{
    renderer_step(m, 8 * t.n);
    for (size_t at = 0; at < t.n; at = text_next(t, at))
        build_cased(b, text_slice(t, at, text_next(t, at)), upper);
}

struct text string_upper(struct renderer *m, struct text t)
{
    struct builder b = {.w = &m->heap};
    build_case(m, &b, t, true);
    return built(&b);
}

struct text string_lower(struct renderer *m, struct text t)
{
    struct builder b = {.w = &m->heap};
    build_case(m, &b, t, false);
    return built(&b);
}

struct text string_capitalize(struct renderer *m, struct text t)
{
    struct builder b = {.w = &m->heap};
    size_t first = t.n > 0 ? text_next(t, 0) : 0;
    if (first > 0)
        build_char(&b, utf8proc_totitle(text_char(t, 0)), text_marked(t, 0));
    build_case(m, &b, text_slice(t, first, t.n), false);
    return built(&b);
}

struct text string_replace(struct renderer *m, struct text t, struct text old, struct text by, int64_t most)
{
    struct builder b = {.w = &m->heap};
    size_t from = 0;
    renderer_step(m, t.n);
    for (int64_t n = 0; n != most; n++) {
        size_t at = text_find(t, old, from + (old.n == 0 && n > 0));
        if (old.n == 0 && n > 0 && from < t.n)
            at = text_next(t, from);
        if (at > t.n)
            break;
        renderer_step(m, by.n);
        build(&b, text_slice(t, from, at));
        build(&b, by);
        from = at + old.n;
    }
    build(&b, text_slice(t, from, t.n));
    return built(&b);
}

static bool ends_line(int32_t cp)
{
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

struct value string_lines(struct renderer *m, struct text t)
{
    struct value lines = value_list(&m->heap, FORM_LIST);
    size_t from = 0;
    renderer_step(m, t.n);
    for (size_t at = 0, next; at < t.n; at = next) {
        next = text_next(t, at);
        if (!ends_line(text_char(t, at)))
            continue;
        list_add(&m->heap, lines.list, value_text(text_slice(t, from, at)));
        next += t.s[at] == '\r' && next < t.n && t.s[next] == '\n';
        from = next;
    }
    if (from < t.n)
        list_add(&m->heap, lines.list, value_text(text_slice(t, from, t.n)));
    return lines;
}

struct text string_join(struct renderer *m, struct text between, const struct list *items, bool strings_only)
{
    struct builder b = {.w = &m->heap};
    for (size_t i = 0; i < items->n; i++) {
        if (strings_only && items->item[i].kind != VALUE_STRING)
            renderer_fail(m, "found a value of type %s to join, expected strings", value_type(items->item[i]));
        if (i > 0)
            build(&b, between);
        build(&b, subject_text(m, items->item[i]));
        renderer_step(m, between.n);
    }
    return built(&b);
}
