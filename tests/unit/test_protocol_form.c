/* tests/unit/test_protocol_form.c - protocol/protocol_form.c: the members of response_format. */
#include "tests/unit/trial.h"

#include "base/json.h"

#include <stdio.h>

#define ASKED(format) "{\"prompt\": \"p\", \"response_format\": " format "}"

static void expect_form(const char *json, enum form_kind kind, const char *schema)
{
    struct trial t;
    const struct protocol_form *form = &good(&t, json)->form;
    char *text = form->value != NULL ? json_text(form->value, JSON_COMPACT) : NULL;
    assert_int_equal(form->kind, kind);
    if (schema == NULL)
        assert_null(text);
    else
        assert_string_equal(text, schema);
    free(text);
    close_trial(&t);
}

static void takes_forms(void **state)
{
    (void)state;
    expect_form(ASKED("{\"type\": \"text\", \"json_schema\": null}"), 0, NULL);
    expect_form(ASKED("{\"type\": \"json_object\", \"schema\": null}"), FORM_OBJECT, NULL);
    expect_form(ASKED("{\"type\": \"json_object\", \"schema\": {}}"), FORM_OBJECT, NULL);
    expect_form(ASKED("{\"type\": \"json_object\", \"schema\": {\"type\": \"object\"}}"), FORM_SCHEMA,
                "{\"type\":\"object\"}");
    expect_form(ASKED("{\"type\": \"json_object\", \"value\": {\"type\": \"array\"}, \"schema\": null}"), FORM_SCHEMA,
                "{\"type\":\"array\"}");
    expect_form(ASKED("{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": null, "
                      "\"description\": \"d\", \"schema\": {\"a\": 1}}}"),
                FORM_SCHEMA, "{\"a\":1}");
}

static void refuses_forms(void **state)
{
    static const char *const wrong[][2] = {
        {ASKED("{\"type\": \"text\", \"value\": {}}"), "value is unknown"},
        {ASKED("{\"type\": \"json_object\", \"json_schema\": {}}"), "json_schema is unknown"},
        {ASKED("{\"type\": \"json_object\", \"schema\": [1]}"), "schema is an array, expected an object"},
        {ASKED("{\"type\": \"json_object\", \"value\": \"{}\"}"), "value is a string, expected an object"},
        {ASKED("{\"type\": \"json_object\", \"schema\": {}, \"value\": {}}"),
         "found both schema and value, which mean the same"},
        {ASKED("{\"type\": \"json_schema\", \"schema\": {}}"), "schema is unknown"},
        {ASKED("{\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}, \"x\": 1}}"), "json_schema.x is unknown"},
        {ASKED("{\"type\": \"json_schema\", \"json_schema\": 1}"), "json_schema.schema is nothing, expected an object"},
        {ASKED("{\"type\": 1}"), "found type an integer, expected \"text\", \"json_object\" or \"json_schema\""},
        {ASKED("[]"), "found type nothing, expected \"text\", \"json_object\" or \"json_schema\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        bad(wrong[i][0], 400, "response_format", wrong[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_forms), cmocka_unit_test(refuses_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
