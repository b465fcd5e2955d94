/* tests/ops/test_matmul.c - the matrix product compared with sums in double, and its bits across batches, threads and
 * slices. */
#include "tests/ops/check.h"

static const int sizes[] = {0, 1, 2, 3, 6, 15, 16, 17, 31, 33, 64, 77};
#define N_SIZES (sizeof sizes / sizeof sizes[0])

static void expect(double *want, const float *x, const struct weight *w, const struct weight *bias, const float *before,
                   int n_tokens)
{
    for (int t = 0; t < n_tokens; t++) {
        for (int o = 0; o < w->rows; o++) {
            double sum = bias ? weight_at(bias, 0, o) : 0;
            for (int i = 0; i < w->cols; i++)
                sum += (double)x[(size_t)t * w->cols + i] * weight_at(w, o, i);
            want[(size_t)t * w->rows + o] = sum + (before ? before[(size_t)t * w->rows + o] : 0);
        }
    }
}

static void check_product(enum dtype type, int n_tokens, int rows, int cols, bool with_bias, bool accumulate,
                          int n_threads)
{
    if (left_out())
        return;
    uint64_t seed = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)rows * 1009 + (uint64_t)cols, state = seed;
    struct queue q = test_queue(n_threads);
    struct weight w = random_weight(type, rows, cols, &state, 1), bias = random_weight(type, 1, rows, &state, 1);
    size_t n = (size_t)n_tokens * (size_t)rows;
    struct guarded x = guarded_open((size_t)n_tokens * cols), out = guarded_open(n);
    float *before = zeroed(n, sizeof *before);
    double *want = zeroed(n, sizeof *want);
    random_fill(x.data, x.n, &state, 1);
    random_fill(before, n, &state, 1);
    if (accumulate && n > 0)
        memcpy(out.data, before, n * sizeof *before);
    expect(want, x.data, &w, with_bias ? &bias : NULL, accumulate ? before : NULL, n_tokens);
    ops->matmul(&q, out.data, x.data, &w, with_bias ? &bias : NULL, n_tokens, accumulate);
    char what[120];
    snprintf(what, sizeof what, "%s [%d,%d] x [%d] seed %llu", dtype_name(type), rows, cols, n_tokens,
             (unsigned long long)seed);
    close_enough(what, out.data, want, n, 2e-6 * sqrt(cols + 1.0), 1e-6);
    assert_int_equal(q.err.code, ERR_NONE);
    free(w.data);
    free(bias.data);
    free(before);
    free(want);
    guarded_close(&x);
    guarded_close(&out);
}

static void test_sizes(void **unused)
{
    (void)unused;
    const int tokens[] = {0, 1, 2, 5, 13, 67};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t r = 0; r < N_SIZES; r++)
            for (size_t c = 0; c < N_SIZES; c++)
                for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
                    check_product(type, tokens[t], sizes[r], sizes[c], (r + t) % 2, (c + t) % 2, 1 + (r + c) % 2);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        check_product(type, 1, 50, 2051, true, true, 1);
        check_product(type, 70, 50, 1047, true, false, 2);
        check_product(type, 1030, 336, 272, true, true, 2); /* enough rows for cuBLASLt's offers to be compared */
        if (backend_is_device())
            check_product(type, 150, 4121, 72, true, true, 1); /* rows that are not stored as words */
    }
}

/* Sizes for which a device may divide the columns of 17 to 64 tokens among its multiprocessors. */
static void test_medium(void **unused)
{
    static const int each[][3] = {{17, 2056, 4096}, {20, 4232, 4096}, {24, 5120, 2880}, {33, 2048, 4160},
                                  {34, 4232, 4096}, {40, 2560, 2048}, {64, 2048, 2048}, {64, 2048, 4096}};
    (void)unused;
    if (!backend_is_device() || backend_is_invariant() || backend_act() == DTYPE_F32)
        return;
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        check_product(backend_act(), each[i][0], each[i][1], each[i][2], i % 2 == 0, i % 3 != 0, 1);
}

/* Small integers: every sum is exact in float, in any order. */
static void test_exact(void **unused)
{
    (void)unused;
    uint64_t state = 7;
    struct queue q = test_queue(2);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        enum { ROWS = 53, COLS = 700, TOKENS = 41 };
        struct weight w = random_weight(type, ROWS, COLS, &state, 1);
        struct guarded x = guarded_open(TOKENS * COLS), out = guarded_open(TOKENS * ROWS);
        for (size_t i = 0; i < x.n; i++)
            x.data[i] = (float)(random_int(&state, 17) - 8);
        for (size_t i = 0; i < ROWS * COLS; i++)
            dtype_store(w.data, type, i, (float)(random_int(&state, 17) - 8));
        double *want = zeroed(TOKENS * ROWS, sizeof *want);
        expect(want, x.data, &w, NULL, NULL, TOKENS);
        ops->matmul(&q, out.data, x.data, &w, NULL, TOKENS, false);
        close_enough("integers", out.data, want, out.n, 0, 0);
        free(want);
        free(w.data);
        guarded_close(&x);
        guarded_close(&out);
    }
}

/* Every f16 and bf16 number, subnormal ones too, reaches the sum unchanged. */
static void test_every_weight(void **unused)
{
    (void)unused;
    struct queue q = test_queue(1);
    for (int type = DTYPE_F16; type <= DTYPE_BF16; type++) {
        uint16_t *bits = malloc(65536 * sizeof *bits);
        float *out = malloc(65536 * 16 * sizeof *out), x[16] = {0};
        for (int i = 0; i < 65536; i++)
            bits[i] = (uint16_t)i;
        for (int lane = 0; lane < 16; lane += 5) {
            if (left_out())
                continue;
            memset(x, 0, sizeof x);
            x[lane] = 1;
            struct weight w = {.data = bits, .type = type, .rows = 4096, .cols = 16};
            for (int r = 0; r < 4096; r++) /* 0 * inf is NaN: such rows are not checked */
                for (int c = 0; c < 16; c++)
                    if (!isfinite(dtype_load(bits, type, (size_t)r * 16 + c)))
                        bits[r * 16 + c] = 0;
            ops->matmul(&q, out, x, &w, NULL, 1, false);
            for (int r = 0; r < 4096; r++)
                assert_true(out[r] == as_act((float)weight_at(&w, r, lane)));
        }
        free(bits);
        free(out);
    }
}

static void check_bits(const char *what, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: element %zu of %zu: %.9g is not %.9g", what, i, n, (double)a[i], (double)b[i]);
}

/* A row's bits do not depend on the batch, on the threads or on the rows beside it. cols: at most 1208 */
static void check_invariance(int cols)
{
    enum { ROWS = 61, TOKENS = 140 };
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint64_t state = 11;
        struct queue one = test_queue(1);
        struct weight w = random_weight(type, ROWS, cols, &state, 1), bias = random_weight(type, 1, ROWS, &state, 1);
        float *x = malloc(sizeof(float) * TOKENS * (size_t)cols), *alone = malloc(sizeof(float) * TOKENS * ROWS);
        random_fill(x, TOKENS * (size_t)cols, &state, 1);
        for (int t = 0; t < TOKENS; t++)
            ops->matmul(&one, alone + t * ROWS, x + (size_t)t * cols, &w, &bias, 1, false);
        for (int n = 2; n <= TOKENS; n = n < 33 ? n + 1 : n + 35) {
            if (!backend_is_invariant() && n > 16)
                break; /* larger batches use another algorithm */
            struct queue q = test_queue(1 + n % 3);
            int first = random_int(&state, TOKENS - n + 1);
            struct guarded out = guarded_open((size_t)n * ROWS);
            ops->matmul(&q, out.data, x + (size_t)first * cols, &w, &bias, n, false);
            check_bits("batch", out.data, alone + first * ROWS, out.n);
            guarded_close(&out);
        }
        struct weight slice = w; /* rows 7.. alone */
        slice.data = (char *)w.data + 7 * (size_t)cols * dtype_bytes(type);
        slice.rows = ROWS - 7;
        struct guarded out = guarded_open(ROWS - 7);
        ops->matmul(&one, out.data, x, &slice, NULL, 1, false);
        float *whole = malloc(sizeof(float) * ROWS);
        ops->matmul(&one, whole, x, &w, NULL, 1, false);
        check_bits("slice", out.data, whole + 7, out.n);
        guarded_close(&out);
        free(whole);
        free(x);
        free(alone);
        free(w.data);
        free(bias.data);
    }
}

static void test_invariance(void **unused)
{
    (void)unused;
    check_invariance(1203);
    check_invariance(1208); /* aligned rows */
}

/* The same for so many rows and tokens that a device takes each kind of tiles at least once, with a residual. */
static void check_wide_invariance(int rows, int cols)
{
    enum { TOKENS = 300 };
    const int tokens[] = {2, 5, 8, 13, 30, 60, 65, 128, 200, TOKENS};
    uint64_t state = 13;
    struct queue q = test_queue(1);
    struct weight w = random_weight(backend_act(), rows, cols, &state, 1);
    float *x = malloc(sizeof(float) * TOKENS * (size_t)cols), *alone = zeroed(TOKENS * (size_t)rows, sizeof *alone);
    random_fill(x, TOKENS * (size_t)cols, &state, 1);
    for (int t = 0; t < TOKENS; t++)
        ops->matmul(&q, alone + (size_t)t * rows, x + (size_t)t * cols, &w, NULL, 1, true);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        int first = TOKENS - tokens[i];
        struct guarded out = guarded_open((size_t)tokens[i] * rows);
        memset(out.data, 0, out.n * sizeof *out.data);
        ops->matmul(&q, out.data, x + (size_t)first * cols, &w, NULL, tokens[i], true);
        check_bits("many rows", out.data, alone + (size_t)first * rows, out.n);
        guarded_close(&out);
    }
    free(x);
    free(alone);
    free(w.data);
}

static void test_wide_invariance(void **unused)
{
    (void)unused;
    const int rows[] = {2072, 4120, 6168, 9000};
    if (!backend_is_device() || !backend_is_invariant())
        return;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        check_wide_invariance(rows[r], 320);
        check_wide_invariance(rows[r], 272); /* columns that are not whole chunks of 64 */
    }
}

static void test_nan_shows(void **unused)
{
    (void)unused;
    float w_data[40], x[40], out[1];
    for (int at = 0; at < 40; at++) {
        for (int i = 0; i < 40; i++)
            w_data[i] = x[i] = 1;
        x[at] = NAN;
        struct weight w = {.data = w_data, .type = DTYPE_F32, .rows = 1, .cols = 40};
        struct queue q = test_queue(1);
        ops->matmul(&q, out, x, &w, NULL, 1, false);
        assert_true(isnan(out[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_medium),     cmocka_unit_test(test_exact),
        cmocka_unit_test(test_every_weight), cmocka_unit_test(test_invariance), cmocka_unit_test(test_wide_invariance),
        cmocka_unit_test(test_nan_shows),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
