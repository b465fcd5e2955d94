/* tests/unit/test_json.c - base/json.c: bounded parsing, and members that report their errors. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "tests/support/files.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *parse(const char *text, struct err *e)
{
    *e = (struct err){0};
    return json_parse(text, strlen(text), "f.json", e);
}

static void refuses(const char *text, const char *part)
{
    struct err e;
    json_t *root = parse(text, &e);
    if (root != NULL)
        print_error("accepted: %s\n", text);
    assert_null(root);
    EXPECT_PARTS(&e, ERR_INPUT, "f.json: ", part);
}

static void refuses_malformed_text(void **state)
{
    (void)state;
    refuses("", "not valid JSON: line 1");
    refuses("{", "not valid JSON");
    refuses("{\"a\": 1, \"a\": 2}", "duplicate object key");
    refuses("{\"b\": {\"a\": 1, \"a\": 1}}", "duplicate object key");
    refuses("{\"a\": 1} x", "not one JSON value: found more text at byte 9, expected the end");
    refuses("{\"a\": 1}{}", "not one JSON value: found more text at byte 8, expected the end");
    refuses("[\"]}\"]\n\t]", "not one JSON value: found more text at byte 8, expected the end");
    refuses("{\"a\": \"\xff\"}", "not valid JSON");
    refuses("{\"a\": \"\xc0\x80\"}", "not valid JSON");
    refuses("{\"a\": NaN}", "not valid JSON");
    refuses("{\"a\": 1e999}", "not valid JSON");
    refuses("{\"a\": 99999999999999999999}", "not valid JSON");
    refuses("{\"a\": \"\\ud800\"}", "not valid JSON");
    refuses("\n\n  {\"a\" 1}", "line 3");
}

/* Among integers that are unchanged. */
static void takes_huge_integers_of_model_folders(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"ids\": [2, {\"n\": -7}], \"x\": 0.5}";
    struct err e = {0};
    json_t *root = json_parse_model(text, sizeof text - 1, "f.json", &e);
    assert_non_null(root);
    assert_true(json_real_value(json_object_get(root, "model_max_length")) == 1e30);
    const json_t *ids = json_object_get(root, "ids");
    assert_int_equal(json_integer_value(json_array_get(ids, 0)), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(ids, 1), "n")), -7);
    assert_true(json_real_value(json_object_get(root, "x")) == 0.5);
    assert_int_equal(json_get_int(root, "model_max_length", 3, 0, 9, "f.json", &e), 3);
    EXPECT_PARTS(&e, ERR_INPUT, "\"model_max_length\" is a real number", "expected an integer");
    json_decref(root);
}

static void refuses_what_no_model_folder_has(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"a\": 1e999}", "{\"a\": 99999999999999999999, \"a\": 1}",
                                        "{\"a\": 99999999999999999999", "{\"a\": 99999999999999999999} x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct err e = {0};
        assert_null(json_parse_model(texts[i], strlen(texts[i]), "f.json", &e));
        EXPECT_PARTS(&e, ERR_INPUT, "f.json: ", "not valid JSON");
    }
}

static void writes_the_fewest_digits(void **state)
{
    (void)state;
    static const double numbers[] = {0.004, 0.1 + 0.2, 1e-320, 5e-324,       1.7976931348623157e308,
                                     -0.0,  3,         1e22,   123456789.125};
    static const char expected[] = "[0.004,0.30000000000000004,1e-320,5e-324,1.7976931348623157e308,-0.0,3.0,1e22,"
                                   "123456789.125,\"0.0040000000000000001 \\\" 1e0\",40000000000000001]";
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)json_array_append_new(list, json_real(numbers[i]));
    (void)json_array_append_new(list, json_string("0.0040000000000000001 \" 1e0"));
    (void)json_array_append_new(list, json_integer(40000000000000001));
    char *text = json_text(list, JSON_COMPACT);
    assert_string_equal(text, expected);
    json_t *back = json_loads(text, 0, NULL);
    assert_true(json_equal(list, back));
    json_decref(back);
    free(text);
    json_decref(list);
}

static void names_the_member_that_is_wrong(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"{\"a\": 1, \"b\": 1e999}", "b"},
                                           {"{\"a\": \"x\", \"b\": {\"c\": [1, tru]}}", "b"},
                                           {"{\"a\": \"\\ud800\"}", "a"},
                                           {"{\"a\": \"{[,\\\"\", \"b\": \xff}", "b"},
                                           {"{\"a\": 1, \"a\": 2}", "a"},
                                           {"{\"a\": 1} x", ""},
                                           {"{\"a\": 1} {", ""},
                                           {"{\"a\": 1}{\"b\": 2}", ""},
                                           {"[\"a\", x]", ""},
                                           {"x", ""},
                                           {"{x", ""}};
    static const struct json_limits limits = {64, 100, 100, 100};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_failure failure;
        struct err e = {0};
        assert_null(json_parse_limited(cases[i][0], strlen(cases[i][0]), "m", &limits, &failure, &e));
        assert_string_equal(failure.key, cases[i][1]);
        assert_false(failure.too_large);
    }
}

static void bounds_the_number_of_values(void **state)
{
    (void)state;
    static const struct json_limits limits = {3, 6, 4, 2};
    static const struct {
        const char *text, *part; /* NULL: accepted */
    } cases[] = {{"[1, 2, 3, 4]", NULL},
                 {"[1, 2, 3, 4, 5, 6]", "7 JSON values, at most 6"},
                 {"[\"[[[[,,,,,,\\\",\"]", NULL},
                 {"[[], [[]]]", NULL},
                 {"[[[[]]]]", "nested 4 deep, at most 3"},
                 {"[[[]],[[],[]]]", "9 JSON values"},
                 {"{\"a:\": 1, \":\": 2}", NULL},
                 {"{\"a\": 1, \"b\": {\"c\": 2}}", "3 members of JSON objects, at most 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_failure failure;
        struct err e = {0};
        json_t *root = json_parse_limited(cases[i].text, strlen(cases[i].text), "m", &limits, &failure, &e);
        assert_int_equal(root == NULL, cases[i].part != NULL);
        assert_int_equal(failure.too_large, cases[i].part != NULL);
        if (root == NULL)
            EXPECT_PARTS(&e, ERR_INPUT, cases[i].part);
        json_decref(root);
    }
}

static size_t held;

static void *counting_malloc(size_t n)
{
    void *p = malloc(n);
    held += p != NULL ? malloc_usable_size(p) + sizeof(size_t) : 0;
    return p;
}

static void counting_free(void *p)
{
    held -= p != NULL ? malloc_usable_size(p) + sizeof(size_t) : 0;
    free(p);
}

/* json_memory is about malloc's actual use, for any text. */
static void knows_its_memory(void **state)
{
    (void)state;
    static const char *const piece[] = {
        "1",    "-1.5e3",  "\"\"",      "\"abcdefghijklmnopqrstuvwxyz\"", "[]", "{}", "[[[1]]]",
        "true", "[1,2,3]", "{\"a\":1}", "{\"a\":1,\"bcd\":{\"e\":\"f\"}}"};
    json_set_alloc_funcs(counting_malloc, counting_free);
    for (size_t k = 0; k < sizeof piece / sizeof piece[0]; k++)
        for (int n = 1; n <= 10000; n *= 100) {
            char *text = calloc(1, (size_t)n * 64 + 16), *at = stpcpy(text, "[");
            struct err e;
            for (int i = 0; i < n; i++)
                at = stpcpy(stpcpy(at, i > 0 ? "," : ""), piece[k]);
            (void)stpcpy(at, "]");
            held = 0;
            json_t *root = parse(text, &e);
            size_t said = json_memory(root);
            if (2 * said < held || said > 2 * held + 256)
                print_error("%d of %s: %zu bytes, json_memory says %zu\n", n, piece[k], held, said);
            assert_true(2 * said >= held && said <= 2 * held + 256);
            json_decref(root);
            assert_int_equal(held, 0);
            free(text);
        }
    json_set_alloc_funcs(malloc, free);
}

static char *nested(int depth, const char *open, const char *inner, const char *close)
{
    char *text = calloc(1, (size_t)depth * (strlen(open) + strlen(close)) + strlen(inner) + 1);
    char *at = text;
    for (int i = 0; i < depth; i++)
        at = stpcpy(at, open);
    at = stpcpy(at, inner);
    for (int i = 0; i < depth; i++)
        at = stpcpy(at, close);
    return text;
}

static void bounds_the_depth(void **state)
{
    (void)state;
    const char *const open[] = {"[", "{\"a\":"}, *const close[] = {"]", "}"};
    for (int kind = 0; kind < 2; kind++) {
        struct err e;
        char *text = nested(64, open[kind], "1", close[kind]);
        json_t *root = parse(text, &e);
        assert_non_null(root);
        json_decref(root);
        free(text);
        text = nested(65, open[kind], "1", close[kind]);
        refuses(text, "nested 65 deep, at most 64 is accepted");
        free(text);
    }
    char *text = nested(1000000, "[", "", "");
    refuses(text, "nested 1000000 deep");
    free(text);
    struct err e;
    text = nested(100, "[", "", "");
    char *quoted = calloc(1, 300);
    (void)snprintf(quoted, 300, "[\"\\\"%s\\\\\", \"]\"]", text); /* brackets within strings do not count */
    json_t *root = parse(quoted, &e);
    expect_none(&e);
    assert_non_null(root);
    json_decref(root);
    free(quoted);
    free(text);
}

static void strings_may_hold_nul(void **state)
{
    (void)state;
    struct err e;
    json_t *root = parse("{\"a\": \"x\\u0000y\"}", &e);
    assert_int_equal(json_string_length(json_object_get(root, "a")), 3);
    json_decref(root);
    e = (struct err){0};
    assert_null(json_parse("[1]\0[2]", 7, "f.json", &e)); /* a raw NUL is not white space */
    EXPECT_PARTS(&e, ERR_INPUT, "f.json: not one JSON value: found more text at byte 3, expected the end");
}

static void reads_files(void **state)
{
    (void)state;
    char dir[256], path[300];
    struct err e = {0};
    size_t bytes = 99;
    files_make_dir(dir);
    files_write(dir, "a.json", "{\"k\": [1]}", 10);
    files_write(dir, "empty", "", 0);
    files_write(dir, "raw", "a\0b", 3);
    (void)snprintf(path, sizeof path, "%s/a.json", dir);
    json_t *root = json_read_file(path, 10, &e);
    assert_int_equal(json_array_size(json_object_get(root, "k")), 1);
    json_decref(root);
    expect_none(&e);
    assert_null(json_read_file(path, 9, &e));
    EXPECT_PARTS(&e, ERR_INPUT, path, ": 10 bytes, at most 9 are accepted");

    e = (struct err){0};
    (void)snprintf(path, sizeof path, "%s/absent", dir);
    assert_null(json_read_file(path, 100, &e));
    EXPECT_PARTS(&e, ERR_IO, path, "cannot open: No such file");
    e = (struct err){0};
    assert_null(json_read_file(dir, 100000, &e));
    EXPECT_PARTS(&e, ERR_INPUT, dir, "not a regular file");
    e = (struct err){0};
    (void)snprintf(path, sizeof path, "%s/empty", dir);
    assert_null(json_read_file(path, 100, &e));
    EXPECT_PARTS(&e, ERR_INPUT, path, "not valid JSON");

    e = (struct err){0};
    char *text = file_read(path, 0, &bytes, &e);
    assert_non_null(text);
    assert_int_equal(bytes, 0);
    free(text);
    (void)snprintf(path, sizeof path, "%s/raw", dir);
    text = file_read(path, 3, &bytes, &e);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "a\0b", 4);
    free(text);
    expect_none(&e);
    files_remove_dir(dir);
}

static void byte_order_marks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
        size_t bytes;
    } refused[] = {{"\xff\xfe{\0}\0", "UTF-16", 6},
                   {"\xfe\xff\0{\0}", "UTF-16", 6},
                   {"\xff\xfe\0\0{\0\0\0", "UTF-32", 8},
                   {"\0\0\xfe\xff\0\0\0{", "UTF-32", 8}};
    char dir[256], path[300];
    struct err e = {0};
    size_t bytes = 0;
    files_make_dir(dir);
    (void)snprintf(path, sizeof path, "%s/a.json", dir);
    files_write(dir, "a.json", "\xef\xbb\xbf[1]", 6);
    for (int i = 0; i < 2; i++) {
        json_t *root = i == 0 ? json_read_file(path, 10, &e) : json_read_model_file(path, 10, &e);
        expect_none(&e);
        assert_int_equal(json_array_size(root), 1);
        json_decref(root);
    }
    char *text = file_read_text(path, 10, &bytes, &e);
    assert_int_equal(bytes, 3);
    assert_string_equal(text, "[1]");
    free(text);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        files_write(dir, "a.json", refused[i].text, refused[i].bytes);
        assert_null(json_read_file(path, 10, &e));
        EXPECT_PARTS(&e, ERR_INPUT, path, ": a byte order mark of ", refused[i].said, "expected UTF-8");
        e = (struct err){0};
    }
    files_remove_dir(dir);
}

#define DOCUMENT                                                                                            \
    "{\"i\": 7, \"neg\": -3, \"whole\": 8.0, \"half\": 8.5, \"big\": 1e300, \"max\": 9223372036854775807, " \
    "\"t\": true, \"f\": false, \"n\": null, \"s\": \"text\", \"a\": [], \"o\": {}}"

static void members_are_typed(void **state)
{
    (void)state;
    struct err e;
    json_t *d = parse(DOCUMENT, &e);
    assert_int_equal(json_get_int(d, "i", 1, 7, 7, "f", &e), 7);
    assert_int_equal(json_get_int(d, "neg", 1, -3, 0, "f", &e), -3);
    assert_int_equal(json_get_int(d, "whole", 1, 0, 10, "f", &e), 8);
    assert_int_equal(json_get_int(d, "max", 1, 0, INT64_MAX, "f", &e), INT64_MAX);
    assert_int_equal(json_get_int(d, "absent", -42, 0, 10, "f", &e), -42);
    assert_int_equal(json_get_int(d, "n", -42, 0, 10, "f", &e), -42);
    assert_true(json_get_real(d, "i", 1, 0, 10, "f", &e) == 7);
    assert_true(json_get_real(d, "half", 1, 8.5, 8.5, "f", &e) == 8.5);
    assert_true(json_get_real(d, "n", 2.5, 0, 1, "f", &e) == 2.5);
    assert_true(json_get_bool(d, "t", false, "f", &e));
    assert_false(json_get_bool(d, "f", true, "f", &e));
    assert_true(json_get_bool(d, "n", true, "f", &e));
    assert_string_equal(json_get_string(d, "s", "", "f", &e), "text");
    assert_string_equal(json_get_string(d, "absent", "missing", "f", &e), "missing");
    expect_none(&e);
    json_decref(d);
}

static void wrong_members_are_named(void **state)
{
    (void)state;
    struct err none, e;
    json_t *d = parse(DOCUMENT, &none);
#define REFUSED(call, text)               \
    do {                                  \
        e = (struct err){0};              \
        (void)(call);                     \
        expect_text(&e, ERR_INPUT, text); \
    } while (0)
    REFUSED(json_get_int(d, "i", 1, 8, 9, "f", &e), "f: \"i\" is 7, expected an integer in [8, 9]");
    REFUSED(json_get_int(d, "i", 1, 5, 6, "f", &e), "f: \"i\" is 7, expected an integer in [5, 6]");
    REFUSED(json_get_int(d, "half", 1, 0, 9, "f", &e), "f: \"half\" is a real number, expected an integer in [0, 9]");
    REFUSED(json_get_int(d, "big", 1, 0, 9, "f", &e), "f: \"big\" is a real number, expected an integer in [0, 9]");
    REFUSED(json_get_int(d, "s", 1, 0, 9, "f", &e), "f: \"s\" is a string, expected an integer in [0, 9]");
    REFUSED(json_get_int(d, "t", 1, 0, 9, "f", &e), "f: \"t\" is a boolean, expected an integer in [0, 9]");
    REFUSED(json_get_int(d, "a", 1, 0, 9, "f", &e), "f: \"a\" is an array, expected an integer in [0, 9]");
    REFUSED(json_get_real(d, "o", 1, 0, 9, "f", &e), "f: \"o\" is an object, expected a number in [0, 9]");
    REFUSED(json_get_real(d, "half", 1, 0, 1, "f", &e), "f: \"half\" is 8.5, expected a number in [0, 1]");
    REFUSED(json_get_bool(d, "i", 1, "f", &e), "f: \"i\" is an integer, expected true or false");
    REFUSED(json_get_string(d, "i", "", "f", &e), "f: \"i\" is an integer, expected a string");
    e = (struct err){0};
    assert_int_equal(json_get_int(d, "i", 1, 8, 9, "f", &e), 1); /* gives `missing` */
    assert_true(json_get_real(d, "s", 1.5, 8, 9, "f", &e) == 1.5);
    json_decref(d);
    assert_string_equal(json_type_name(NULL), "nothing");
    assert_string_equal(json_type_name(json_null()), "null");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_malformed_text),
        cmocka_unit_test(names_the_member_that_is_wrong),
        cmocka_unit_test(bounds_the_number_of_values),
        cmocka_unit_test(writes_the_fewest_digits),
        cmocka_unit_test(takes_huge_integers_of_model_folders),
        cmocka_unit_test(refuses_what_no_model_folder_has),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(knows_its_memory),
        cmocka_unit_test(strings_may_hold_nul),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(byte_order_marks),
        cmocka_unit_test(members_are_typed),
        cmocka_unit_test(wrong_members_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
