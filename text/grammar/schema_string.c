/* text/grammar/schema_string.c - strings of a schema: lengths, patterns, formats. */
#include "text/grammar/schema_parts.h"

#include "base/json.h"
#include "text/grammar/charset.h"
#include "text/grammar/product.h"
#include "text/grammar/regex.h"

#include <string.h>

#define DATE "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define NAME "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"

/* Formats whose texts are written so that every reader of the format takes them. Others describe, as JSON schema has
 * it. */
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date-time", "^" DATE "T" TIME "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"duration", "^P([1-9][0-9]{0,3}D|[1-9][0-9]{0,3}W|T[1-9][0-9]{0,3}[HMS])$"},
    {"email", "^[A-Za-z0-9_]+([.+-][A-Za-z0-9_]+)*@" NAME "(\\." NAME ")+$"},
    {"hostname", "^" NAME "(\\." NAME ")*$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"uri", "^[a-z][a-z0-9+.-]{0,10}:(//" NAME "(\\." NAME ")*(:[0-9]{1,4})?)?[A-Za-z0-9/?#&=._~%2F-]*$"},
};

/* One character as it may stand within quotes, also as an escape. */
static int string_character(struct graph *g, int next)
{
    static const char hex[] = "[0-9A-Fa-f]";
    struct charset plain = {0};
    charset_add(&plain, 0x20, 0x21, g->e);
    charset_add(&plain, 0x23, 0x5b, g->e);
    charset_add(&plain, 0x5d, 0x10ffff, g->e);
    int start = charset_utf8(g, &plain, next);
    int two = regex_graph(g, "[0-9A-Fa-f]{2}", 14, REGEX_TEXT, next);
    int three = regex_graph(g, hex, sizeof hex - 1, REGEX_TEXT, two);
    int low = graph_text(g, "\\u", 2, regex_graph(g, "[Dd][C-Fc-f]", 12, REGEX_TEXT, two));
    int unicode = regex_graph(g, "[0-9A-Ca-cE-Fe-f]", 17, REGEX_TEXT, three);
    unicode = graph_either(g, unicode, regex_graph(g, "[Dd][0-7]", 9, REGEX_TEXT, two));
    int high = regex_graph(g, "[Dd][89ABab][0-9A-Fa-f]{2}", 26, REGEX_TEXT, low);
    unicode = graph_text(g, "u", 1, graph_either(g, unicode, high));
    int escaped = graph_either(g, regex_graph(g, "[\"\\\\/bfnrt]", 11, REGEX_TEXT, next), unicode);
    return graph_either(g, start, graph_bytes(g, '\\', '\\', escaped));
}

int schema_characters(struct graph *g, int64_t min, int64_t max, int next)
{
    bool counted = min > 0 || max >= 0;
    int loop = graph_ahead(g), end = graph_text(g, "\"", 1, next), inner = string_character(g, loop);
    if (counted) {
        end = graph_add(g, (struct node){.kind = NODE_UNCOUNT, .next = end, .other = -1});
        inner = graph_add(g, (struct node){.kind = NODE_TICK, .next = inner, .other = -1});
    }
    int head = graph_either(g, inner, end);
    head = graph_add(g, (struct node){.kind = NODE_FREE, .low = counted, .next = head, .other = -1});
    graph_lead(g, loop, head);
    if (!counted)
        return head;
    return graph_add(g, (struct node){.kind = NODE_COUNT, .next = head, .other = -1, .min = (int)min, .max = (int)max});
}

static int any_string(struct schema_builder *b, int next)
{
    if (b->free_string < 0) {
        b->free_string = graph_ahead(b->g);
        graph_lead(b->g, b->free_string, graph_text(b->g, "\"", 1, schema_characters(b->g, 0, -1, graph_return(b->g))));
    }
    return graph_call(b->g, b->free_string, next);
}

static const char *format_regex(const char *format)
{
    for (size_t i = 0; format != NULL && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, format) == 0)
            return formats[i].regex;
    return NULL;
}

int schema_string(struct schema_builder *b, const json_t *schema, int next)
{
    struct graph *g = b->g;
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    int64_t min = schema_size(b, schema, "minLength", 0), max = schema_size(b, schema, "maxLength", -1);
    if ((pattern != NULL && !json_is_string(pattern)) || (format != NULL && !json_is_string(format)))
        return ERR(g->e, ERR_INPUT, "schema: pattern and format are texts");
    const char *regex = pattern != NULL ? json_string_value(pattern) : format_regex(json_string_value(format));
    size_t bytes = pattern != NULL ? json_string_length(pattern) : regex != NULL ? strlen(regex) : 0;
    if (regex == NULL && min == 0 && max < 0)
        return any_string(b, next);
    if (regex == NULL)
        return graph_text(g, "\"", 1, schema_characters(g, min, max, next));
    int end = graph_text(g, "\"", 1, next);
    if (min == 0 && max < 0)
        return graph_text(g, "\"", 1, regex_graph(g, regex, bytes, REGEX_JSON, end));
    return graph_text(g, "\"", 1, product_graph(g, regex, bytes, min, max, end));
}
