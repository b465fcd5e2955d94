/* tests/unit/test_inputs.c - quantised activations (kernels/cpu/inputs.c): every element compared with a search of all
 * codes in double. */
#include "base/dtype.h"
#include "kernels/inputs.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>

enum { ROWS = 5, COLS = 203, PAST = 16 /* elements that must not be written */ };

/* Returns the magnitude of E4M3's codes 0 to 126, by definition; for INT8 the integer. */
static double code_magnitude(enum codes codes, int code)
{
    if (codes == CODES_INT8)
        return code;
    int exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

/* Returns the nearest code's number: of two equally near ones that of the even code. */
static double nearest_number(enum codes codes, double x)
{
    double size = fabs(x), best = INFINITY;
    int last = codes == CODES_E4M3 ? 126 : x < 0 ? 128 : 127, found = 0;
    for (int code = 0; code <= last; code++) {
        double far = fabs(size - code_magnitude(codes, code));
        if (far < best || (far == best && code % 2 == 0)) {
            best = far;
            found = code;
        }
    }
    return copysign(code_magnitude(codes, found), x);
}

/* Fills it with numbers of many magnitudes, zeros, and one row of zeros only. */
static void fill(float *x)
{
    uint32_t state = 12345;
    for (int i = 0; i < ROWS * COLS; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((int32_t)state / 2147483648.0 * pow(10, (int)(state >> 8 & 7) - 3));
        if (i / COLS == 3 || i % 41 == 0)
            x[i] = i % 2 ? 0.0f : -0.0f;
    }
}

static float expected_scale(const struct input_form *f, const float *row, int col)
{
    float most = 0;
    for (int c = 0; c < COLS; c++)
        if ((f->first + c) / f->group == (f->first + col) / f->group)
            most = fmaxf(most, fabsf(row[c]));
    if (f->most > 0)
        most = fminf(most, f->most);
    float scale = f->scale > 0 ? f->scale : f->codes == CODES_E4M3 ? most / 448.0f : most / 127.5f;
    return scale > 0 ? scale : 1;
}

static void check_codes(struct input_form f)
{
    static float x[ROWS * COLS], out[ROWS * COLS + PAST], largest[ROWS * 16 + PAST];
    struct queue q = {.act = DTYPE_F32, .n_threads = 2};
    fill(x);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        out[i] = NAN;
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++)
        largest[i] = NAN;
    input_ops_cpu.find_largest(&q, largest, x, &f, ROWS, COLS);
    for (int g = 0; g < f.n_groups; g++)
        assert_true(largest[3 * f.n_groups + g] == 0);
    input_ops_cpu.quantise(&q, out, x, largest, &f, ROWS, COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        float scale = expected_scale(&f, x + i / COLS * COLS, i % COLS);
        float want = (float)nearest_number(f.codes, x[i] / scale) * scale;
        if (out[i] != want)
            fail_msg("element %d, %g with the scale %g: %.9g, expected %.9g", i, (double)x[i], (double)scale,
                     (double)out[i], (double)want);
    }
    for (int i = 0; i < PAST; i++)
        assert_true(isnan(out[ROWS * COLS + i]) && isnan(largest[ROWS * f.n_groups + i]));
}

static void every_code(void **state)
{
    (void)state;
    for (int codes = CODES_E4M3; codes <= CODES_INT8; codes++) {
        check_codes((struct input_form){.codes = (enum codes)codes, .group = INT_MAX, .n_groups = 1});
        check_codes((struct input_form){.codes = (enum codes)codes, .group = INT_MAX, .n_groups = 1, .first = 77});
        check_codes((struct input_form){.codes = (enum codes)codes, .group = INT_MAX, .n_groups = 1, .most = 3});
        check_codes((struct input_form){.codes = (enum codes)codes, .group = INT_MAX, .n_groups = 1, .scale = 0.25f});
        check_codes((struct input_form){.codes = (enum codes)codes, .group = 64, .n_groups = 4});
        check_codes((struct input_form){.codes = (enum codes)codes, .group = 32, .n_groups = 9, .first = 80});
    }
}

/* A rank's part of a row uses the largest of all ranks; groups without its elements are 0. */
static void parts(void **state)
{
    const struct input_form f = {.codes = CODES_INT8, .group = 4, .n_groups = 4, .first = 6};
    const float x[] = {1, -3, 2, 0, 5};
    float largest[4], out[5], all[4] = {9, 3, 51, 9};
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    (void)state;
    input_ops_cpu.find_largest(&q, largest, x, &f, 1, 5);
    assert_true(largest[0] == 0 && largest[1] == 3 && largest[2] == 5 && largest[3] == 0);
    input_ops_cpu.quantise(&q, out, x, all, &f, 1, 5);
    assert_true(out[4] == 12 * (51 / 127.5f));            /* 12.5: the even code */
    input_ops_cpu.find_largest(&q, largest, x, &f, 1, 0); /* a rank without inputs */
    assert_true(largest[1] == 0);
}

/* A NaN stays NaN, and does not count as a large number. */
static void no_numbers(void **state)
{
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    (void)state;
    for (int codes = CODES_E4M3; codes <= CODES_INT8; codes++)
        for (int given = 0; given < 2; given++) {
            const struct input_form f = {
                .codes = (enum codes)codes, .group = INT_MAX, .n_groups = 1, .scale = given ? 1 : 0};
            const float x[] = {1, NAN, 2};
            float largest[1], out[3];
            input_ops_cpu.find_largest(&q, largest, x, &f, 1, 3);
            assert_true(largest[0] == 2);
            input_ops_cpu.quantise(&q, out, x, largest, &f, 1, 3);
            assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_code), cmocka_unit_test(parts),
                                       cmocka_unit_test(no_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
