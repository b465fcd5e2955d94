/* tests/ops/test_embed.c - operations that move or add whole rows. */
#include "tests/ops/check.h"

static const int dims[] = {0, 1, 2, 3, 17, 31, 64, 77};
#define N_DIMS (sizeof dims / sizeof dims[0])

static void test_embed(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    struct queue q = test_queue(2);
    const int32_t token[] = {0, 9, 10, 13, 22, 23, -1, 2000000000, 12};
    enum { N = sizeof token / sizeof token[0], FIRST = 10, ROWS = 13 };
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t d = 0; d < N_DIMS; d++) {
            struct weight table = random_weight(type, ROWS, dims[d], &state, 1);
            struct guarded out = guarded_open(N * (size_t)dims[d]);
            ops->embed(&q, out.data, token, &table, FIRST, N);
            for (size_t i = 0; i < out.n; i++) {
                int row = token[i / dims[d]] - FIRST, c = (int)(i % dims[d]);
                bool mine = row >= 0 && row < ROWS;
                assert_true(out.data[i] == (mine ? as_act((float)weight_at(&table, row, c)) : 0.0f));
            }
            guarded_close(&out);
            struct guarded none = guarded_open(0);
            ops->embed(&q, none.data, token, &table, FIRST, 0);
            table.rows = 0; /* a rank without rows gives zeros */
            struct guarded zeros = guarded_open(N * (size_t)dims[d]);
            ops->embed(&q, zeros.data, token, &table, FIRST, N);
            for (size_t i = 0; i < zeros.n; i++)
                assert_true(zeros.data[i] == 0.0f);
            guarded_close(&zeros);
            guarded_close(&none);
            free(table.data);
        }
    }
}

static void test_add_position(void **unused)
{
    (void)unused;
    uint64_t state = 4;
    struct queue q = test_queue(2);
    const int32_t pos[] = {0, 5, 10, 11, -3, 2147483647};
    enum { N = sizeof pos / sizeof pos[0], ROWS = 13, OFFSET = 2 };
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (size_t d = 0; d < N_DIMS; d++) {
            struct weight table = random_weight(type, ROWS, dims[d], &state, 1);
            struct guarded x = guarded_open(N * (size_t)dims[d]);
            random_fill(x.data, x.n, &state, 1);
            double *want = zeroed(x.n, sizeof *want);
            for (size_t i = 0; i < x.n; i++) {
                int64_t row = (int64_t)pos[i / dims[d]] + OFFSET;
                want[i] = x.data[i];
                if (row >= 0 && row < ROWS)
                    want[i] += weight_at(&table, (int)row, (int)(i % dims[d]));
            }
            ops->add_position(&q, x.data, &table, pos, OFFSET, N);
            close_enough("add_position", x.data, want, x.n, 1e-7, 1e-7);
            free(want);
            free(table.data);
            guarded_close(&x);
        }
    }
}

static void test_add(void **unused)
{
    (void)unused;
    const size_t sizes[] = {0, 1, 3, 31, 77, 200001};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint64_t state = 5;
        struct queue q = test_queue(2);
        struct guarded x = guarded_open(sizes[k]), y = guarded_open(sizes[k]);
        for (size_t i = 0; i < x.n; i++) {
            x.data[i] = as_act((float)random_int(&state, 1000));
            y.data[i] = as_act((float)i);
        }
        ops->add(&q, x.data, y.data, x.n);
        state = 5;
        for (size_t i = 0; i < x.n; i++)
            assert_true(x.data[i] == as_act(as_act((float)random_int(&state, 1000)) + as_act((float)i)));
        guarded_close(&x);
        guarded_close(&y);
    }
}

static void test_scale(void **unused)
{
    (void)unused;
    const size_t sizes[] = {0, 1, 3, 31, 80, 70001};
    for (int k = 0; k < 12; k++) {
        uint64_t state = 7;
        float cap = k % 2 ? 3.5f : 0;
        struct queue q = test_queue(2);
        struct guarded x = guarded_open(sizes[k / 2]);
        double *want = zeroed(x.n, sizeof *want);
        random_fill(x.data, x.n, &state, 8);
        for (size_t i = 0; i < x.n; i++) {
            double y = (double)x.data[i] * 1.7f;
            want[i] = k % 2 ? cap * tanh(y / cap) : y;
        }
        ops->scale(&q, x.data, 1.7f, cap, x.n);
        close_enough("scale", x.data, want, x.n, 1e-6, 1e-6);
        free(want);
        guarded_close(&x);
    }
}

static void test_gather_rows(void **unused)
{
    (void)unused;
    const int32_t row[] = {4, 0, 4, 2, -1};
    for (size_t d = 0; d < N_DIMS; d++) {
        uint64_t state = 6;
        struct queue q = test_queue(1);
        struct guarded x = guarded_open(5 * (size_t)dims[d]), out = guarded_open(5 * (size_t)dims[d]);
        random_fill(x.data, x.n, &state, 1);
        ops->gather_rows(&q, out.data, x.data, row, 5, dims[d]);
        for (size_t i = 0; i < out.n; i++) {
            int r = row[i / dims[d]];
            assert_true(out.data[i] == (r < 0 ? 0.0f : x.data[(size_t)r * dims[d] + i % dims[d]]));
        }
        ops->gather_rows(&q, out.data, x.data, row, 0, dims[d]);
        guarded_close(&x);
        guarded_close(&out);
    }
}

static void test_gather_columns(void **unused)
{
    (void)unused;
    enum { COLS = 2311 }; /* more than a device's block processes at once */
    static const int widths[] = {0, 1, 7, 31, COLS};
    int32_t order[COLS];
    for (size_t d = 0; d < N_DIMS; d++)
        for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++)
            for (int n_tokens = 0; n_tokens < 4; n_tokens++) {
                uint64_t state = 8;
                struct queue q = test_queue(2);
                size_t cols = (size_t)widths[k];
                struct guarded x = guarded_open((size_t)n_tokens * (size_t)dims[d]);
                struct guarded out = guarded_open((size_t)n_tokens * cols);
                random_fill(x.data, x.n, &state, 1);
                for (int c = 0; c < COLS; c++)
                    order[c] = c % 5 == 4 || dims[d] == 0 ? -1 : (int32_t)(random_bits(&state) % (uint32_t)dims[d]);
                ops->gather_columns(&q, out.data, x.data, order, n_tokens, dims[d], widths[k]);
                for (size_t i = 0; i < out.n; i++) {
                    int32_t from = order[i % cols];
                    assert_true(out.data[i] == (from < 0 ? 0.0f : x.data[i / cols * (size_t)dims[d] + (size_t)from]));
                }
                assert_int_equal(q.err.code, ERR_NONE);
                guarded_close(&x);
                guarded_close(&out);
            }
}

static void test_join_columns(void **unused)
{
    (void)unused;
    const int begin[][5] = {{0, 3, 3, 10, 11}, {0, 0, 0, 0, 0}, {0, 17, 34, 51, 51}};
    for (int k = 0; k < 3; k++) {
        for (int n_rows = 0; n_rows < 4; n_rows++) {
            struct queue q = test_queue(1);
            size_t n = (size_t)n_rows * (size_t)begin[k][4];
            struct guarded in = guarded_open(n), out = guarded_open(n);
            size_t at = 0;
            for (int r = 0; r < 4; r++) /* rank by rank: element = 1000 row + column */
                for (int i = 0; i < n_rows; i++)
                    for (int c = begin[k][r]; c < begin[k][r + 1]; c++)
                        in.data[at++] = as_act((float)(1000 * i + c));
            ops->join_columns(&q, out.data, in.data, begin[k], 4, n_rows);
            for (size_t i = 0; i < n; i++)
                assert_true(out.data[i] == as_act((float)(1000 * (i / begin[k][4]) + i % begin[k][4])));
            guarded_close(&in);
            guarded_close(&out);
        }
    }
}

static void test_feed(void **unused)
{
    (void)unused;
    enum { SLOTS = 3, LEN = 5 };
    struct guarded history = guarded_open(SLOTS * LEN), token = guarded_open(7);
    int32_t last[2 * SLOTS] = {70, 71, 72, 80, 81, 82}; /* the second half belongs to a draft model */
    struct sampler s = {
        .n_slots = SLOTS, .max_len = LEN, .vocab = 100, .history = (int32_t *)history.data, .last_token = last};
    const int32_t planned[] = {5, -1, 6, -1, 7, 8, -2}, slot[] = {0, 1, 2, 2, 3, -1, 1}, pos[] = {0, 4, 0, 1, 0, 0, 3};
    const int32_t want[] = {5, 71, 6, 72, 7, 8, 81};
    memset(history.data, 0, SLOTS * LEN * sizeof(int32_t));
    struct queue q = test_queue(1);
    ops->feed(&q, (int32_t *)token.data, planned, slot, pos, &s, 7);
    assert_memory_equal(token.data, want, sizeof want);
    const int32_t kept[SLOTS * LEN] = {5, 0, 0, 0, 0, 0, 0, 0, 81, 71, 6, 72, 0, 0, 0};
    assert_memory_equal(history.data, kept, sizeof kept); /* slot 3 and slot -1 were ignored */
    ops->feed(&q, (int32_t *)token.data, planned, slot, (int32_t[]){5, 5, -1, 5, 0, 0, 5}, &s, 7);
    assert_memory_equal(history.data, kept, sizeof kept); /* positions -1 and 5 were ignored */
    ops->feed(&q, (int32_t *)token.data, planned, slot, pos, &s, 0);
    guarded_close(&history);
    guarded_close(&token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed), cmocka_unit_test(test_add_position),   cmocka_unit_test(test_add),
        cmocka_unit_test(test_scale), cmocka_unit_test(test_gather_rows),    cmocka_unit_test(test_join_columns),
        cmocka_unit_test(test_feed),  cmocka_unit_test(test_gather_columns),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
