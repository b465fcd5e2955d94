/* tests/unit/test_dtype.c - base/dtype.c against the definition of the formats, in double precision. */
#include "tests/unit/unit.h"

#include "base/dtype.h"

#include <math.h>
#include <stdbool.h>

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns the value, by definition, of a 16-bit format with `fraction` bits of mantissa and the given bias. */
static double value_of(uint16_t bits, int fraction, int bias)
{
    int exponents = 1 << (15 - fraction), exponent = bits >> fraction & (exponents - 1);
    int mantissa = bits & ((1 << fraction) - 1);
    double x = exponent == 0 ? ldexp(mantissa, 1 - bias - fraction)
                             : ldexp(mantissa + (1 << fraction), exponent - bias - fraction);
    if (exponent == exponents - 1)
        x = mantissa != 0 ? NAN : INFINITY;
    return bits & 0x8000 ? -x : x;
}

/* Rounds to nearest even by the formats' order: bits without sign grow with the value, and infinity is one more
 * step. */
static uint16_t nearest(float x, int fraction, int bias)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0, infinity = (uint16_t)(0x7fff >> fraction << fraction);
    double magnitude = fabs((double)x);
    uint16_t low = 0, high = infinity;
    if (isinf(x))
        return sign | infinity;
    while (high - low > 1) { /* value(low) <= magnitude < value(high) */
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value_of(middle, fraction, bias) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = value_of(low, fraction, bias);
    double above = high == infinity ? ldexp(1, (1 << (15 - fraction)) - 1 - bias) : value_of(high, fraction, bias);
    double middle = below + (above - below) / 2; /* exact in double */
    bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
    return sign | (up ? high : low);
}

static void every_f16_round_trips(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float x = f16_to_float((uint16_t)bits);
        double want = value_of((uint16_t)bits, 10, 15);
        if (isnan(want)) {
            assert_true(isnan(x));
            assert_true(isnan(f16_to_float(float_to_f16(x))));
            continue;
        }
        assert_true((double)x == want && (signbit(x) != 0) == (bits >> 15 != 0));
        assert_int_equal(float_to_f16(x), bits);
    }
}

static void every_bf16_round_trips(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float x = bf16_to_float((uint16_t)bits);
        double want = value_of((uint16_t)bits, 7, 127);
        if (isnan(want)) {
            assert_true(isnan(x));
            assert_true(isnan(bf16_to_float(float_to_bf16(x))));
            continue;
        }
        assert_true((double)x == want && (signbit(x) != 0) == (bits >> 15 != 0));
        assert_int_equal(float_to_bf16(x), bits);
    }
}

static void check_rounding(uint32_t bits)
{
    float x = from_bits(bits);
    if (isnan(x)) {
        assert_true(isnan(f16_to_float(float_to_f16(x))));
        assert_true(isnan(bf16_to_float(float_to_bf16(x))));
        return;
    }
    uint16_t half = nearest(x, 10, 15), brain = nearest(x, 7, 127);
    if (float_to_f16(x) != half || float_to_bf16(x) != brain)
        print_error("%a (%08x): f16 %04x, expected %04x; bf16 %04x, expected %04x\n", (double)x, bits, float_to_f16(x),
                    half, float_to_bf16(x), brain);
    assert_int_equal(float_to_f16(x), half);
    assert_int_equal(float_to_bf16(x), brain);
}

static void random_floats_round_to_nearest_even(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 150000; i++)
        check_rounding((uint32_t)random_next(&seed));
    for (int i = 0; i < 150000; i++) { /* binary16's range: 2^-27 to 2^17 */
        uint64_t r = random_next(&seed);
        check_rounding((uint32_t)(r & 0x807fffff) | (uint32_t)(100 + (r >> 32) % 45) << 23);
    }
}

/* Around every value of each format: the value itself, the tie above it, and their neighbours. */
static void ties_and_neighbours(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        double middle =
            (value_of((uint16_t)bits, 10, 15) + (bits == 0x7bff ? 65536.0 : value_of((uint16_t)(bits + 1), 10, 15))) /
            2;
        uint32_t tie = to_bits((float)middle), at = to_bits((float)value_of((uint16_t)bits, 10, 15));
        for (int d = -1; d <= 1; d++) {
            check_rounding((tie + (uint32_t)d) & 0x7fffffff);
            check_rounding((tie + (uint32_t)d) | 0x80000000);
            check_rounding((at + (uint32_t)d) & 0x7fffffff);
        }
    }
    for (uint32_t bits = 0; bits < 0x7f80; bits++)
        for (uint32_t low = 0x7fff; low <= 0x8001; low++) {
            check_rounding(bits << 16 | low);
            check_rounding(bits << 16 | low | 0x80000000);
        }
}

static void edges(void **state)
{
    (void)state;
    const uint32_t bits[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                             0xff800001, 0x7fffffff, 0xffffffff, 1,          0x80000001, 0x007fffff,
                             0x00800000, 0x7f7fffff, 0xff7fffff, 0x477fefff, 0x477ff000, 0x477fe000,
                             0x33000000, 0x33000001, 0x387fc000, 0x387fe000, 0x387fffff, 0x38800000};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++)
        check_rounding(bits[i]);
    assert_int_equal(float_to_f16(65519.996f), 0x7bff);
    assert_int_equal(float_to_f16(65520.0f), 0x7c00);
    assert_int_equal(float_to_bf16(3.4e38f), 0x7f80);
}

static void arrays_of_every_type(void **state)
{
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        unsigned char memory[4 * 6];
        memset(memory, 0x5a, sizeof memory);
        size_t size = dtype_bytes((enum dtype)type);
        for (size_t i = 1; i < 4; i++)
            dtype_store(memory, (enum dtype)type, i, (float)i * -1.5f);
        for (size_t i = 1; i < 4; i++)
            assert_true(dtype_load(memory, (enum dtype)type, i) == (float)i * -1.5f);
        for (size_t i = 0; i < sizeof memory; i++)
            if (i < size || i >= 4 * size)
                assert_int_equal(memory[i], 0x5a);
    }
    assert_string_equal(dtype_name(DTYPE_F32), "F32");
    assert_string_equal(dtype_name(DTYPE_F16), "F16");
    assert_string_equal(dtype_name(DTYPE_BF16), "BF16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_round_trips),
        cmocka_unit_test(every_bf16_round_trips),
        cmocka_unit_test(random_floats_round_to_nearest_even),
        cmocka_unit_test(ties_and_neighbours),
        cmocka_unit_test(edges),
        cmocka_unit_test(arrays_of_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
