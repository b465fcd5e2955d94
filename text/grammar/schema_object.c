/* text/grammar/schema_object.c - objects of a schema: members in their order, then free ones. */
#include "text/grammar/schema_parts.h"

#include "base/json.h"
#include "base/utf8.h"
#include "text/grammar/charset.h"
#include "text/grammar/machine.h"
#include "text/grammar/regex.h"

#include <stdlib.h>
#include <string.h>

struct member {
    const char *name;
    int pair; /* the rule of its name, colon and value */
    bool required;
};

struct object {
    struct schema_builder *b;
    struct member *member; /* [n] in the order of the schema */
    int n, n_required;
    int free_pair; /* the rule of further members; -1: there are none */
    int min, max;  /* number of members; max -1: any */
    int cap;       /* numbers are kept up to here */
    int close;     /* what follows the last member */
    int *head;     /* [(n + 1) * (cap + 1)] behind members 0 .. i - 1, of which k are there; -1: not made */
};

/* ---- names ---- */

struct names {
    const char **name; /* [n] sorted */
    int n;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A character that is written with a backslash, unless a name goes on with it here; -1. */
static int other_escape(struct graph *g, const struct charset *used, char c, int next)
{
    for (int i = 0; i < used->n; i++)
        if (used->first[i] == c)
            return -1;
    return graph_bytes(g, '\\', '\\', graph_text(g, &c, 1, next));
}

struct name_end {
    int any;  /* what follows a character that leaves all names */
    int wide; /* such a character that is beyond ASCII, and what follows */
    int next; /* behind the closing quote */
};

/* A character that none of the names goes on with. */
static int other_character(struct graph *g, struct charset *used, bool wide_used, const struct name_end *end)
{
    int start = graph_either(g, other_escape(g, used, '"', end->any), other_escape(g, used, '\\', end->any));
    charset_add(used, 0, 0x1f, g->e);
    charset_add(used, '"', '"', g->e);
    charset_add(used, '\\', '\\', g->e);
    charset_invert(used, wide_used ? 0x10ffff : 0x7f, g->e);
    start = graph_either(g, start, charset_utf8(g, used, end->any));
    return wide_used ? start : graph_either(g, start, end->wide);
}

/* The rest of a name that begins as names [from, to) do up to byte `at` and is none of them. */
static int other_names(struct graph *g, const struct names *names, int from, int to, size_t at,
                       const struct name_end *end)
{
    struct charset used = {0};
    bool complete = false, wide_used = false;
    int start = -1;
    for (int i = from, first; i < to && g->e->code == ERR_NONE;) {
        int32_t c, other;
        if (names->name[i][at] == '\0') {
            complete = true;
            i++;
            continue;
        }
        size_t bytes = (size_t)utf8_next(names->name[i] + at, &c);
        for (first = i; i < to && (utf8_next(names->name[i] + at, &other), other == c);)
            i++;
        charset_add(&used, c, c, g->e);
        wide_used = wide_used || c > 0x7f;
        if (c >= 0x20 && c != '"' && c != '\\')
            start = graph_either(
                g, start,
                graph_text(g, names->name[first] + at, bytes, other_names(g, names, first, i, at + bytes, end)));
    }
    start = graph_either(g, start, other_character(g, &used, wide_used, end));
    return complete ? start : graph_either(g, start, graph_text(g, "\"", 1, end->next));
}

/* A quoted name that is none of the object's own. */
static int free_name(struct object *o, int next)
{
    struct graph *g = o->b->g;
    struct names names = {err_calloc(g->e, (size_t)o->n, sizeof *names.name, "schema"), o->n};
    if (names.name == NULL)
        return -1;
    for (int i = 0; i < o->n; i++)
        names.name[i] = o->member[i].name;
    qsort(names.name, (size_t)names.n, sizeof *names.name, compare_names);
    struct name_end end = {schema_free_characters(o->b, next), schema_wide_characters(o->b, next), next};
    int start = graph_text(g, "\"", 1, other_names(g, &names, 0, names.n, 0, &end));
    free(names.name);
    return start;
}

/* ---- pairs ---- */

static int pair_value(struct schema_builder *b, const json_t *schema, int next)
{
    int value = json_is_true(schema) ? schema_any(b, next) : graph_call(b->g, schema_rule(b, schema), next);
    return graph_text(b->g, ":", 1, graph_space(b->g, value));
}

static int member_pair(struct schema_builder *b, const char *name, const json_t *schema)
{
    json_t *text = json_string(name);
    int start = pair_value(b, schema, graph_return(b->g));
    start = text != NULL ? schema_literal(b, text, start) : ERR(b->g->e, ERR_MEMORY, "out of host memory");
    json_decref(text);
    return start;
}

/* Whether a name matches a pattern: both would have to be met. */
static bool name_matches(struct schema_builder *b, const char *name, const char *pattern, size_t bytes)
{
    struct graph g;
    graph_open(&g, b->g->e);
    int start = regex_graph(&g, pattern, bytes, REGEX_JSON, graph_return(&g));
    json_t *text = json_string(name);
    char *quoted = text != NULL ? json_text(text, JSON_ENCODE_ANY) : NULL;
    bool matches = start >= 0 && quoted != NULL && machine_matches(&g, start, quoted + 1, strlen(quoted) - 2, b->g->e);
    free(quoted);
    json_decref(text);
    graph_close(&g);
    return matches;
}

static int pattern_pair(struct object *o, const json_t *patterns)
{
    struct schema_builder *b = o->b;
    const json_t *schema = NULL;
    const char *pattern;
    json_t *value;
    int end = -1, start = -1;
    json_object_foreach((json_t *)patterns, pattern, value)
    {
        if (schema != NULL && !json_equal((json_t *)schema, value))
            return ERR(b->g->e, ERR_UNSUPPORTED,
                       "schema: several patternProperties with different schemas are not "
                       "supported");
        schema = value;
        if (end < 0)
            end = graph_text(b->g, "\"", 1, pair_value(b, schema, graph_return(b->g)));
        for (int i = 0; i < o->n; i++)
            if (name_matches(b, o->member[i].name, pattern, strlen(pattern)))
                return ERR(b->g->e, ERR_UNSUPPORTED,
                           "schema: %.64s is of properties and of patternProperties, which "
                           "is not supported",
                           o->member[i].name);
        start = graph_either(b->g, start, regex_graph(b->g, pattern, strlen(pattern), REGEX_JSON, end));
    }
    return start < 0 ? -1 : graph_text(b->g, "\"", 1, start);
}

/* The rule of members beyond `properties`, -1 if the schema forbids them. */
static int free_pair(struct object *o, const json_t *schema)
{
    struct schema_builder *b = o->b;
    const json_t *more = json_object_get(schema, "additionalProperties"),
                 *patterns = json_object_get(schema, "patternProperties");
    if (patterns != NULL && !json_is_object(patterns))
        return ERR(b->g->e, ERR_INPUT, "schema: patternProperties is %s, expected an object", json_type_name(patterns));
    if (json_object_size(patterns) > 0)
        return pattern_pair(o, patterns);
    if (json_is_false(more))
        return -1;
    int value = more == NULL ? -1 : pair_value(b, more, graph_return(b->g));
    if (more == NULL)
        value = graph_text(b->g, ":", 1, graph_space(b->g, schema_any(b, graph_return(b->g))));
    return free_name(o, value);
}

/* ---- members in their order ---- */

static int head_of(struct object *o, int i, int k);

/* A member's pair behind k others, then what may follow. */
static int with_pair(struct object *o, int pair, int i, int k)
{
    struct graph *g = o->b->g;
    if (o->max >= 0 && k >= o->max)
        return -1;
    int start = graph_call(g, pair, head_of(o, i, k < o->cap ? k + 1 : k));
    return k == 0 ? start : graph_text(g, ",", 1, graph_space(g, start));
}

/* Behind the members 0 .. i - 1, of which k are there. Made from the last ones on, so that nothing recurs deeply. */
static int make_head(struct object *o, int i, int k)
{
    struct graph *g = o->b->g;
    if (i < o->n) {
        int with = with_pair(o, o->member[i].pair, i + 1, k);
        int without = o->member[i].required ? -1 : head_of(o, i + 1, k);
        int start = graph_either(g, with, without);
        return start >= 0 ? start : graph_add(g, (struct node){.kind = NODE_FAIL, .next = -1, .other = -1});
    }
    int end = k >= o->min ? (k == 0 ? o->close : graph_space(g, o->close)) : -1;
    int ahead = graph_ahead(g);
    o->head[i * (o->cap + 1) + k] = ahead;
    int more = o->free_pair < 0 ? -1 : with_pair(o, o->free_pair, i, k);
    int start = graph_either(g, more, end);
    graph_lead(g, ahead, start >= 0 ? start : graph_add(g, (struct node){.kind = NODE_FAIL, .next = -1, .other = -1}));
    return ahead;
}

static int head_of(struct object *o, int i, int k)
{
    int *head = &o->head[i * (o->cap + 1) + k];
    if (*head < 0 && o->b->g->e->code == ERR_NONE)
        *head = make_head(o, i, k);
    return *head;
}

static int object_graph(struct object *o)
{
    struct graph *g = o->b->g;
    int64_t n = (int64_t)(o->n + 1) * (o->cap + 1);
    if (n > GRAPH_MAX_NODES)
        return ERR(g->e, ERR_UNSUPPORTED, "schema: %d properties and up to %d members need too many states", o->n,
                   o->cap);
    o->head = malloc((size_t)n * sizeof *o->head);
    if (o->head == NULL)
        return ERR(g->e, ERR_MEMORY, "out of host memory: an object of %d properties", o->n);
    memset(o->head, -1, (size_t)n * sizeof *o->head); /* -1 each: not made yet */
    for (int i = o->n; i >= 0; i--)                   /* the last ones first: no deep recursion */
        for (int k = o->cap; k >= 0; k--)
            head_of(o, i, k);
    int start = head_of(o, 0, 0);
    free(o->head);
    return start < 0 ? -1 : graph_text(g, "{", 1, graph_space(g, start));
}

/* ---- reading ---- */

static bool is_required(const json_t *required, const char *name)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one != NULL && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

static int add_members(struct object *o, const json_t *properties, const json_t *required)
{
    const char *name;
    json_t *schema;
    json_object_foreach((json_t *)properties, name, schema)
    {
        bool needed = is_required(required, name);
        o->n_required += needed;
        o->member[o->n++] = (struct member){name, member_pair(o->b, name, schema), needed};
    }
    return o->b->g->e->code == ERR_NONE ? 0 : -1;
}

/* Names that are required and no properties: their values are those of further members. */
static int add_required(struct object *o, const json_t *properties, const json_t *required, const json_t *more)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name == NULL)
            return ERR(o->b->g->e, ERR_INPUT, "schema: required has %s in it, expected names",
                       json_type_name(json_array_get(required, i)));
        bool known = json_object_get(properties, name) != NULL;
        for (int k = 0; k < o->n && !known; k++)
            known = strcmp(o->member[k].name, name) == 0;
        if (known)
            continue;
        json_t *any = json_true();
        o->member[o->n++] = (struct member){name, member_pair(o->b, name, more != NULL ? more : any), true};
        o->n_required++;
    }
    return 0;
}

/* Only as many states as the limits need: a minimum that the required members meet is none, as is a maximum that nobody
 * can exceed. */
static void set_limits(struct object *o, const json_t *schema)
{
    int64_t min = schema_size(o->b, schema, "minProperties", 0), max = schema_size(o->b, schema, "maxProperties", -1);
    o->min = min <= o->n_required ? 0 : (int)min;
    o->max = max < 0 || (o->free_pair < 0 && max >= o->n) ? -1 : (int)max;
    o->cap = o->max > o->min ? o->max : o->min;
    o->cap = o->cap > 1 ? o->cap : 1; /* 0 or more: whether a comma is needed */
    if (o->min > 1 && o->free_pair >= 0)
        ERR(o->b->g->e, ERR_UNSUPPORTED,
            "schema: minProperties %d of free names, which could be the same, is not "
            "supported",
            o->min);
}

int schema_object(struct schema_builder *b, const json_t *schema, int next)
{
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required"),
                 *more = json_object_get(schema, "additionalProperties");
    if ((properties != NULL && !json_is_object(properties)) || (required != NULL && !json_is_array(required)))
        return ERR(b->g->e, ERR_INPUT, "schema: properties is an object and required an array of names");
    size_t most = json_object_size(properties) + json_array_size(required);
    struct object o = {.b = b, .member = err_calloc(b->g->e, most, sizeof *o.member, "schema"), .free_pair = -1};
    int start = -1;
    if (o.member != NULL && add_members(&o, properties, required) == 0 &&
        add_required(&o, properties, required, more) == 0) {
        o.free_pair = free_pair(&o, schema);
        set_limits(&o, schema);
        o.close = graph_text(b->g, "}", 1, next);
        start = object_graph(&o);
    }
    free(o.member);
    return b->g->e->code == ERR_NONE ? start : -1;
}
