/* tests/ops/test_states.c - operations on the states of tokens (kernels/states.h). */
#include "kernels/states.h"
#include "tests/ops/check.h"
#include "tests/support/arguments.h"

static const int dims[] = {0, 1, 2, 3, 17, 31, 64, 77};
#define N_DIMS (sizeof dims / sizeof dims[0])

/* ---- the backend's own operations, on copies of the arguments ---- */

static const struct state_ops *table(void)
{
    return state_ops_of(backend_real_ops());
}

static void finish(void)
{
    const char *wrong = arguments_return();
    assert_int_equal(backend_real_queue()->err.code, ERR_NONE);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

static void *act(const char *name, const void *x, size_t n)
{
    return argument_data(argument_act(name, x, n, ARGUMENT_READ));
}

static void *ints(const char *name, const int32_t *x, size_t n)
{
    return argument_data(argument(name, x, n, sizeof *x, ARGUMENT_READ));
}

static void put_rows(void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    struct argument *to = argument_act("result", out, 6 * (size_t)dim, ARGUMENT_PARTLY);
    for (int i = 0; i < n_rows; i++)
        if (row[i] >= 0)
            argument_may_change(to, (size_t)row[i] * (size_t)dim, (size_t)dim);
    table()->scatter_rows(backend_real_queue(), argument_data(to), act("x", x, (size_t)n_rows * (size_t)dim),
                          ints("rows", row, (size_t)n_rows), n_rows, dim);
    finish();
}

static void put_columns(void *out, int out_dim, int first, const void *x, int x_dim, int x_first, const void *add,
                        int n_tokens, int cols)
{
    size_t n = (size_t)n_tokens, read = n * (size_t)x_dim;
    struct argument *to = argument_act("result", out, n * (size_t)out_dim, ARGUMENT_PARTLY);
    for (size_t t = 0; t < n; t++)
        argument_may_change(to, t * (size_t)out_dim + (size_t)first, (size_t)cols);
    table()->copy_columns(backend_real_queue(), argument_data(to), out_dim, first, act("x", x, read), x_dim, x_first,
                          act("addend", add, read), n_tokens, cols);
    finish();
}

static void places(int32_t *place, const int32_t *planned, const struct batch *b, int n_places, int n_slots)
{
    struct batch d = *b;
    size_t n = (size_t)b->n_tokens;
    d.slot = ints("slots", b->slot, n);
    d.pos = ints("positions", b->pos, n);
    d.block_table = ints("block table", b->block_table, (size_t)n_slots * (size_t)b->blocks_per_slot);
    table()->find_places(backend_real_queue(),
                         argument_data(argument("places", place, n, sizeof *place, ARGUMENT_MADE)),
                         ints("planned tokens", planned, n), &d, n_places);
    finish();
}

/* ---- tests ---- */

static void test_scatter_rows(void **unused)
{
    (void)unused;
    const int32_t row[] = {4, 0, -1, 2};
    for (size_t d = 0; d < N_DIMS; d++) {
        uint64_t state = 6;
        struct guarded x = guarded_open(4 * (size_t)dims[d]), out = guarded_open(6 * (size_t)dims[d]);
        random_fill(x.data, x.n, &state, 1);
        for (size_t i = 0; i < out.n; i++)
            out.data[i] = 7;
        put_rows(out.data, x.data, row, 4, dims[d]);
        for (size_t i = 0; i < out.n; i++) {
            int from = -1;
            for (int k = 0; k < 4; k++)
                from = row[k] == (int)(i / dims[d]) ? k : from;
            assert_true(out.data[i] == (from < 0 ? 7.0f : x.data[(size_t)from * dims[d] + i % dims[d]]));
        }
        put_rows(out.data, x.data, row, 0, dims[d]);
        guarded_close(&x);
        guarded_close(&out);
    }
}

static void test_copy_columns(void **unused)
{
    (void)unused;
    enum { N = 3 };
    static const int firsts[] = {0, 5, 8, 64};
    for (size_t d = 0; d < N_DIMS; d++)
        for (int k = 0; k < 8; k++) {
            uint64_t state = 9;
            int cols = dims[d], first = firsts[k / 2], dim = cols + first + 8 * (k / 2), x_dim = cols + 16;
            struct guarded x = guarded_open((size_t)N * x_dim), add = guarded_open((size_t)N * x_dim);
            struct guarded out = guarded_open((size_t)N * dim);
            random_fill(x.data, x.n, &state, 1);
            random_fill(add.data, add.n, &state, 1);
            for (size_t i = 0; i < out.n; i++)
                out.data[i] = 7;
            put_columns(out.data, dim, first, x.data, x_dim, 8, k % 2 ? add.data : NULL, N, cols);
            for (size_t i = 0; i < out.n; i++) {
                int t = (int)i / dim, c = (int)i % dim - first;
                size_t from = (size_t)t * x_dim + 8 + (size_t)c;
                float want = c < 0 || c >= cols ? 7 : k % 2 ? as_act(x.data[from] + add.data[from]) : x.data[from];
                assert_true(out.data[i] == want);
            }
            guarded_close(&x);
            guarded_close(&add);
            guarded_close(&out);
        }
}

static void test_find_places(void **unused)
{
    (void)unused;
    enum { N = 7, SLOTS = 3, PER_SLOT = 4 };
    static const int32_t planned[N] = {1, 2, -1, 4, -1, 6, 7}, slot[N] = {0, 2, 1, -1, -1, 2, 0},
                         pos[N] = {0, 33, 63, 5, 5, 63, 64};
    static const int32_t paged[N] = {11 * KV_BLOCK_TOKENS,
                                     31 * KV_BLOCK_TOKENS + 33 % KV_BLOCK_TOKENS,
                                     24 * KV_BLOCK_TOKENS + 15,
                                     -1,
                                     -1,
                                     34 * KV_BLOCK_TOKENS + 15,
                                     -1};
    int32_t table[SLOTS * PER_SLOT];
    for (int i = 0; i < SLOTS * PER_SLOT; i++)
        table[i] = 10 * (i / PER_SLOT + 1) + i % PER_SLOT + 1;
    table[2 * PER_SLOT + 2] = 31;
    struct guarded place = guarded_open(N);
    const struct batch b = {.n_tokens = N,
                            .token = planned,
                            .slot = slot,
                            .pos = pos,
                            .rope_len = pos,
                            .block_table = table,
                            .blocks_per_slot = PER_SLOT};
    places((int32_t *)place.data, NULL, &b, 900, SLOTS);
    assert_memory_equal(place.data, paged, sizeof paged);
    places((int32_t *)place.data, planned, &b, 900, SLOTS);
    for (int t = 0; t < N; t++)
        assert_int_equal(((int32_t *)place.data)[t], t == 2 ? 901 : paged[t]);
    guarded_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scatter_rows), cmocka_unit_test(test_copy_columns),
                                       cmocka_unit_test(test_find_places)};
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
