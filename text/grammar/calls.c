/* text/grammar/calls.c - see calls.h. */
#include "text/grammar/calls.h"

#include "text/grammar/lexicon.h"
#include "text/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The mark that the text begins with; NULL: none. */
static const json_t *mark_at(const json_t *marks, const char *text, size_t bytes)
{
    const json_t *mark;
    size_t i;
    json_array_foreach(marks, i, mark)
    {
        size_t n = json_string_length(mark);
        if (n > 0 && n <= bytes && memcmp(text, json_string_value(mark), n) == 0)
            return mark;
    }
    return NULL;
}

/* The nodes of one of the object's texts, then next. Built from its end: every byte, and in parallel to each mark the
 * path of its special token. */
static int fixed(struct graph *g, const json_t *marks, const json_t *object, const char *name, int next)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);
    int *from = text != NULL ? err_calloc(g->e, bytes + 1, sizeof *from, "calls") : NULL;
    if (text == NULL)
        ERR(g->e, ERR_INPUT, "calls: \"%s\" is not a string", name);
    if (from == NULL)
        return -1;
    from[bytes] = next;
    for (size_t i = bytes; i-- > 0;) {
        const json_t *mark = mark_at(marks, text + i, bytes - i);
        size_t n = json_string_length(mark);
        from[i] = graph_text(g, text + i, 1, from[i + 1]);
        if (mark != NULL) {
            int end = graph_bytes(g, LEXICON_SPECIAL, LEXICON_SPECIAL, from[i + n]);
            int special = graph_bytes(g, LEXICON_SPECIAL, LEXICON_SPECIAL, graph_text(g, text + i, n, end));
            from[i] = graph_either(g, special, from[i]);
        }
    }
    int start = from[0];
    free(from);
    return start;
}

/* A value of the schema, then next; an error names the call that the schema belongs to. */
static int named_schema(struct graph *g, const char *name, const json_t *schema, int next)
{
    bool was_good = g->e->code == ERR_NONE;
    if (schema == NULL)
        ERR(g->e, ERR_INPUT, "no schema");
    int value = schema == NULL ? -1 : schema_graph(g, schema, next);
    if (was_good && g->e->code != ERR_NONE) {
        char text[ERR_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%.128s: %.*s", name != NULL ? name : "?", (int)sizeof text - 140,
                       g->e->text);
        (void)snprintf(g->e->text, sizeof g->e->text, "%s", text);
    }
    return value;
}

static int call_graph(struct graph *g, const json_t *marks, const json_t *call, int next)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    int value = named_schema(g, name, json_object_get(call, "schema"), fixed(g, marks, call, "after", next));
    return fixed(g, marks, call, "before", value);
}

int calls_graph(struct graph *g, const json_t *asked, int next)
{
    const json_t *calls = json_object_get(asked, "calls"), *marks = json_object_get(asked, "marks"), *call;
    size_t i, n = json_array_size(calls);
    if (n == 0 || n > CALLS_MAX || json_array_size(marks) > CALLS_MAX_MARKS) {
        ERR(g->e, ERR_INPUT, "%zu tools and %zu marks, expected 1 to %d and at most %d", n, json_array_size(marks),
            CALLS_MAX, CALLS_MAX_MARKS);
        return -1;
    }
    int any = -1, again = graph_ahead(g), behind = fixed(g, marks, asked, "end", next);
    if (json_is_true(json_object_get(asked, "many")))
        behind = graph_either(g, fixed(g, marks, asked, "between", again), behind);
    json_array_foreach(calls, i, call) any = graph_either(g, call_graph(g, marks, call, behind), any);
    graph_lead(g, again, any);
    int start = fixed(g, marks, asked, "begin", any);
    const json_t *other = json_object_get(asked, "or");
    return other != NULL ? graph_either(g, start, named_schema(g, "the answer", other, next)) : start;
}
