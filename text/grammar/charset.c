/* text/grammar/charset.c - see charset.h. */
#include "text/grammar/charset.h"

#include "base/utf8.h"

#include <string.h>

#define LAST_CODE_POINT 0x10ffff
#define FIRST_SURROGATE 0xd800 /* surrogates */
#define LAST_SURROGATE  0xdfff

static int add_range(struct charset *s, int32_t first, int32_t last, struct err *e)
{
    if (first > last)
        return 0;
    if (s->n == CHARSET_RANGES)
        return ERR(e, ERR_UNSUPPORTED, "a class of characters has more than %d ranges", CHARSET_RANGES);
    s->first[s->n] = first;
    s->last[s->n++] = last;
    return 0;
}

int charset_add(struct charset *s, int32_t first, int32_t last, struct err *e)
{
    if (first > LAST_SURROGATE || last < FIRST_SURROGATE)
        return add_range(s, first, last, e);
    return add_range(s, first, FIRST_SURROGATE - 1, e) != 0 ? -1 : add_range(s, LAST_SURROGATE + 1, last, e);
}

int charset_join(struct charset *s, const struct charset *other, struct err *e)
{
    for (int i = 0; i < other->n; i++)
        if (add_range(s, other->first[i], other->last[i], e) != 0)
            return -1;
    return 0;
}

void charset_sort(struct charset *s)
{
    for (int i = 1; i < s->n; i++) { /* few ranges, mostly in order */
        int32_t first = s->first[i], last = s->last[i];
        int at = i;
        for (; at > 0 && s->first[at - 1] > first; at--) {
            s->first[at] = s->first[at - 1];
            s->last[at] = s->last[at - 1];
        }
        s->first[at] = first;
        s->last[at] = last;
    }
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (n > 0 && s->first[i] <= s->last[n - 1] + 1) {
            s->last[n - 1] = s->last[i] > s->last[n - 1] ? s->last[i] : s->last[n - 1];
            continue;
        }
        s->first[n] = s->first[i];
        s->last[n++] = s->last[i];
    }
    s->n = n;
}

int charset_invert(struct charset *s, int32_t limit, struct err *e)
{
    struct charset in = *s, out = {0};
    if (add_range(&in, FIRST_SURROGATE, LAST_SURROGATE, e) != 0)
        return -1;
    charset_sort(&in);
    int32_t from = 0;
    for (int i = 0; i < in.n && from <= limit; i++) {
        int32_t end = in.first[i] - 1 < limit ? in.first[i] - 1 : limit;
        if (add_range(&out, from, end, e) != 0)
            return -1;
        from = in.last[i] + 1;
    }
    if (add_range(&out, from, limit, e) != 0)
        return -1;
    *s = out;
    return 0;
}

/* Characters whose UTF-8 is equally long and whose bytes from `at` on are between those of a and b. */
static int utf8_between(struct graph *g, const unsigned char *a, const unsigned char *b, int n, int next)
{
    static const unsigned char lowest[4] = {0x80, 0x80, 0x80, 0x80}, highest[4] = {0xbf, 0xbf, 0xbf, 0xbf};
    if (n == 1)
        return graph_bytes(g, a[0], b[0], next);
    if (a[0] == b[0])
        return graph_bytes(g, a[0], a[0], utf8_between(g, a + 1, b + 1, n - 1, next));
    size_t rest = (size_t)(n - 1);
    bool a_whole = memcmp(a + 1, lowest, rest) == 0, b_whole = memcmp(b + 1, highest, rest) == 0;
    int low = a[0] + !a_whole, high = b[0] - !b_whole, start = -1;
    if (!a_whole)
        start = graph_bytes(g, a[0], a[0], utf8_between(g, a + 1, highest, n - 1, next));
    if (low <= high)
        start = graph_either(g, start, graph_bytes(g, low, high, utf8_between(g, lowest, highest, n - 1, next)));
    if (!b_whole)
        start = graph_either(g, start, graph_bytes(g, b[0], b[0], utf8_between(g, lowest, b + 1, n - 1, next)));
    return start;
}

/* The part of [first, last] whose UTF-8 has n bytes. */
static int utf8_of_length(struct graph *g, int32_t first, int32_t last, int n, int next)
{
    static const int32_t end[] = {-1, 0x7f, 0x7ff, 0xffff, LAST_CODE_POINT};
    unsigned char a[4] = {0}, b[4] = {0};
    first = first > end[n - 1] + 1 ? first : end[n - 1] + 1;
    last = last < end[n] ? last : end[n];
    if (first > last)
        return -1;
    utf8_put((char *)a, first);
    utf8_put((char *)b, last);
    return utf8_between(g, a, b, n, next);
}

static int utf8_ranges(struct graph *g, const struct charset *s, int next)
{
    int start = -1;
    for (int i = 0; i < s->n; i++)
        for (int n = 1; n <= 4; n++)
            start = graph_either(g, start, utf8_of_length(g, s->first[i], s->last[i], n, next));
    return start;
}

static int or_fail(struct graph *g, int start)
{
    return start >= 0 ? start : graph_add(g, (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1});
}

int charset_utf8(struct graph *g, const struct charset *s, int next)
{
    return or_fail(g, utf8_ranges(g, s, next));
}

static bool contains(const struct charset *s, int32_t c)
{
    for (int i = 0; i < s->n; i++)
        if (c >= s->first[i] && c <= s->last[i])
            return true;
    return false;
}

/* The letter of a character's short JSON escape (\n); 0: it has none. */
static char short_escape(int32_t c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return '\0';
    }
}

/* u00XX for the control characters 16 * high + .. of s that have no short form. */
static int long_escapes(struct graph *g, const struct charset *s, int high, int next)
{
    int last = -1;
    for (int low = 0; low < 16; low++) {
        int digit = low < 10 ? '0' + low : 'a' + low - 10;
        if (contains(s, high * 16 + low) && short_escape(high * 16 + low) == '\0')
            last = graph_either(g, last, graph_bytes(g, digit, digit, next));
    }
    return last < 0 ? -1 : graph_text(g, high == 0 ? "u000" : "u001", 4, last);
}

int charset_json(struct graph *g, const struct charset *s, int next)
{
    static const int32_t first[] = {0x20, 0x23, 0x5d}, last[] = {0x21, 0x5b, LAST_CODE_POINT};
    struct charset plain = {0};
    for (int i = 0; i < s->n; i++) /* at most three times as many: larger sets fail with CHARSET_RANGES */
        for (int k = 0; k < 3; k++) {
            int32_t from = s->first[i] > first[k] ? s->first[i] : first[k];
            if (add_range(&plain, from, s->last[i] < last[k] ? s->last[i] : last[k], g->e) != 0)
                return -1;
        }
    int escaped = graph_either(g, long_escapes(g, s, 0, next), long_escapes(g, s, 1, next));
    for (int32_t c = 0; c <= '\\'; c++) {
        char letter = short_escape(c);
        if (letter != '\0' && contains(s, c))
            escaped = graph_either(g, escaped, graph_bytes(g, letter, letter, next));
    }
    int start = utf8_ranges(g, &plain, next);
    return or_fail(g, escaped < 0 ? start : graph_either(g, start, graph_bytes(g, '\\', '\\', escaped)));
}
