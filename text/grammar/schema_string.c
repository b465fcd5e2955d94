/* text/grammar/schema_string.c - strings of a schema: lengths, patterns, formats. */
#include "text/grammar/schema_parts.h"

#include "base/json.h"
#include "text/grammar/charset.h"
#include "text/grammar/product.h"
#include "text/grammar/regex.h"

#include <string.h>

#define YEAR     "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define FOUR     "(0[48]|[2468][048]|[13579][26])" /* multiples of 4, not 00 */
#define DAY      "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define DATE     "(" YEAR "-" DAY "|([0-9]{2}" FOUR "|" FOUR "00)-02-29)"
#define TIME     "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE     "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define WORD     "[0-9A-Fa-f]{1,4}"
#define WORDS(n) "(" WORD ":){" n "}"
#define NAME     "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
#define HOST     NAME "(\\." NAME ")*"

#define PATH_CHARACTER "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PATH           "(/" PATH_CHARACTER "*)"
#define QUERY          "(" PATH_CHARACTER "|[/?])*"
#define URI_BEGIN \
    "[a-z][a-z0-9+.-]{0,10}:(//" HOST "(:[0-9]{1,5})?" PATH "*|//" PATH "+|/?(" PATH_CHARACTER "+" PATH "*)?)"

#define MANY     "[1-9][0-9]{0,3}"
#define DAYS     MANY "D"
#define MONTHS   MANY "M(" DAYS ")?"
#define YEARS    MANY "Y(" MONTHS ")?"
#define SECONDS  MANY "S"
#define MINUTES  MANY "M(" SECONDS ")?"
#define HOURS    MANY "H(" MINUTES ")?"
#define OF_A_DAY "T(" HOURS "|" MINUTES "|" SECONDS ")"

/* Formats that restrict the text, narrowly enough for every validator. Others are only descriptive, as in JSON
 * schema. */
static const struct {
    const char *name, *regex;
} formats[SCHEMA_FORMATS] = {
    {"date-time", "^" DATE "T" TIME "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"duration", "^P(" MANY "W|(" YEARS "|" MONTHS "|" DAYS ")(" OF_A_DAY ")?|" OF_A_DAY ")$"},
    {"email", "^[A-Za-z0-9_]+([.+-][A-Za-z0-9_]+)*@" NAME "(\\." NAME ")+$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^(" WORDS("7") WORD "|" WORDS("1,7") ":|" WORDS("1,6") ":" WORD "|" WORDS(
                 "1,5") "(:" WORD
                        "){1,2}|" WORDS("1,4") "(:" WORD "){1,3}|" WORDS("1,3") "(:" WORD "){1,4}|" WORDS(
                            "1,2") "(:" WORD "){1,5}|" WORDS("1") "(:" WORD "){1,6}|:((:" WORD "){1,7}|:))$"},
    {"uuid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    {"uri", "^" URI_BEGIN "(\\?" QUERY ")?(#" QUERY ")?$"},
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
        end = graph_add(g, (struct graph_node){.kind = GRAPH_UNCOUNT, .next = end, .other = -1});
        inner = graph_add(g, (struct graph_node){.kind = GRAPH_TICK, .next = inner, .other = -1});
    }
    int head = graph_either(g, inner, end);
    head = graph_add(g, (struct graph_node){.kind = GRAPH_FREE, .low = counted, .next = head, .other = -1});
    graph_lead(g, loop, head);
    if (!counted)
        return head;
    return graph_add(
        g, (struct graph_node){.kind = GRAPH_COUNT, .next = head, .other = -1, .min = (int)min, .max = (int)max});
}

static void make_characters(struct schema_builder *b)
{
    struct charset wide = {0};
    if (b->characters >= 0)
        return;
    b->characters = graph_ahead(b->g);
    graph_lead(b->g, b->characters, schema_characters(b->g, 0, -1, graph_return(b->g)));
    charset_add(&wide, 0x80, 0x10ffff, b->g->e);
    b->wide = charset_utf8(b->g, &wide, b->characters);
}

int schema_free_characters(struct schema_builder *b, int next)
{
    make_characters(b);
    return graph_call(b->g, b->characters, next);
}

int schema_wide_characters(struct schema_builder *b, int next)
{
    make_characters(b);
    return graph_call(b->g, b->wide, next);
}

/* The longest text that may have both a format and a length: each character needs a copy of the format's states. */
#define FORMAT_MOST 128

static int find_format(const char *name)
{
    for (int i = 0; name != NULL && i < SCHEMA_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return i;
    return -1;
}

/* A text of the format and the closing quote, once for all. */
static int format_characters(struct schema_builder *b, int format, int next)
{
    struct graph *g = b->g;
    const char *regex = formats[format].regex;
    if (b->format[format] < 0) {
        b->format[format] = graph_ahead(g);
        int end = graph_text(g, "\"", 1, graph_return(g));
        graph_lead(g, b->format[format], regex_graph(g, regex, strlen(regex), REGEX_JSON, end));
    }
    return graph_call(g, b->format[format], next);
}

int schema_string(struct schema_builder *b, const json_t *schema, int next)
{
    struct graph *g = b->g;
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    int64_t min = schema_size(b, schema, "minLength", 0), max = schema_size(b, schema, "maxLength", -1);
    if ((pattern != NULL && !json_is_string(pattern)) || (format != NULL && !json_is_string(format)))
        return ERR(g->e, ERR_INPUT, "schema: pattern and format are texts");
    int known = pattern == NULL ? find_format(json_string_value(format)) : -1;
    const char *regex = known >= 0 ? formats[known].regex : json_string_value(pattern);
    size_t bytes = known >= 0 ? strlen(regex) : json_string_length(pattern);
    if (known >= 0 && min == 0 && max < 0)
        return graph_text(g, "\"", 1, format_characters(b, known, next));
    if (known >= 0 && max > FORMAT_MOST && min <= FORMAT_MOST)
        max = FORMAT_MOST;
    if (regex == NULL && min == 0 && max < 0)
        return graph_text(g, "\"", 1, schema_free_characters(b, next));
    if (regex == NULL)
        return graph_text(g, "\"", 1, schema_characters(g, min, max, next));
    int end = graph_text(g, "\"", 1, next);
    if (min == 0 && max < 0)
        return graph_text(g, "\"", 1, regex_graph(g, regex, bytes, REGEX_JSON, end));
    return graph_text(g, "\"", 1, product_graph(g, regex, bytes, min, max, end));
}
