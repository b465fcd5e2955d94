/* text/grammar/choice.c - see choice.h. */
#include "text/grammar/choice.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    const struct choice_text *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Bytes from `at` on that all n sorted texts have in common. */
static size_t common(const struct choice_text *text, size_t n, size_t at)
{
    const struct choice_text *a = &text[0], *b = &text[n - 1];
    size_t same = at;
    while (same < a->bytes && same < b->bytes && a->text[same] == b->text[same])
        same++;
    return same - at;
}

/* The bytes that may follow the first `at`, which all of them share. */
static int choose_text(struct graph *g, const struct choice_text *text, size_t n, size_t at, int next)
{
    size_t shared = common(text, n, at), end = at + shared, i = 0;
    int start = -1;
    for (; i < n && text[i].bytes == end; i++) /* complete; a duplicate adds nothing */
        start = next;
    for (size_t first = i; first < n && g->e->code == ERR_NONE; first = i) {
        for (i = first; i < n && text[i].text[end] == text[first].text[end];)
            i++;
        start = graph_either(g, choose_text(g, text + first, i - first, end, next), start);
    }
    return graph_text(g, text[0].text + at, shared, start);
}

int choice_graph(struct graph *g, struct choice_text *text, size_t n, int next)
{
    if (n == 0)
        return -1;
    qsort(text, n, sizeof *text, compare);
    return choose_text(g, text, n, 0, next);
}
