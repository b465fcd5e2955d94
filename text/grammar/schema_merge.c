/* text/grammar/schema_merge.c - several schemas at once: $ref, allOf, and keywords beside anyOf. */
#include "text/grammar/schema_parts.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* The ways in which two values of a keyword are merged. */
enum merge_way {
    MERGE_LARGER,
    MERGE_SMALLER,
    MERGE_UNION,
    MERGE_VALUES,
    MERGE_TYPES,
    MERGE_SCHEMA,
    MERGE_SCHEMAS,
    MERGE_MEMBERS,
    MERGE_ALIKE
};

static const struct {
    const char *keyword;
    enum merge_way way;
} keywords[] = {{"type", MERGE_TYPES},
                {"properties", MERGE_MEMBERS},
                {"required", MERGE_UNION},
                {"additionalProperties", MERGE_SCHEMA},
                {"patternProperties", MERGE_ALIKE},
                {"minProperties", MERGE_LARGER},
                {"maxProperties", MERGE_SMALLER},
                {"items", MERGE_SCHEMA},
                {"minItems", MERGE_LARGER},
                {"maxItems", MERGE_SMALLER},
                {"enum", MERGE_VALUES},
                {"const", MERGE_ALIKE},
                {"anyOf", MERGE_SCHEMAS},
                {"oneOf", MERGE_SCHEMAS},
                {"minimum", MERGE_LARGER},
                {"maximum", MERGE_SMALLER},
                {"exclusiveMinimum", MERGE_LARGER},
                {"exclusiveMaximum", MERGE_SMALLER},
                {"minLength", MERGE_LARGER},
                {"maxLength", MERGE_SMALLER},
                {"pattern", MERGE_ALIKE},
                {"format", MERGE_ALIKE},
                {"$ref", MERGE_ALIKE},
                {"allOf", MERGE_ALIKE},
                {"not", MERGE_ALIKE},
                {"if", MERGE_ALIKE},
                {"then", MERGE_ALIKE},
                {"else", MERGE_ALIKE},
                {"contains", MERGE_ALIKE},
                {"multipleOf", MERGE_ALIKE},
                {"uniqueItems", MERGE_ALIKE},
                {"prefixItems", MERGE_ALIKE},
                {"propertyNames", MERGE_ALIKE},
                {"dependencies", MERGE_ALIKE},
                {"dependentRequired", MERGE_ALIKE},
                {"dependentSchemas", MERGE_ALIKE},
                {"unevaluatedItems", MERGE_ALIKE},
                {"unevaluatedProperties", MERGE_ALIKE},
                {"$dynamicRef", MERGE_ALIKE},
                {"$recursiveRef", MERGE_ALIKE},
                {"minContains", MERGE_ALIKE},
                {"maxContains", MERGE_ALIKE}};

static int find_keyword(const char *keyword)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].keyword, keyword) == 0)
            return (int)i;
    return -1;
}

bool schema_restricts(const char *keyword)
{
    return find_keyword(keyword) >= 0;
}

static const json_t *out_of_memory(struct schema_builder *b)
{
    ERR(b->g->e, ERR_MEMORY, "out of host memory: merging schemas");
    return NULL;
}

/* The builder owns the value from now on, also on failure. */
static const json_t *keep(struct schema_builder *b, json_t *value)
{
    return value != NULL && json_array_append_new(b->made, value) == 0 ? value : out_of_memory(b);
}

/* {"allOf": [left, right]}: merged when it is looked at. */
static json_t *both(const json_t *left, const json_t *right)
{
    return json_pack("{s:[O,O]}", "allOf", left, right);
}

static json_t *merge_union(const json_t *left, const json_t *right)
{
    json_t *all = json_copy((json_t *)left);
    for (size_t i = 0; all != NULL && i < json_array_size(right); i++)
        json_array_append(all, json_array_get(right, i));
    return all;
}

bool schema_lists(const json_t *array, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (json_equal(json_array_get(array, i), (json_t *)value))
            return true;
    return false;
}

static json_t *merge_values(const json_t *left, const json_t *right)
{
    json_t *common = json_array();
    for (size_t i = 0; common != NULL && i < json_array_size(left); i++)
        if (schema_lists(right, json_array_get(left, i)))
            json_array_append(common, json_array_get(left, i));
    return common;
}

/* Is the name among the types? Integers count as numbers. */
static bool has_type(const json_t *types, const char *name)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type != NULL && (strcmp(type, name) == 0 || (strcmp(type, "number") == 0 && strcmp(name, "integer") == 0)))
            return true;
    }
    return false;
}

static json_t *as_list(const json_t *value)
{
    return json_is_array(value) ? json_incref((json_t *)value) : json_pack("[O]", value);
}

static void add_common_types(json_t *common, const json_t *from, const json_t *other)
{
    for (size_t i = 0; i < json_array_size(from); i++) {
        json_t *type = json_array_get(from, i);
        if (json_is_string(type) && has_type(other, json_string_value(type)) && !schema_lists(common, type))
            json_array_append(common, type);
    }
}

static json_t *merge_types(const json_t *left, const json_t *right)
{
    json_t *a = as_list(left), *b = as_list(right), *common = json_array();
    if (a != NULL && b != NULL && common != NULL) {
        add_common_types(common, a, b);
        add_common_types(common, b, a);
    }
    json_decref(a);
    json_decref(b);
    return common;
}

/* One of the left ones and one of the right ones. */
static json_t *merge_alternatives(struct schema_builder *b, const json_t *left, const json_t *right)
{
    json_t *pairs = json_array();
    size_t n = json_array_size(left) * json_array_size(right);
    if (n > 64) {
        ERR(b->g->e, ERR_UNSUPPORTED, "schema: anyOf and anyOf at once make %zu alternatives, more than 64", n);
        json_decref(pairs);
        return NULL;
    }
    for (size_t i = 0; pairs != NULL && i < n; i++)
        json_array_append_new(pairs, both(json_array_get(left, i / json_array_size(right)),
                                          json_array_get(right, i % json_array_size(right))));
    return pairs;
}

/* Merges the members of both; one that only `from` has must also satisfy the other's rule for additional members. */
static bool add_members(struct schema_builder *b, json_t *to, const json_t *from, const json_t *other)
{
    const json_t *theirs = json_object_get(other, "properties"), *more = json_object_get(other, "additionalProperties");
    const char *name;
    json_t *schema;
    json_object_foreach(json_object_get(from, "properties"), name, schema)
    {
        const json_t *also = json_object_get(theirs, name);
        if (also == NULL && json_object_size(json_object_get(other, "patternProperties")) > 0)
            return ERR(b->g->e, ERR_UNSUPPORTED,
                       "schema: allOf of properties and patternProperties is not "
                       "supported") == 0;
        also = also != NULL ? also : json_is_true(more) ? NULL : more;
        if (json_object_get(to, name) == NULL)
            json_object_set_new(to, name, also != NULL ? both(schema, also) : json_incref(schema));
    }
    return true;
}

static json_t *merge_value(struct schema_builder *b, int keyword, json_t *left, json_t *right)
{
    double x = json_number_value(left), y = json_number_value(right);
    switch (keywords[keyword].way) {
    case MERGE_LARGER:
        return json_incref(x >= y ? left : right);
    case MERGE_SMALLER:
        return json_incref(x <= y ? left : right);
    case MERGE_UNION:
        return merge_union(left, right);
    case MERGE_VALUES:
        return merge_values(left, right);
    case MERGE_TYPES:
        return merge_types(left, right);
    case MERGE_SCHEMA:
        return both(left, right);
    case MERGE_SCHEMAS:
        return merge_alternatives(b, left, right);
    default:
        ERR(b->g->e, ERR_UNSUPPORTED, "schema: two different %s at once are not supported", keywords[keyword].keyword);
        return NULL;
    }
}

/* A const is an enum of one value. */
static json_t *with_enum(const json_t *schema)
{
    json_t *copy = json_copy((json_t *)schema), *value = json_object_get(copy, "const");
    if (value != NULL && json_object_get(copy, "enum") == NULL) {
        json_object_set_new(copy, "enum", json_pack("[O]", value));
        json_object_del(copy, "const");
    }
    return copy;
}

/* Names that match one's patterns would have to satisfy the other's rule for additional members. */
static bool check_patterns(struct schema_builder *b, const json_t *one, const json_t *other)
{
    const json_t *more = json_object_get(other, "additionalProperties");
    if (json_object_size(json_object_get(one, "patternProperties")) == 0 || more == NULL || json_is_true(more) ||
        json_equal(json_object_get(one, "patternProperties"), json_object_get(other, "patternProperties")))
        return true;
    return ERR(b->g->e, ERR_UNSUPPORTED,
               "schema: allOf of patternProperties and additionalProperties is not "
               "supported") == 0;
}

static const json_t *merge_objects(struct schema_builder *b, json_t *left, json_t *right)
{
    json_t *merged = json_copy(left), *members = json_object(), *value;
    const char *key;
    if (keep(b, merged) == NULL || keep(b, members) == NULL || !check_patterns(b, left, right) ||
        !check_patterns(b, right, left) || !add_members(b, members, left, right) ||
        !add_members(b, members, right, left))
        return NULL;
    json_object_foreach(right, key, value)
    {
        json_t *mine = json_object_get(merged, key);
        int keyword = find_keyword(key);
        if (mine == NULL)
            json_object_set(merged, key, value);
        else if (keyword >= 0 && keywords[keyword].way != MERGE_MEMBERS && !json_equal(mine, value))
            json_object_set_new(merged, key, merge_value(b, keyword, mine, value));
        if (b->g->e->code != ERR_NONE)
            return NULL;
    }
    if (json_object_size(members) > 0)
        json_object_set(merged, "properties", members);
    return merged;
}

const json_t *schema_merge(struct schema_builder *b, const json_t *left, const json_t *right)
{
    if (++b->n_merges > SCHEMA_MAX_MERGES) {
        ERR(b->g->e, ERR_UNSUPPORTED, "schema: more than %d schemas are merged", SCHEMA_MAX_MERGES);
        return NULL;
    }
    if (++b->depth > SCHEMA_MAX_DEPTH) {
        ERR(b->g->e, ERR_UNSUPPORTED, "schema: allOf and $ref nest more than %d levels deep", SCHEMA_MAX_DEPTH);
        return NULL;
    }
    left = schema_flatten(b, left);
    right = left != NULL ? schema_flatten(b, right) : NULL;
    b->depth--;
    if (left == NULL || right == NULL)
        return NULL;
    if (json_is_false(left) || json_is_false(right))
        return json_false();
    json_t *l = with_enum(left), *r = with_enum(right);
    const json_t *merged = merge_objects(b, l, r);
    json_decref(l);
    json_decref(r);
    return merged;
}

/* ---- references ---- */

/* Follows one step of a JSON pointer, with ~0 and ~1; false: there is no such member. */
static const json_t *step_into(const json_t *at, const char *key, size_t bytes)
{
    char name[256];
    size_t n = 0;
    for (size_t i = 0; i < bytes && n + 1 < sizeof name; i++) {
        bool escape = key[i] == '~' && i + 1 < bytes;
        name[n++] = escape ? (key[++i] == '1' ? '/' : '~') : key[i];
    }
    name[n] = '\0';
    if (json_is_array(at)) {
        char *end;
        unsigned long index = strtoul(name, &end, 10);
        return n > 0 && *end == '\0' ? json_array_get(at, index) : NULL;
    }
    return json_object_get(at, name);
}

const json_t *schema_resolve(struct schema_builder *b, const json_t *reference)
{
    const char *text = json_string_value(reference), *at = text;
    const json_t *found = b->root;
    if (text == NULL || *text != '#') {
        ERR(b->g->e, ERR_UNSUPPORTED, "schema: $ref %.80s, expected one within the schema, #/...",
            text != NULL ? text : "that is not a string");
        return NULL;
    }
    for (at++; found != NULL && *at == '/';) {
        size_t bytes = strcspn(at + 1, "/");
        found = step_into(found, at + 1, bytes);
        at += 1 + bytes;
    }
    if (found == NULL || *at != '\0') {
        ERR(b->g->e, ERR_INPUT, "schema: $ref %.80s leads nowhere", text);
        return NULL;
    }
    return found;
}

const json_t *schema_referred(struct schema_builder *b, const json_t *schema)
{
    const json_t *reference = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
    const char *key;
    json_t *value;
    if ((reference == NULL) == (json_array_size(all) != 1))
        return NULL;
    json_object_foreach((json_t *)schema, key, value) if (schema_restricts(key) && strcmp(key, "$ref") != 0 &&
                                                          strcmp(key, "allOf") != 0) return NULL;
    return reference != NULL ? schema_resolve(b, reference) : json_array_get(all, 0);
}

static const json_t *merge_part(struct schema_builder *b, const json_t *merged, const json_t *part)
{
    return merged == NULL || part == NULL ? NULL : schema_merge(b, merged, part);
}

const json_t *schema_flatten(struct schema_builder *b, const json_t *schema)
{
    const json_t *reference = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
    if (b->g->e->code != ERR_NONE)
        return NULL;
    if (json_is_true(schema))
        return keep(b, json_object());
    if (!json_is_object(schema) && !json_is_false(schema)) {
        ERR(b->g->e, ERR_INPUT, "schema: %s stands for a schema, expected an object", json_type_name(schema));
        return NULL;
    }
    if (reference == NULL && all == NULL)
        return schema;
    json_t *rest = json_copy((json_t *)schema);
    const json_t *merged = keep(b, rest);
    if (merged == NULL)
        return NULL;
    json_object_del(rest, "$ref");
    json_object_del(rest, "allOf");
    if (reference != NULL)
        merged = merge_part(b, merged, schema_resolve(b, reference));
    for (size_t i = 0; i < json_array_size(all); i++)
        merged = merge_part(b, merged, json_array_get(all, i));
    return merged;
}
