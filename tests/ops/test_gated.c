/* tests/ops/test_gated.c - products with gates and ups that are activated at once (ops->gated_product), compared with
 * sums in double, and their bits across batches. A backend need not have them for every size; Hopper GPUs have them for
 * most sizes of these tests. */
#include "tests/ops/hopper.h"

#define SAMPLES     9    /* tokens whose results are compared, at most */
#define LEAST       17   /* tokens from which Hopper GPUs have the operation, */
#define MOST        256  /* up to which they have it, */
#define LEAST_GATES 5896 /* with up to 132 multiprocessors */

/* Fails if a Hopper GPU lacks the operation for these sizes, although it should have it. */
static void check_taken(bool taken, int n_tokens, int gates)
{
    if (n_tokens >= LEAST && n_tokens <= MOST && gates >= LEAST_GATES && backend_act() != DTYPE_F32 && is_hopper() &&
        !taken)
        fail_msg("a Hopper GPU has no kernel for 2 x %d rows and %d tokens", gates, n_tokens);
}

/* Returns whether the backend has the operation for w and so many tokens; otherwise `out` is unchanged. */
static bool product(float *out, const float *x, const struct weight *w, int n_tokens)
{
    struct queue q = test_queue(1);
    bool done = ops->gated_product(&q, out, x, w, ACTIVATION_SILU, n_tokens);
    assert_int_equal(q.err.code, ERR_NONE);
    check_taken(done, n_tokens, w->rows / 2);
    return done;
}

static double dot(const float *x, const struct weight *w, int row)
{
    double sum = 0;
    for (int c = 0; c < w->cols; c++)
        sum += (double)x[c] * weight_at(w, row, c);
    return sum;
}

/* Token number i of those that are compared. */
static int sample(int i, int n_tokens)
{
    return n_tokens <= SAMPLES ? i : (int)((int64_t)(n_tokens - 1) * i / (SAMPLES - 1));
}

/* Compares some tokens' results with the activated products. */
static void compare_gated(const char *what, const float *out, const float *x, const struct weight *w, int n_tokens)
{
    size_t gates = (size_t)w->rows / 2, n = SAMPLES * gates;
    double *want = zeroed(n, sizeof *want);
    float *got = zeroed(n, sizeof *got);
    for (int i = 0; i < SAMPLES && i < n_tokens; i++) {
        int t = sample(i, n_tokens);
        memcpy(got + (size_t)i * gates, out + (size_t)t * gates, gates * sizeof *got);
        for (size_t f = 0; f < gates; f++) {
            double gate = dot(x + (size_t)t * (size_t)w->cols, w, (int)f);
            double up = dot(x + (size_t)t * (size_t)w->cols, w, (int)(gates + f));
            want[(size_t)i * gates + f] = gate / (1 + exp(-gate)) * up;
        }
    }
    close_enough(what, got, want, n, 2e-6 * sqrt(w->cols + 1.0), 2e-6);
    free(want);
    free(got);
}

/* Returns whether the backend has the operation for these sizes. */
static bool check_gated(int n_tokens, int gates, int cols)
{
    if (left_out())
        return false;
    uint64_t state = 5 + (uint64_t)n_tokens * 1000003 + (uint64_t)gates * 1009 + (uint64_t)cols;
    struct weight w = random_weight(backend_act(), 2 * gates, cols, &state, 3 / sqrtf((float)cols));
    struct guarded x = guarded_open((size_t)n_tokens * cols), out = guarded_open((size_t)n_tokens * gates);
    random_fill(x.data, x.n, &state, 1);
    memset(out.data, 0, out.n * sizeof *out.data);
    bool has = product(out.data, x.data, &w, n_tokens);
    if (has) {
        char what[120];
        snprintf(what, sizeof what, "2 x [%d,%d] x [%d]", gates, cols, n_tokens);
        compare_gated(what, out.data, x.data, &w, n_tokens);
    }
    free(w.data);
    guarded_close(&x);
    guarded_close(&out);
    return has;
}

static void test_sizes(void **unused)
{
    static const int tokens[] = {1, 17, 64, 65, 100, 128, 129, 192, 193, 256},
                     sizes[][2] = {{136, 64}, {5896, 8}, {8192, 200}, {14336, 72}, {17000, 136}, {25000, 64}};
    int n = 0;
    (void)unused;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            if (s == 0 || backend_is_device())
                n += check_gated(tokens[t], sizes[s][0], sizes[s][1]);
    if (backend_is_device())
        n += check_gated(4090, 8440, 72); /* several passes over the weights */
    printf("# the backend has the operation for %d of these sizes\n", n);
}

/* A token's bits do not depend on the number of tokens: a backend that has the operation for TOKENS has it for all. */
static void test_batches(void **unused)
{
    enum { TOKENS = 250, GATES = 6000, COLS = 264 };
    static const int counts[] = {1, 3, 16, 17, 32, 40, 64, 90, 128, 190};
    (void)unused;
    if (!backend_is_device())
        return;
    uint64_t state = 3;
    struct weight w = random_weight(backend_act(), 2 * GATES, COLS, &state, 0.1f);
    float *x = zeroed((size_t)TOKENS * COLS, sizeof *x), *all = zeroed((size_t)TOKENS * GATES, sizeof *all);
    float *some = zeroed((size_t)TOKENS * GATES, sizeof *some);
    random_fill(x, (size_t)TOKENS * COLS, &state, 1);
    if (product(all, x, &w, TOKENS))
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            int first = TOKENS - counts[i];
            if (counts[i] < LEAST && !backend_is_invariant())
                continue;
            assert_true(product(some, x + (size_t)first * COLS, &w, counts[i]));
            assert_memory_equal(some, all + (size_t)first * GATES, (size_t)counts[i] * GATES * sizeof *some);
        }
    free(x);
    free(all);
    free(some);
    free(w.data);
}

/* Only results of inputs that are not numbers are not numbers. */
static void test_nan_shows(void **unused)
{
    enum { TOKENS = 70, GATES = 6000, COLS = 264 };
    (void)unused;
    if (!backend_is_device())
        return;
    uint64_t state = 11;
    struct weight w = random_weight(backend_act(), 2 * GATES, COLS, &state, 1);
    float *x = zeroed((size_t)TOKENS * COLS, sizeof *x), *out = zeroed((size_t)TOKENS * GATES, sizeof *out);
    random_fill(x, (size_t)TOKENS * COLS, &state, 1);
    x[5 * COLS + COLS - 1] = NAN;
    if (product(out, x, &w, TOKENS))
        for (int i = 0; i < TOKENS * GATES; i++)
            assert_true(isnan(out[i]) == (i / GATES == 5));
    free(x);
    free(out);
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_nan_shows),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
