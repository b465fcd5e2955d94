/* tests/ops/test_memory.c - the device's memory as the CPU has it, and weights made of noise. */
#include "tests/ops/check.h"

static void test_alloc(void **unused)
{
    (void)unused;
    struct queue q = cpu_queue(1);
    const size_t sizes[] = {0, 1, 255, 256, 257, 100000, 9 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        unsigned char *p = ops_cpu.alloc(&q, sizes[k]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        for (size_t i = 0; i < sizes[k]; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAB, sizes[k]);
        ops_cpu.free(&q, p);
    }
    ops_cpu.free(&q, NULL);
    ops_cpu.wait(&q);
    assert_int_equal(q.err.code, ERR_NONE);
    assert_null(ops_cpu.alloc(&q, SIZE_MAX - 3));
    assert_int_equal(q.err.code, ERR_MEMORY);
}

static void test_copy(void **unused)
{
    (void)unused;
    struct queue q = cpu_queue(2);
    enum { ROWS = 5, SRC = 13, DST = 11, WIDTH = 7 };
    unsigned char src[ROWS * SRC], dst[ROWS * DST], back[ROWS * DST];
    for (int i = 0; i < ROWS * SRC; i++)
        src[i] = (unsigned char)(i + 1);
    memset(dst, 0xEE, sizeof dst);
    ops_cpu.upload(&q, dst, DST, src, SRC, WIDTH, ROWS);
    ops_cpu.download(&q, back, dst, sizeof back);
    for (int i = 0; i < ROWS * DST; i++)
        assert_int_equal(back[i], i % DST < WIDTH ? src[i / DST * SRC + i % DST] : 0xEE);
    ops_cpu.upload(&q, NULL, 0, NULL, 0, 0, 5);
    ops_cpu.upload(&q, NULL, 4, NULL, 4, 4, 0);
    ops_cpu.download(&q, NULL, NULL, 0);
}

static void test_transposed(void **unused)
{
    (void)unused;
    struct queue q = cpu_queue(2);
    const int sizes[] = {0, 1, 3, 31, 33, 77, 1100};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (int k = 0; k < 49; k++) {
            int rows = sizes[k / 7], cols = sizes[k % 7], src_ld = cols + 3, dst_ld = rows + 2;
            size_t bytes = dtype_bytes(type), n = (size_t)cols * (size_t)dst_ld;
            unsigned char *src = zeroed((size_t)rows * (size_t)src_ld, bytes), *dst = zeroed(n, bytes);
            memset(dst, 0xEE, n * bytes);
            for (int i = 0; i < rows * src_ld; i++)
                memcpy(src + i * bytes, &i, bytes); /* the low half when two bytes */
            ops_cpu.upload_transposed(&q, dst, dst_ld, src, src_ld, rows, cols, type);
            for (int c = 0; c < cols; c++) {
                for (int r = 0; r < dst_ld; r++) {
                    int want = r < rows ? r * src_ld + c : (int)0xEEEEEEEE;
                    assert_memory_equal(dst + ((size_t)c * dst_ld + r) * bytes, &want, bytes);
                }
            }
            free(src);
            free(dst);
        }
    }
}

static void check_noise(enum dtype type, int n)
{
    struct weight w[2] = {{.type = type, .rows = 1, .cols = n}, {.type = type, .rows = n, .cols = 1}};
    struct guarded a = guarded_open(n), b = guarded_open(n);
    double mean = 0, square = 0, low = 1e9, high = -1e9;
    w[0].data = a.data;
    w[1].data = b.data;
    for (int k = 0; k < 2; k++) { /* the same whoever makes it */
        struct queue q = cpu_queue(1 + k);
        ops_cpu.fill_noise(&q, &w[k], 42, 1.0f, 0.25f);
    }
    assert_memory_equal(a.data, b.data, (size_t)n * dtype_bytes(type));
    for (int i = 0; i < n; i++) {
        double x = dtype_load(w[0].data, type, i) - 1.0;
        assert_true(fabs(x) <= 0.25);
        mean += x / n;
        square += x * x / n;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    if (n >= 100000) { /* uniform: mean 0, variance scale^2 / 3 */
        assert_true(fabs(mean) < 0.002 && fabs(square - 0.0625 / 3) < 0.0005);
        assert_true(low < -0.249 && high > 0.249);
        struct queue q = cpu_queue(1);
        ops_cpu.fill_noise(&q, &w[1], 43, 1.0f, 0.25f);
        assert_memory_not_equal(a.data, b.data, (size_t)n * dtype_bytes(type));
    }
    guarded_close(&a);
    guarded_close(&b);
}

static void test_noise(void **unused)
{
    (void)unused;
    const int sizes[] = {0, 1, 2, 3, 4, 5, 77, 200001};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            if (sizes[k] > 0)
                check_noise(type, sizes[k]);
    struct queue q = cpu_queue(2);
    struct weight none = {.data = NULL, .type = DTYPE_BF16, .rows = 0, .cols = 5};
    ops_cpu.fill_noise(&q, &none, 1, 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
