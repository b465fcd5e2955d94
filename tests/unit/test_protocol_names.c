/* tests/unit/test_protocol_names.c - the names at the beginning of a message: the party on whose behalf it asks, and
 * its own, which are found before the rest is parsed, or where it cannot be. */
#include "tests/unit/trial.h"

#include <stdio.h>
#include <stdlib.h>

/* Looks for the name in the message, which is cut short anywhere, at the end of its memory. */
static void check_cuts(void (*find)(const char *json, size_t bytes, char *name), const char *json, const char *want)
{
    char name[PROTOCOL_MAX_ID_BYTES + 1];
    for (size_t n = 0; n <= strlen(json); n++) {
        char *copy = malloc(n + 1);
        memcpy(copy + 1, json, n);
        find(copy + 1, n, name);
        assert_true(name[0] == '\0' || strcmp(name, want) == 0);
        if (n == strlen(json))
            assert_string_equal(name, want);
        free(copy);
    }
}

/* The name of a message that is not parsed is found in front, or behind the party's. */
static void finds_the_id(void **state)
{
    (void)state;
    char id[PROTOCOL_MAX_ID_BYTES + 1];
    static const struct {
        const char *json, *id;
    } found[] = {
        {"{\"request_id\":\"a\"", "a"},
        {" {\n\"on_behalf_of\" : \" ann\" , \"request_id\" : \"a\\u00e4\\\"\",\"prompt\"", "a\xc3\xa4\""},
        {"{\"on_behalf_of\":\"\",\"request_id\":\"a\"}", ""},
        {"{\"on_behalf_of\":\"ann\"}", ""},
        {"{\"request_id\":\"\"}", ""},
        {"{\"request_id\":\"a\\u0000\"}", ""},
        {"{\"request_id\":7}", ""},
        {"{\"request_id\":null}", ""},
        {"{\"request_id\":[\"a\"]}", ""},
        {"{\"prompt\":\"p\",\"request_id\":\"a\"}", ""},
        {"[\"request_id\"]", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        check_cuts(protocol_find_id, found[i].json, found[i].id);
    for (int n = 128; n < 2000; n += n == 128 ? 1 : 1871) { /* the longest one, a longer one, one that is cut */
        char json[2100];
        (void)snprintf(json, sizeof json, "{\"request_id\":\"%0*d\"}", n, 7);
        protocol_find_id(json, strlen(json), id);
        assert_int_equal(strlen(id), n == 128 ? 128 : 0);
    }
}

/* The name on whose behalf a message asks is found before the rest is parsed, and only in front. */
static void finds_the_party(void **state)
{
    (void)state;
    char id[200], json[400];
    struct trial t;
    static const struct {
        const char *json, *name;
    } found[] = {
        {"{\"on_behalf_of\":\"ann@site\",\"prompt\":\"p\"}", "ann@site"},
        {" {\n\t\"on_behalf_of\" : \"key 7\"", "key 7"},
        {"{\"on_behalf_of\":\" x ", ""},
        {"{\"on_behalf_of\":\"\"}", ""},
        {"{\"on_behalf_of\":\"a\\u0062\"}", ""},
        {"{\"on_behalf_of\":\"\xc3\xa4\"}", ""},
        {"{\"on_behalf_of\":7}", ""},
        {"{\"on_behalf_o\":\"a\"}", ""},
        {"{\"prompt\":\"p\",\"on_behalf_of\":\"a\"}", ""},
        {"{\"on_behalf_of\"", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        check_cuts(protocol_find_party, found[i].json, found[i].name);
    memset(id, 'x', sizeof id);
    id[129] = '\0';
    (void)snprintf(json, sizeof json, "{\"on_behalf_of\": \"%s\", \"prompt\": \"p\"}", id + 1);
    (void)good(&t, json);
    assert_string_equal(t.m.party, id + 1);
    close_trial(&t);
#define EXPECTED                                                                                                    \
    "expected the first member of the message, a string of 1 to 128 printable ASCII characters without quotes and " \
    "backslashes"
    (void)snprintf(json, sizeof json, "{\"on_behalf_of\": \"%s\", \"prompt\": \"p\"}", id);
    bad(json, 400, "on_behalf_of", EXPECTED);
    bad("{\"prompt\": \"p\", \"on_behalf_of\": \"a\"}", 400, "on_behalf_of", EXPECTED);
    bad("{\"on_behalf_of\": \"\", \"prompt\": \"p\"}", 400, "on_behalf_of", EXPECTED);
    bad("{\"on_behalf_of\": \"a\\u0000\", \"prompt\": \"p\"}", 400, "on_behalf_of", EXPECTED);
    bad("{\"on_behalf_of\": 7, \"prompt\": \"p\"}", 400, "on_behalf_of", EXPECTED);
    bad("{\"prompt\": \"p\", \"parameters\": {\"on_behalf_of\": \"a\"}}", 400, "parameters.on_behalf_of",
        "belongs at the top of the message, not in \"parameters\"");
    bad("{\"on_behalf_of\": \"a\", \"prompt\": \"p\", \"on_behalf_of\": \"b\"}", 400, "on_behalf_of",
        "message: not valid JSON: line 1, column 51: duplicate object key near '\"on_behalf_of\"'");
    (void)good(&t, "{\"on_behalf_of\": null, \"prompt\": \"p\"}");
    assert_string_equal(t.m.party, "");
    close_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_id),
        cmocka_unit_test(finds_the_party),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
