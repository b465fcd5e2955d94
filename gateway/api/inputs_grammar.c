/* gateway/api/inputs_grammar.c - `grammar` of Text Generation Inference: the form of the answer. */
#include "base/json.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/inputs.h"

static const char where[] = "parameters.grammar";

/* {"type": "json_schema", "json_schema": {..}}; NULL: the value is no schema. */
static json_t *format_of(const char *name, json_t *schema)
{
    return json_is_object(schema)
               ? json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", name, "schema", schema)
               : NULL;
}

/* A schema may also be sent as its text. */
static json_t *schema_of(json_t *value)
{
    struct err e = {0};
    if (!json_is_string(value))
        return json_incref(value);
    return json_parse(json_string_value(value), json_string_length(value), where, &e);
}

static void put_form(json_t *parameters, const char *name, json_t *form, const json_t *value, const char *expected,
                     struct fault *f)
{
    if (form == NULL)
        (void)chat_wrong(f, "parameters.grammar.value", value, expected);
    else
        (void)json_object_set_new(parameters, name, form);
}

void inputs_grammar(json_t *parameters, struct fault *f)
{
    json_t *grammar = json_object_get(parameters, "grammar"), *value = json_object_get(grammar, "value");
    const char *name = json_string_value(json_object_get(value, "name"));
    if (grammar == NULL || f->status != 0)
        return;
    json_incref(grammar);
    (void)json_object_del(parameters, "grammar");
    if (chat_is_type(grammar, "json")) {
        json_t *schema = schema_of(value);
        put_form(parameters, "response_format", format_of("grammar", schema), value, "a JSON schema", f);
        json_decref(schema);
    } else if (chat_is_type(grammar, "json_schema")) {
        put_form(parameters, "response_format",
                 format_of(name != NULL ? name : "grammar", json_object_get(value, "schema")), value,
                 "an object with \"schema\"", f);
    } else if (chat_is_type(grammar, "regex")) {
        put_form(parameters, "structured_outputs", json_is_string(value) ? json_pack("{s:O}", "regex", value) : NULL,
                 value, "a string", f);
    } else {
        (void)chat_wrong(f, where, grammar, "one of the types json, json_schema, regex, with \"value\"");
    }
    json_decref(grammar);
}

void inputs_rename(const struct inputs_call *in, struct fault *f)
{
    static const struct fault_name names[] = {{"parameters.response_format", where, true},
                                              {"response_format", where, true},
                                              {"parameters.structured_outputs", where, true},
                                              {"structured_outputs", where, true}};
    if (in->has_grammar)
        fault_rename(f, names, sizeof names / sizeof names[0]);
}
