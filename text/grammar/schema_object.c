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
    int pair; /* the rule of its name after the first quote, colon and value */
    bool required;
};

struct object {
    struct schema_builder *b;
    struct member *member; /* [n] in the order of the schema */
    int n, n_required;
    int free_pair; /* the rule of additional members, after the first quote; -1: none allowed */
    int min, max;  /* number of members; max -1: any */
    int cap;       /* numbers are kept up to here */
    int close;     /* state after the last member */
    int *head;     /* [(n + 1) * (cap + 1)] after members 0 .. i - 1, of which k are present */
    int *name;     /* likewise, after the first quote of another member; -1: none may come */
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

/* A character written with a backslash, unless a name continues with it here; -1. */
static int other_escape(struct graph *g, const struct charset *used, char c, int next)
{
    for (int i = 0; i < used->n; i++)
        if (used->first[i] == c)
            return -1;
    return graph_bytes(g, '\\', '\\', graph_text(g, &c, 1, next));
}

static int make_other(struct graph *g, struct charset *used, bool wide_used, const struct schema_names *end)
{
    int start = graph_either(g, other_escape(g, used, '"', end->any), other_escape(g, used, '\\', end->any));
    charset_add(used, 0, 0x1f, g->e);
    charset_add(used, '"', '"', g->e);
    charset_add(used, '\\', '\\', g->e);
    charset_invert(used, wide_used ? 0x10ffff : 0x7f, g->e);
    start = graph_either(g, start, charset_utf8(g, used, end->any));
    return wide_used ? start : graph_either(g, start, end->wide);
}

/* A character with which none of the names continues. */
static int other_character(struct graph *g, struct charset *used, bool wide_used, struct schema_names *end)
{
    if (wide_used || used->n != 1 || used->first[0] != used->last[0])
        return make_other(g, used, wide_used, end);
    int *known = &end->but_of[used->first[0]];
    *known = *known >= 0 ? *known : make_other(g, used, false, end);
    return *known;
}

/* The rest of a name that shares `at` bytes with names [from, to) and is none of them. */
static int other_names(struct graph *g, const struct names *names, int from, int to, size_t at,
                       struct schema_names *end)
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

/* A name, after its first quote, that is none of the object's properties. */
static int free_name(struct object *o, int next)
{
    struct graph *g = o->b->g;
    struct names names = {err_calloc(g->e, (size_t)o->n, sizeof *names.name, "schema"), o->n};
    if (names.name == NULL)
        return -1;
    for (int i = 0; i < o->n; i++)
        names.name[i] = o->member[i].name;
    qsort(names.name, (size_t)names.n, sizeof *names.name, compare_names);
    if (o->b->names.next != next) {
        o->b->names =
            (struct schema_names){schema_free_characters(o->b, next), schema_wide_characters(o->b, next), next, {0}};
        memset(o->b->names.but_of, -1, sizeof o->b->names.but_of);
    }
    int start = other_names(g, &names, 0, names.n, 0, &o->b->names);
    free(names.name);
    return start;
}

/* ---- pairs ---- */

static int pair_value(struct schema_builder *b, const json_t *schema, int next)
{
    int value = json_is_true(schema) ? schema_any(b, next) : graph_call(b->g, schema_rule(b, schema), next);
    return graph_text(b->g, ":", 1, graph_space(b->g, value));
}

/* The JSON string, with its quotes; NULL: no memory. */
static char *quote_name(struct schema_builder *b, const char *name)
{
    json_t *text = json_string(name);
    char *quoted = text != NULL ? json_text(text, JSON_ENCODE_ANY) : NULL;
    json_decref(text);
    if (quoted == NULL)
        ERR(b->g->e, ERR_MEMORY, "out of host memory");
    return quoted;
}

static int member_pair(struct schema_builder *b, const char *name, const json_t *schema)
{
    char *quoted = quote_name(b, name);
    int start = pair_value(b, schema, graph_return(b->g));
    start = quoted != NULL ? graph_text(b->g, quoted + 1, strlen(quoted) - 1, start) : -1;
    free(quoted);
    return start;
}

/* Whether a property's name matches a pattern: its value would have to satisfy both schemas. */
static bool name_matches(struct schema_builder *b, const char *name, const char *pattern, size_t bytes)
{
    struct graph g;
    graph_open(&g, b->g->e);
    int start = regex_graph(&g, pattern, bytes, REGEX_JSON, graph_return(&g));
    char *quoted = quote_name(b, name);
    bool matches = start >= 0 && quoted != NULL && machine_matches(&g, start, quoted + 1, strlen(quoted) - 2, b->g->e);
    free(quoted);
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
    return start;
}

/* Does the object have no other members although the schema allows them? Few mean to allow them. Not if it needs more
 * members than it lists. */
static bool closes(const struct object *o, const json_t *schema)
{
    return !o->b->as_open && json_object_get(schema, "properties") != NULL &&
           json_object_get(schema, "additionalProperties") == NULL &&
           schema_size(o->b, schema, "minProperties", 0) <= o->n;
}

/* The rule of members beyond `properties`, -1 if there are none. */
static int free_pair(struct object *o, const json_t *schema)
{
    struct schema_builder *b = o->b;
    const json_t *more = json_object_get(schema, "additionalProperties"),
                 *patterns = json_object_get(schema, "patternProperties");
    if (patterns != NULL && !json_is_object(patterns))
        return ERR(b->g->e, ERR_INPUT, "schema: patternProperties is %s, expected an object", json_type_name(patterns));
    if (json_object_size(patterns) > 0)
        return pattern_pair(o, patterns);
    if (json_is_false(more) || closes(o, schema))
        return -1;
    bool any = more == NULL || json_is_true(more);
    if (any && b->any_value < 0)
        b->any_value = graph_text(b->g, ":", 1, graph_space(b->g, schema_any(b, graph_return(b->g))));
    return free_name(o, any ? b->any_value : pair_value(b, more, graph_return(b->g)));
}

/* ---- members in their order ---- */

static int or_fail(struct graph *g, int start)
{
    return start >= 0 ? start : graph_add(g, (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1});
}

/* Nodes for the names from member i on, with k members present, and for the rest of the object; -1: none. */
static int make_name(struct object *o, int i, int k)
{
    struct graph *g = o->b->g;
    int wide = o->cap + 1, behind = k < o->cap ? k + 1 : k;
    if (o->max >= 0 && k >= o->max)
        return -1;
    if (i == o->n)
        return o->free_pair < 0 ? -1 : graph_call(g, o->free_pair, o->head[i * wide + behind]);
    int with = graph_call(g, o->member[i].pair, o->head[(i + 1) * wide + behind]);
    return o->member[i].required ? with : graph_either(g, with, o->name[(i + 1) * wide + k]);
}

/* One more member, whose name is built, or the end. All members begin with the same comma and white space, which keeps
 * the states within the white space simple. */
static int make_head(struct object *o, int i, int k, bool may_end)
{
    struct graph *g = o->b->g;
    int name = o->name[i * (o->cap + 1) + k], more = name < 0 ? -1 : graph_text(g, "\"", 1, name), end = -1;
    if (may_end && k >= o->min)
        end = k == 0 ? o->close : graph_space(g, o->close);
    if (k > 0 && more >= 0)
        more = graph_text(g, ",", 1, graph_space(g, more));
    return or_fail(g, graph_either(g, more, end));
}

/* Built from the last one; only free members form a loop, since they follow each other. */
static int make_heads(struct object *o)
{
    struct graph *g = o->b->g;
    bool may_end = true;
    for (int i = o->n; i >= 0 && g->e->code == ERR_NONE; i--) {
        may_end = may_end && !(i < o->n && o->member[i].required);
        for (int k = o->cap; k >= 0; k--) {
            int at = i * (o->cap + 1) + k, ahead = i == o->n ? graph_ahead(g) : -1;
            o->head[at] = ahead;
            o->name[at] = make_name(o, i, k);
            o->head[at] = make_head(o, i, k, may_end);
            if (ahead >= 0)
                graph_lead(g, ahead, o->head[at]);
        }
    }
    return o->head[0];
}

static int object_graph(struct object *o)
{
    struct graph *g = o->b->g;
    int64_t n = (int64_t)(o->n + 1) * (o->cap + 1);
    if (n > GRAPH_MAX_NODES)
        return ERR(g->e, ERR_UNSUPPORTED, "schema: %d properties and up to %d members need too many states", o->n,
                   o->cap);
    o->head = err_calloc(g->e, (size_t)n, sizeof *o->head, "members of an object");
    o->name = err_calloc(g->e, (size_t)n, sizeof *o->name, "members of an object");
    int start = o->head != NULL && o->name != NULL ? make_heads(o) : -1;
    free(o->name);
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

/* Required names that are not properties: their values are those of additional members. */
static int add_required(struct object *o, const json_t *properties, const json_t *required, const json_t *more)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name == NULL)
            return ERR(o->b->g->e, ERR_INPUT, "schema: required contains %s, expected names",
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

/* Counts members only as far as the limits require: not for a minimum that the required members satisfy, nor for a
 * maximum that no object can exceed. */
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
