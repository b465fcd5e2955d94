/* text/grammar/calls.c - see calls.h. */
#include "text/grammar/calls.h"

#include "text/grammar/schema.h"

#include <stdio.h>

/* A text of the object, then next. */
static int fixed(struct graph *g, const json_t *object, const char *name, int next)
{
    const json_t *text = json_object_get(object, name);
    if (!json_is_string(text)) {
        ERR(g->e, ERR_INPUT, "calls: \"%s\" is no text", name);
        return -1;
    }
    return graph_text(g, json_string_value(text), json_string_length(text), next);
}

static int call_graph(struct graph *g, const json_t *call, int next)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    const json_t *schema = json_object_get(call, "schema");
    bool was_good = g->e->code == ERR_NONE;
    if (schema == NULL)
        ERR(g->e, ERR_INPUT, "no schema");
    int value = schema == NULL ? -1 : schema_graph(g, schema, fixed(g, call, "after", next));
    if (was_good && g->e->code != ERR_NONE) { /* whose schema it is */
        char text[ERR_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "%.128s: %.*s", name != NULL ? name : "?", (int)sizeof text - 140,
                       g->e->text);
        (void)snprintf(g->e->text, sizeof g->e->text, "%s", text);
        return -1;
    }
    return fixed(g, call, "before", value);
}

int calls_graph(struct graph *g, const json_t *asked, int next)
{
    const json_t *calls = json_object_get(asked, "calls"), *call;
    size_t i, n = json_array_size(calls);
    int any = -1, again = graph_ahead(g), behind = fixed(g, asked, "end", next);
    if (n == 0 || n > CALLS_MAX) {
        ERR(g->e, ERR_INPUT, "%zu tools, expected 1 to %d", n, CALLS_MAX);
        return -1;
    }
    if (json_is_true(json_object_get(asked, "many")))
        behind = graph_either(g, fixed(g, asked, "between", again), behind);
    json_array_foreach(calls, i, call) any = graph_either(g, call_graph(g, call, behind), any);
    graph_lead(g, again, any);
    return fixed(g, asked, "begin", any);
}
