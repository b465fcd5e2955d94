/* protocol/protocol_form.c - the form of an answer: OpenAI's response_format and vLLM's structured_outputs. */
#include "protocol/protocol_parts.h"

#include <string.h>

static void set_form(struct protocol_form *form, enum form_kind kind, const json_t *value, const char *field)
{
    *form = (struct protocol_form){kind, value, field};
}

/* Refuses members of an object that are not among known[n]. `of`: the object's name with a point, or "". */
static void check_members(const struct fields *f, const json_t *object, const char *of, const char *const *known,
                          size_t n, struct protocol_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < n; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            fields_fail(f, FIELD_RESPONSE_FORMAT, -1, error, "%s%.40s is unknown", of, key);
    }
}

static void set_schema(struct protocol_form *form, const struct fields *f, const json_t *schema, const char *name,
                       struct protocol_error *error)
{
    if (!json_is_object(schema))
        fields_fail(f, FIELD_RESPONSE_FORMAT, -1, error, "%s is %s, expected an object", name, json_type_name(schema));
    set_form(form, FORM_SCHEMA, schema, "response_format");
}

/* {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}, "strict": ..., "description": ...}} */
static void read_schema(struct protocol_form *form, const struct fields *f, const json_t *format,
                        struct protocol_error *error)
{
    static const char *const known[] = {"name", "description", "schema", "strict"};
    const json_t *inner = json_object_get(format, "json_schema");
    check_members(f, inner, "json_schema.", known, sizeof known / sizeof *known, error);
    set_schema(form, f, json_object_get(inner, "schema"), "json_schema.schema", error);
}

/* {"type": "json_object"}, perhaps with a schema: as "schema" (llama.cpp) or "value" (TGI). Of {} it is any object. */
static void read_object(struct protocol_form *form, const struct fields *f, const json_t *format,
                        struct protocol_error *error)
{
    const json_t *schema = json_object_get(format, "schema"), *value = json_object_get(format, "value");
    bool has_schema = schema != NULL && !json_is_null(schema), has_value = value != NULL && !json_is_null(value);
    if (has_schema && has_value)
        fields_fail(f, FIELD_RESPONSE_FORMAT, -1, error, "found both schema and value, which mean the same");
    if (has_schema || has_value)
        set_schema(form, f, has_schema ? schema : value, has_schema ? "schema" : "value", error);
    if (json_object_size(form->value) == 0)
        set_form(form, FORM_OBJECT, NULL, "response_format");
}

static void read_response_format(struct protocol_form *form, const struct fields *f, struct protocol_error *error)
{
    static const char *const text[] = {"type"}, *const object[] = {"type", "schema", "value"},
                             *const schema[] = {"type", "json_schema"};
    const json_t *format = f->value[FIELD_RESPONSE_FORMAT];
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format == NULL)
        return;
    if (type != NULL && strcmp(type, "json_schema") == 0) {
        check_members(f, format, "", schema, 2, error);
        read_schema(form, f, format, error);
    } else if (type != NULL && strcmp(type, "json_object") == 0) {
        check_members(f, format, "", object, 3, error);
        read_object(form, f, format, error);
    } else if (type != NULL && strcmp(type, "text") == 0) {
        check_members(f, format, "", text, 1, error);
    } else {
        fields_fail(f, FIELD_RESPONSE_FORMAT, -1, error,
                    "found type %.40s, expected \"text\", \"json_object\" or \"json_schema\"",
                    type != NULL ? type : json_type_name(json_object_get(format, "type")));
    }
}

/* One member of structured_outputs. */
static void read_structured(struct protocol_form *form, const struct fields *f, const char *key, const json_t *value,
                            struct protocol_error *error)
{
    const char *field = "structured_outputs";
    if (strcmp(key, "json") == 0 && json_is_object(value))
        set_form(form, FORM_SCHEMA, value, field);
    else if (strcmp(key, "regex") == 0 && json_is_string(value))
        set_form(form, FORM_REGEX, value, field);
    else if (strcmp(key, "choice") == 0 && json_is_array(value))
        set_form(form, FORM_CHOICE, value, field);
    else if (strcmp(key, "json_object") == 0 && json_is_true(value))
        set_form(form, FORM_OBJECT, NULL, field);
    else
        fields_fail(f, FIELD_STRUCTURED_OUTPUTS, -1, error,
                    "found \"%.40s\": %s, expected \"json\": a schema, \"regex\": a string, \"choice\": an array of "
                    "strings or \"json_object\": true",
                    key, json_type_name(value));
}

static void read_structured_outputs(struct protocol_form *form, const struct fields *f, struct protocol_error *error)
{
    json_t *asked = (json_t *)f->value[FIELD_STRUCTURED_OUTPUTS], *value;
    const char *key;
    int n = 0;
    if (asked == NULL)
        return;
    if (!json_is_object(asked))
        fields_fail(f, FIELD_STRUCTURED_OUTPUTS, -1, error, "found %s, expected an object", json_type_name(asked));
    json_object_foreach(asked, key, value)
    {
        if (json_is_null(value))
            continue;
        if (n++ > 0)
            fields_fail(f, FIELD_STRUCTURED_OUTPUTS, -1, error, "found several forms, expected one");
        read_structured(form, f, key, value, error);
    }
}

void protocol_read_form(struct protocol_message *m, const struct fields *f, struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    read_response_format(&g->form, f, error);
    if (g->form.kind != 0 && f->value[FIELD_STRUCTURED_OUTPUTS] != NULL)
        fields_fail(f, FIELD_STRUCTURED_OUTPUTS, -1, error, "has no place beside \"response_format\"");
    read_structured_outputs(&g->form, f, error);
    protocol_check_form(g, f, error);
}

void protocol_check_form(const struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    if (g->form.kind == 0)
        return;
    if (g->rules.sampling.min_tokens > 0)
        fields_fail(f, FIELD_MIN_TOKENS, -1, error, "not possible with \"%s\", which says where the text ends",
                    g->form.field);
    if (g->rules.ignore_eos)
        fields_fail(f, FIELD_IGNORE_EOS, -1, error, "not possible with \"%s\", which says where the text ends",
                    g->form.field);
    if (g->search.num_beams > 1)
        fields_fail(f, FIELD_NUM_BEAMS, -1, error, "not implemented with \"%s\"", g->form.field);
}
