/* text/grammar/schema_parts.h - shared by schema*.c; for them only. */
#ifndef GRAMMAR_SCHEMA_PARTS_H
#define GRAMMAR_SCHEMA_PARTS_H

#include "text/grammar/schema.h"

#define SCHEMA_MAX_DEPTH  100
#define SCHEMA_MAX_MERGES 4096
#define SCHEMA_FORMATS    10 /* of strings */

enum json_kind { KIND_OBJECT, KIND_ARRAY, KIND_STRING, KIND_INTEGER, KIND_NUMBER, KIND_BOOLEAN, KIND_NULL, KINDS };

struct schema_rule {
    const json_t *schema;
    int rule;
};

struct schema_names { /* rules of additional members, shared by objects in which the same may follow */
    int any;          /* state after a character that leaves all names */
    int wide;         /* such a character that is beyond ASCII, and what follows */
    int next;         /* after the closing quote */
    int but_of
        [128]; /* any character except this one, needed at most places within names, and what follows; -1: not made */
};

struct schema_builder {
    struct graph *g;
    const json_t *root;
    struct schema_rule *rule; /* [n_rules] schemas that are rules, by address */
    int n_rules, rule_capacity;
    int any, characters;        /* rules of any value, and of any string after its first quote; -1: not made yet */
    int wide;                   /* the node in that rule at which the first character is beyond ASCII */
    int any_value;              /* a member's colon and any value, then the end of a rule; -1: not made yet */
    struct schema_names names;  /* of the object that was made last */
    int format[SCHEMA_FORMATS]; /* rules of strings with a format, after their first quote; -1: not made yet */
    json_t *made;               /* array of the schemas that merging made, which live as long as the builder */
    int depth, n_merges;
    bool as_open; /* objects are as open as the schema says: values are judged, not generated */
};

/* ---- schema.c ---- */

/* The rule of a schema, once for each. */
int schema_rule(struct schema_builder *b, const json_t *schema);
/* Any value; the literal value. */
int schema_any(struct schema_builder *b, int next);
int schema_literal(struct schema_builder *b, const json_t *value, int next);

/* ---- schema_merge.c ---- */

/* The schema without $ref and allOf: merged into one. Borrowed from the schema or from b->made; NULL on failure. */
const json_t *schema_flatten(struct schema_builder *b, const json_t *schema);
/* The schema that a $ref refers to. */
const json_t *schema_resolve(struct schema_builder *b, const json_t *reference);
/* For a schema that is only a reference, the schema it refers to; else NULL. */
const json_t *schema_referred(struct schema_builder *b, const json_t *schema);
/* The conjunction of both. */
const json_t *schema_merge(struct schema_builder *b, const json_t *left, const json_t *right);
/* Whether an equal value is in the array. */
bool schema_lists(const json_t *array, const json_t *value);
/* Whether a keyword restricts values, so that it must not be ignored. */
bool schema_restricts(const char *keyword);

/* ---- schema_one_of.c ---- */

/* The schemas of oneOf, made mutually exclusive if each only requires one name; else the list itself. For the caller to
 * release; NULL: no memory. */
json_t *schema_exclusive(const json_t *list, const json_t *rest);

/* ---- schema_string.c, schema_object.c ---- */

int schema_string(struct schema_builder *b, const json_t *schema, int next);
/* The characters of any string and the closing quote; at least `min` and at most `max` (-1: any number) of them. */
int schema_characters(struct graph *g, int64_t min, int64_t max, int next);
/* The same of a string of any length, once for all. */
int schema_free_characters(struct schema_builder *b, int next);
/* The same, of which the first one is beyond ASCII. */
int schema_wide_characters(struct schema_builder *b, int next);
int schema_object(struct schema_builder *b, const json_t *schema, int next);

/* A member that is a whole number from 0 on; `missing` if it is not there. */
int64_t schema_size(struct schema_builder *b, const json_t *schema, const char *keyword, int64_t missing);

#endif
