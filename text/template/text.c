/* text/template/text.c - see text.h. */
#include "text/template/text.h"

#include "base/utf8.h"
#include "text/tokenizer/unicode.h"

#include <string.h>

struct text text_of(const char *string)
{
    return (struct text){string, strlen(string), NULL, false};
}

struct text text_slice(struct text t, size_t from, size_t to)
{
    return (struct text){t.s + from, to > from ? to - from : 0, t.mark != NULL ? t.mark + from : NULL, t.foreign};
}

bool text_equal(struct text a, struct text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool text_is(struct text t, const char *string)
{
    return text_equal(t, text_of(string));
}

int text_compare(struct text a, struct text b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.s, b.s, n) : 0;
    return c != 0 ? c : a.n < b.n ? -1 : a.n > b.n;
}

bool text_marked(struct text t, size_t i)
{
    return t.mark != NULL ? t.mark[i] != 0 : t.foreign;
}

size_t text_find(struct text t, struct text what, size_t from)
{
    if (from > t.n || what.n > t.n - from)
        return t.n + 1;
    if (what.n == 0)
        return from;
    const char *at = memmem(t.s + from, t.n - from, what.s, what.n);
    return at != NULL ? (size_t)(at - t.s) : t.n + 1;
}

size_t text_characters(struct text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++)
        n += ((unsigned char)t.s[i] & 0xc0) != 0x80;
    return n;
}

size_t text_next(struct text t, size_t at)
{
    for (at++; at < t.n && ((unsigned char)t.s[at] & 0xc0) == 0x80;)
        at++;
    return at;
}

size_t text_previous(struct text t, size_t at)
{
    for (at--; at > 0 && ((unsigned char)t.s[at] & 0xc0) == 0x80;)
        at--;
    return at;
}

int32_t text_char(struct text t, size_t at)
{
    int32_t cp = 0;
    int bad = 0;
    (void)utf8_get(t.s + at, t.n - at, &cp, &bad);
    return cp;
}

bool text_is_blank(int32_t cp)
{
    return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

static bool goes(struct text t, size_t at, const struct text *set)
{
    if (set == NULL)
        return text_is_blank(text_char(t, at));
    return text_find(*set, text_slice(t, at, text_next(t, at)), 0) < set->n;
}

struct text text_strip(struct text t, const struct text *set, bool left, bool right)
{
    size_t from = 0, to = t.n;
    while (left && from < to && goes(t, from, set))
        from = text_next(t, from);
    while (right && to > from && goes(t, text_previous(t, to), set))
        to = text_previous(t, to);
    return text_slice(t, from, to);
}

static void reserve(struct builder *b, size_t n)
{
    if (n <= b->capacity - b->n)
        return;
    size_t capacity = 2 * b->capacity + n + 32;
    char *s = heap_alloc(b->w, capacity, 1);
    if (b->n > 0)
        memcpy(s, b->s, b->n);
    b->s = s;
    if (b->mark != NULL) {
        char *mark = heap_alloc(b->w, capacity, 1);
        memcpy(mark, b->mark, b->n);
        b->mark = mark;
    }
    b->capacity = capacity;
}

/* Once a byte's origin differs from that of the bytes before it, every byte gets a mark. */
static void begin_marks(struct builder *b)
{
    b->mark = heap_alloc(b->w, b->capacity, 1);
    memset(b->mark, b->foreign, b->n);
}

void build(struct builder *b, struct text t)
{
    if (t.n == 0)
        return;
    reserve(b, t.n);
    if (b->n == 0 && t.mark == NULL)
        b->foreign = t.foreign;
    if (b->mark == NULL && (t.mark != NULL || t.foreign != b->foreign))
        begin_marks(b);
    memcpy(b->s + b->n, t.s, t.n);
    if (b->mark != NULL && t.mark != NULL)
        memcpy(b->mark + b->n, t.mark, t.n);
    else if (b->mark != NULL)
        memset(b->mark + b->n, t.foreign, t.n);
    b->n += t.n;
}

void build_bytes(struct builder *b, const char *s, size_t n, bool foreign)
{
    build(b, (struct text){s, n, NULL, foreign});
}

void build_string(struct builder *b, const char *string, bool foreign)
{
    build_bytes(b, string, strlen(string), foreign);
}

void build_char(struct builder *b, int32_t cp, bool foreign)
{
    char s[4];
    build_bytes(b, s, utf8_put(s, cp), foreign);
}

struct text built(const struct builder *b)
{
    return (struct text){b->s != NULL ? b->s : "", b->n, b->mark, b->foreign};
}
