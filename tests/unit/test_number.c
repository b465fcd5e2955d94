/* tests/unit/test_number.c - base/number.c: every number comes back from its text, and no text is longer than
 * necessary. */
#include "tests/unit/unit.h"

#include "base/number.h"
#include "coordinator/metrics/exposition.h"
#include "text/stop.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void known_numbers(void **state)
{
    (void)state;
    static const struct {
        double x;
        const char *text;
    } table[] = {{0.004, "0.004"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5, "5"},
                 {-9999, "-9999"},
                 {0, "0"},
                 {1795312221.25, "1795312221.25"},
                 {9007199254740991.0, "9007199254740991"},
                 {1e300, "1e+300"},
                 {DBL_MAX, "1.7976931348623157e+308"},
                 {DBL_TRUE_MIN, "5e-324"},
                 {INFINITY, "inf"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[NUMBER_BYTES];
        assert_int_equal(number_text(text, table[i].x), strlen(table[i].text));
        assert_string_equal(text, table[i].text);
    }
}

/* Any bits are read back as the same number; with one digit fewer they would be another. */
static void any_number(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random_next(&random);
        char text[NUMBER_BYTES], fewer[NUMBER_BYTES];
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        x = i % 2 == 0 ? x : round(x * 1e3) / 1e3;
        assert_in_range(number_text(text, x), 1, NUMBER_BYTES - 1);
        assert_true(strtod(text, NULL) == x);
        int digits = 0;
        for (const char *c = text; *c != '\0' && *c != 'e'; c++)
            digits += (*c >= '1' && *c <= '9') || (*c == '0' && digits > 0);
        (void)snprintf(fewer, sizeof fewer, "%.*e", digits > 1 ? digits - 2 : 0, x);
        assert_true(digits <= 1 || strtod(fewer, NULL) != x || strpbrk(text, ".e") == NULL);
    }
}

static void floats(void **state)
{
    (void)state;
    uint64_t random = 2;
    assert_true(number_of_float(-0.1f) == -0.1);
    assert_true(number_of_float(16777216.0f) == 16777216.0);
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)random_next(&random);
        char text[NUMBER_BYTES];
        float x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        (void)number_text(text, number_of_float(x));
        assert_true(strtof(text, NULL) == x);
        assert_true(strlen(text) <= strlen("-123456789000000"));
    }
}

static void metrics(void **state)
{
    (void)state;
    struct text_buffer out = {0};
    struct exposition x;
    struct err e = {0};
    exposition_open(&x, &out, "p_", &e);
    exposition_sample(&x, "a", "", 0.004);
    exposition_sample(&x, "b", "", 1e10);
    assert_int_equal(text_append(&out, "", 1, &e), 0);
    assert_string_equal(out.data, "p_a{} 0.004\np_b{} 10000000000\n");
    free(out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers),
        cmocka_unit_test(any_number),
        cmocka_unit_test(floats),
        cmocka_unit_test(metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
