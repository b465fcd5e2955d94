/* text/grammar/schema_one_of.c - oneOf, whose exclusivity is enforced if required names tell the alternatives apart. */
#include "text/grammar/schema_parts.h"

#define MOST 16 /* alternatives; each refers to as many names */

/* The name that a schema requires, if that is all it does; else NULL. */
static json_t *only_required(const json_t *schema)
{
    json_t *names = json_object_get(schema, "required"), *name = json_array_get(names, 0), *value;
    const char *key;
    json_object_foreach((json_t *)schema, key, value) if (value != names && schema_restricts(key)) return NULL;
    return json_array_size(names) == 1 && json_is_string(name) ? name : NULL;
}

/* An object with the name and without those of the other alternatives. open: others may come. */
static json_t *with_name(const json_t *name, const json_t *names, bool open)
{
    json_t *others = json_object();
    for (size_t i = 0; others != NULL && i < json_array_size(names); i++) {
        const json_t *other = json_array_get(names, i);
        if (other != name && json_object_set_new(others, json_string_value(other), json_false()) != 0) {
            json_decref(others);
            return NULL;
        }
    }
    return json_pack("{s:s, s:[O], s:o, s:o*}", "type", "object", "required", name, "properties", others,
                     "additionalProperties", open ? json_true() : NULL);
}

json_t *schema_exclusive(const json_t *list, const json_t *rest)
{
    json_t *names = json_array(), *made = json_array();
    size_t n = json_array_size(list);
    bool open = json_object_get(rest, "properties") == NULL && json_object_get(rest, "additionalProperties") == NULL;
    bool told =
        names != NULL && made != NULL && n > 1 && n <= MOST && json_object_get(rest, "patternProperties") == NULL;
    for (size_t i = 0; told && i < n; i++) {
        json_t *name = only_required(json_array_get(list, i));
        told = name != NULL && !schema_lists(names, name) && json_array_append(names, name) == 0;
    }
    for (size_t i = 0; told && i < n; i++)
        told = json_array_append_new(made, with_name(json_array_get(names, i), names, open)) == 0;
    json_decref(names);
    if (told)
        return made;
    json_decref(made);
    return json_incref((json_t *)list);
}
