/* text/grammar/schema.c - see schema.h: the kinds of values that a schema allows, arrays, literals, rules. */
#include "text/grammar/schema_parts.h"

#include "base/json.h"
#include "text/grammar/choice.h"
#include "text/grammar/decimal.h"
#include "text/grammar/machine.h"
#include "text/grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#define INTEGER "-?(0|[1-9][0-9]{0,17})"
#define NUMBER  INTEGER "(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?"

static const char *const kind_name[KINDS] = {"object", "array", "string", "integer", "number", "boolean", "null"};

/* The kind of values to which a keyword applies, for schemas without a type. */
static const struct {
    const char *keyword;
    enum json_kind kind;
} implied[] = {{"properties", KIND_OBJECT},
               {"required", KIND_OBJECT},
               {"additionalProperties", KIND_OBJECT},
               {"patternProperties", KIND_OBJECT},
               {"minProperties", KIND_OBJECT},
               {"maxProperties", KIND_OBJECT},
               {"items", KIND_ARRAY},
               {"minItems", KIND_ARRAY},
               {"maxItems", KIND_ARRAY},
               {"pattern", KIND_STRING},
               {"format", KIND_STRING},
               {"minLength", KIND_STRING},
               {"maxLength", KIND_STRING},
               {"minimum", KIND_NUMBER},
               {"maximum", KIND_NUMBER},
               {"exclusiveMinimum", KIND_NUMBER},
               {"exclusiveMaximum", KIND_NUMBER}};

static struct schema_builder new_builder(struct graph *g, const json_t *root, json_t *made, int depth)
{
    struct schema_builder b = {.g = g,
                               .root = root,
                               .any = -1,
                               .characters = -1,
                               .any_value = -1,
                               .names.next = -1,
                               .made = made,
                               .depth = depth};
    for (int i = 0; i < SCHEMA_FORMATS; i++)
        b.format[i] = -1;
    return b;
}

int64_t schema_size(struct schema_builder *b, const json_t *schema, const char *keyword, int64_t missing)
{
    return json_get_int(schema, keyword, missing, 0, 1000000, "schema", b->g->e);
}

/* Makes the value live as long as the builder; NULL, and b->g->e, without memory. */
static const json_t *keep(struct schema_builder *b, json_t *value)
{
    if (value == NULL || json_array_append_new(b->made, value) != 0) {
        ERR(b->g->e, ERR_MEMORY, "out of host memory");
        return NULL;
    }
    return value;
}

/* A copy of the schema without this keyword. */
static const json_t *without(struct schema_builder *b, const json_t *schema, const char *keyword)
{
    json_t *copy = json_copy((json_t *)schema);
    if (schema == NULL || keep(b, copy) == NULL)
        return NULL;
    json_object_del(copy, keyword);
    return copy;
}

static int graph_fail(struct graph *g)
{
    return graph_add(g, (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1});
}

/* ---- literals ---- */

static int literal_scalar(struct schema_builder *b, const json_t *value, int next)
{
    char *text = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (text == NULL)
        return ERR(b->g->e, ERR_MEMORY, "out of host memory");
    int start = graph_text(b->g, text, strlen(text), next);
    free(text);
    return start;
}

static int literal_array(struct schema_builder *b, const json_t *value, int next)
{
    int start = graph_text(b->g, "]", 1, next);
    for (size_t i = json_array_size(value); i-- > 0;) {
        start = schema_literal(b, json_array_get(value, i), start);
        if (i > 0)
            start = graph_text(b->g, ",", 1, graph_space(b->g, start));
    }
    return graph_text(b->g, "[", 1, start);
}

static int literal_member(struct schema_builder *b, const char *key, const json_t *value, int next)
{
    json_t *name = json_string(key);
    int start = schema_literal(b, value, next);
    start = graph_text(b->g, ":", 1, graph_space(b->g, start));
    start =
        name != NULL ? literal_scalar(b, name, start) : ERR(b->g->e, ERR_INPUT, "schema: a name that is not a string");
    json_decref(name);
    return start;
}

static int literal_object(struct schema_builder *b, const json_t *value, int next)
{
    const char *key;
    json_t *member;
    int start = -1;
    next = graph_text(b->g, "}", 1, next);
    json_object_foreach((json_t *)value, key, member) /* backwards: the order of members is free */
        start = literal_member(b, key, member, start < 0 ? next : graph_text(b->g, ",", 1, graph_space(b->g, start)));
    return graph_text(b->g, "{", 1, start < 0 ? next : start);
}

int schema_literal(struct schema_builder *b, const json_t *value, int next)
{
    if (json_is_array(value))
        return literal_array(b, value, next);
    return json_is_object(value) ? literal_object(b, value, next) : literal_scalar(b, value, next);
}

static enum json_kind kind_of(const json_t *value)
{
    int64_t whole;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return KIND_OBJECT;
    case JSON_ARRAY:
        return KIND_ARRAY;
    case JSON_STRING:
        return KIND_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_to_int(value, &whole) ? KIND_INTEGER : KIND_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return KIND_BOOLEAN;
    default:
        return KIND_NULL;
    }
}

/* The other keywords of a schema, which restrict the values that enum and const list; closed by judge_close. */
struct judge {
    struct graph graph;
    int start;
    bool needed;
};

static void judge_open(struct schema_builder *b, struct judge *j, const json_t *schema)
{
    static const char *const own[] = {"type", "enum", "const"};
    const char *key;
    json_t *value;
    *j = (struct judge){0};
    graph_open(&j->graph, b->g->e);
    json_object_foreach((json_t *)schema, key, value)
    {
        bool is_own = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            is_own = is_own || strcmp(key, own[i]) == 0;
        j->needed = j->needed || (!is_own && schema_restricts(key));
    }
    if (!j->needed)
        return;
    struct schema_builder alone = new_builder(&j->graph, b->root, b->made, b->depth + 1);
    alone.as_open = true;
    const json_t *rest = without(b, without(b, schema, "enum"), "const");
    j->start = schema_rule(&alone, rest);
    free(alone.rule);
}

/* Does the schema allow the value? text: its JSON text. */
static bool judge(struct schema_builder *b, const struct judge *j, const json_t *value, const char *text,
                  const bool *kinds)
{
    if (!kinds[kind_of(value)])
        return false;
    return !j->needed ||
           (b->g->e->code == ERR_NONE && machine_matches(&j->graph, j->start, text, strlen(text), b->g->e));
}

static void judge_close(struct judge *j)
{
    graph_close(&j->graph);
}

/* The JSON text of a value if the schema allows it; else NULL. The caller frees. */
static char *allowed_text(struct schema_builder *b, const struct judge *j, const json_t *value, const bool *kinds)
{
    char *text = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (text == NULL)
        ERR(b->g->e, ERR_MEMORY, "out of host memory");
    if (text != NULL && judge(b, j, value, text, kinds))
        return text;
    free(text);
    return NULL;
}

/* Builds the listed values that the rest of the schema allows. */
static int one_of_values(struct schema_builder *b, const json_t *schema, const json_t *values, const bool *kinds,
                         int next)
{
    size_t n = json_array_size(values), n_texts = 0;
    struct choice_text *text = err_calloc(b->g->e, n, sizeof *text, "enum");
    struct judge j;
    int start = -1;
    judge_open(b, &j, schema);
    for (size_t i = 0; i < n && text != NULL; i++) {
        const json_t *value = json_array_get(values, i);
        char *allowed = allowed_text(b, &j, value, kinds);
        if (allowed != NULL && (json_is_array(value) || json_is_object(value))) {
            start = graph_either(b->g, start, schema_literal(b, value, next));
            free(allowed);
        } else if (allowed != NULL) {
            text[n_texts++] = (struct choice_text){allowed, strlen(allowed)};
        }
    }
    judge_close(&j);
    start = graph_either(b->g, start, choice_graph(b->g, text, n_texts, next));
    for (size_t i = 0; i < n_texts; i++)
        free((char *)text[i].text);
    free(text);
    return start >= 0 ? start : graph_fail(b->g);
}

/* ---- numbers ---- */

/* A bound, and the draft 4 form of the exclusive one: a boolean beside it. */
static bool read_bound(struct schema_builder *b, const json_t *schema, const char *inclusive, const char *exclusive,
                       const json_t **bound, bool *open)
{
    const json_t *in = json_object_get(schema, inclusive), *ex = json_object_get(schema, exclusive);
    *bound = in;
    *open = json_is_true(ex);
    if (in != NULL && !json_is_number(in))
        return ERR(b->g->e, ERR_INPUT, "schema: %s is %s, expected a number", inclusive, json_type_name(in)) == 0;
    if (ex == NULL || json_is_boolean(ex))
        return true;
    if (!json_is_number(ex))
        return ERR(b->g->e, ERR_INPUT, "schema: %s is %s, expected a number", exclusive, json_type_name(ex)) == 0;
    bool low = strcmp(inclusive, "minimum") == 0;
    double x = json_number_value(ex), y = in != NULL ? json_number_value(in) : 0;
    if (in == NULL || (low ? x >= y : x <= y)) {
        *bound = ex;
        *open = true;
    }
    return true;
}

static int number_graph(struct schema_builder *b, const json_t *schema, bool integer, int next)
{
    struct decimal_range range;
    if (!read_bound(b, schema, "minimum", "exclusiveMinimum", &range.low, &range.low_open) ||
        !read_bound(b, schema, "maximum", "exclusiveMaximum", &range.high, &range.high_open))
        return -1;
    const char *format = json_string_value(json_object_get(schema, "format"));
    if (integer && format != NULL && strcmp(format, "int32") == 0) {
        range.low = range.low != NULL ? range.low : keep(b, json_integer(INT32_MIN));
        range.high = range.high != NULL ? range.high : keep(b, json_integer(INT32_MAX));
    }
    if (range.low != NULL || range.high != NULL)
        return decimal_graph(b->g, &range, integer, next);
    const char *pattern = integer ? INTEGER : NUMBER;
    return regex_graph(b->g, pattern, strlen(pattern), REGEX_TEXT, next);
}

/* ---- arrays ---- */

static int array_graph(struct schema_builder *b, const json_t *schema, int next)
{
    struct graph *g = b->g;
    const json_t *items = json_object_get(schema, "items");
    int64_t min = schema_size(b, schema, "minItems", 0), max = schema_size(b, schema, "maxItems", -1);
    bool counted = min > 1 || max >= 0;
    if (json_is_array(items))
        return ERR(g->e, ERR_UNSUPPORTED, "schema: items as a list is not supported");
    int close = graph_text(g, "]", 1, next), empty = min == 0 ? graph_space(g, close) : -1;
    if (max >= 0 && max < min)
        return graph_fail(g);
    if (max == 0)
        return graph_text(g, "[", 1, empty);
    int rule = items == NULL ? -1 : schema_rule(b, items), loop = graph_ahead(g);
    int end = graph_space(g, close);
    if (counted)
        end = graph_add(g, (struct graph_node){.kind = GRAPH_UNCOUNT, .next = end, .other = -1});
    int item = items == NULL ? schema_any(b, loop) : graph_call(g, rule, loop);
    int more = graph_text(g, ",", 1, graph_space(g, item));
    if (counted)
        more = graph_add(g, (struct graph_node){.kind = GRAPH_TICK, .next = more, .other = -1});
    graph_lead(g, loop, graph_either(g, more, end));
    int first = counted ? graph_add(g, (struct graph_node){.kind = GRAPH_TICK, .next = item, .other = -1}) : item;
    if (counted)
        first = graph_add(
            g, (struct graph_node){.kind = GRAPH_COUNT, .next = first, .other = -1, .min = (int)min, .max = (int)max});
    return graph_text(g, "[", 1, graph_either(g, graph_space(g, first), empty));
}

/* ---- kinds ---- */

static bool add_kind(struct schema_builder *b, const json_t *name, bool *kinds)
{
    for (int i = 0; json_is_string(name) && i < KINDS; i++)
        if (strcmp(json_string_value(name), kind_name[i]) == 0) {
            kinds[i] = true;
            return true;
        }
    return ERR(b->g->e, ERR_INPUT, "schema: type %s, expected object, array, string, integer, number, boolean or null",
               json_is_string(name) ? json_string_value(name) : json_type_name(name)) == 0;
}

/* The kinds of values that the schema allows; without a type those to which its keywords apply. */
static bool read_kinds(struct schema_builder *b, const json_t *schema, bool *kinds)
{
    const json_t *type = json_object_get(schema, "type");
    bool any = false;
    memset(kinds, 0, KINDS * sizeof *kinds);
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++)
            if (!add_kind(b, json_array_get(type, i), kinds))
                return false;
    } else if (type != NULL && !add_kind(b, type, kinds)) {
        return false;
    }
    for (size_t i = 0; type == NULL && i < sizeof implied / sizeof *implied; i++)
        if (json_object_get(schema, implied[i].keyword) != NULL)
            kinds[implied[i].kind] = any = true;
    for (int i = 0; type == NULL && !any && i < KINDS; i++)
        kinds[i] = true;
    kinds[KIND_INTEGER] = kinds[KIND_INTEGER] || kinds[KIND_NUMBER];
    return true;
}

static int kind_graph(struct schema_builder *b, const json_t *schema, enum json_kind kind, int next)
{
    switch (kind) {
    case KIND_OBJECT:
        return schema_object(b, schema, next);
    case KIND_ARRAY:
        return array_graph(b, schema, next);
    case KIND_STRING:
        return schema_string(b, schema, next);
    case KIND_INTEGER:
    case KIND_NUMBER:
        return number_graph(b, schema, kind == KIND_INTEGER, next);
    case KIND_BOOLEAN:
        return graph_either(b->g, graph_text(b->g, "true", 4, next), graph_text(b->g, "false", 5, next));
    default:
        return graph_text(b->g, "null", 4, next);
    }
}

static int kinds_graph(struct schema_builder *b, const json_t *schema, int next)
{
    bool kinds[KINDS];
    const json_t *values = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    if (!read_kinds(b, schema, kinds))
        return -1;
    if (constant != NULL) /* beside an enum: a const that the enum does not list */
        values = values == NULL || schema_lists(values, constant) ? keep(b, json_pack("[O]", constant))
                                                                  : keep(b, json_array());
    if (values != NULL && !json_is_array(values))
        return ERR(b->g->e, ERR_INPUT, "schema: enum is %s, expected an array", json_type_name(values));
    if (values != NULL)
        return one_of_values(b, schema, values, kinds, next);
    int start = -1;
    kinds[KIND_INTEGER] = kinds[KIND_INTEGER] && !kinds[KIND_NUMBER];
    for (int i = 0; i < KINDS; i++)
        if (kinds[i])
            start = graph_either(b->g, start, kind_graph(b, schema, (enum json_kind)i, next));
    return start >= 0 ? start : graph_fail(b->g);
}

/* ---- schemas ---- */

static bool restricts_alone(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) if (schema_restricts(key)) return true;
    return false;
}

/* One of the schemas under the keyword, merged with the keywords beside it. */
static int alternatives(struct schema_builder *b, const json_t *schema, const char *keyword, int next)
{
    const json_t *list = json_object_get(schema, keyword), *rest = without(b, schema, keyword);
    int start = -1;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return ERR(b->g->e, ERR_INPUT, "schema: %s is %s, expected an array of schemas", keyword, json_type_name(list));
    if (strcmp(keyword, "oneOf") == 0)
        list = keep(b, schema_exclusive(list, rest));
    for (size_t i = 0; i < json_array_size(list) && rest != NULL && b->g->e->code == ERR_NONE; i++) {
        const json_t *one = json_array_get(list, i);
        if (restricts_alone(rest))
            one = schema_merge(b, rest, one);
        if (one != NULL)
            start = graph_either(b->g, start, graph_call(b->g, schema_rule(b, one), next));
    }
    return start;
}

static bool check_keywords(struct schema_builder *b, const json_t *schema)
{
    static const char *const refused[] = {"not",
                                          "if",
                                          "then",
                                          "else",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "dependencies",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "multipleOf",
                                          "prefixItems",
                                          "unevaluatedItems",
                                          "unevaluatedProperties",
                                          "propertyNames",
                                          "$dynamicRef",
                                          "$recursiveRef"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (json_object_get(schema, refused[i]) != NULL)
            return ERR(b->g->e, ERR_UNSUPPORTED, "schema: %s is not supported", refused[i]) == 0;
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        return ERR(b->g->e, ERR_UNSUPPORTED, "schema: uniqueItems is not supported") == 0;
    return true;
}

/* The value of a schema that is not only a reference. */
static int value_graph(struct schema_builder *b, const json_t *schema, int next)
{
    const json_t *flat = schema_flatten(b, schema);
    if (flat == NULL)
        return -1;
    if (json_is_false(flat))
        return graph_fail(b->g);
    if (!check_keywords(b, flat))
        return -1;
    if (!restricts_alone(flat))
        return schema_any(b, next);
    if (json_object_get(flat, "anyOf") != NULL)
        return alternatives(b, flat, "anyOf", next);
    if (json_object_get(flat, "oneOf") != NULL)
        return alternatives(b, flat, "oneOf", next);
    return kinds_graph(b, flat, next);
}

static int find_rule(const struct schema_builder *b, const json_t *schema)
{
    for (int i = 0; i < b->n_rules; i++)
        if (b->rule[i].schema == schema)
            return b->rule[i].rule;
    return -1;
}

static int add_rule(struct schema_builder *b, const json_t *schema)
{
    if (b->n_rules == b->rule_capacity) {
        int capacity = 2 * b->rule_capacity + 32;
        struct schema_rule *rule = realloc(b->rule, (size_t)capacity * sizeof *rule);
        if (rule == NULL)
            return ERR(b->g->e, ERR_MEMORY, "out of host memory: %d schemas", capacity);
        b->rule = rule;
        b->rule_capacity = capacity;
    }
    int rule = graph_ahead(b->g);
    b->rule[b->n_rules++] = (struct schema_rule){schema, rule};
    return rule;
}

int schema_rule(struct schema_builder *b, const json_t *schema)
{
    for (int hops = 0; hops < SCHEMA_MAX_DEPTH && b->g->e->code == ERR_NONE; hops++) {
        const json_t *referred = schema_referred(b, schema);
        if (referred == NULL)
            break;
        schema = referred;
    }
    int rule = b->g->e->code == ERR_NONE ? find_rule(b, schema) : -1;
    if (rule >= 0 || b->g->e->code != ERR_NONE)
        return rule;
    if (++b->depth > SCHEMA_MAX_DEPTH)
        return ERR(b->g->e, ERR_UNSUPPORTED, "schema: schemas refer to schemas more than %d levels deep",
                   SCHEMA_MAX_DEPTH);
    rule = add_rule(b, schema);
    graph_lead(b->g, rule, value_graph(b, schema, graph_return(b->g)));
    b->depth--;
    return rule;
}

int schema_any(struct schema_builder *b, int next)
{
    if (b->any < 0 && b->g->e->code == ERR_NONE) {
        bool kinds[KINDS] = {true, true, true, false, true, true, true};
        json_t *empty = json_object();
        b->any = graph_ahead(b->g);
        int end = graph_return(b->g), start = -1;
        for (int i = 0; i < KINDS; i++)
            if (kinds[i])
                start = graph_either(b->g, start, kind_graph(b, empty, (enum json_kind)i, end));
        graph_lead(b->g, b->any, start);
        json_decref(empty);
    }
    return graph_call(b->g, b->any, next);
}

int schema_graph(struct graph *g, const json_t *schema, int next)
{
    struct schema_builder b = new_builder(g, schema, json_array(), 0);
    if (b.made == NULL)
        return ERR(g->e, ERR_MEMORY, "out of host memory");
    int rule = schema_rule(&b, schema);
    int start = g->e->code == ERR_NONE ? graph_call(g, rule, next) : -1;
    json_decref(b.made);
    free(b.rule);
    return start;
}
