/* tests/ops/test_norm.c - LayerNorm and RMSNorm with the residual sum before them, and the activation functions. */
#include "tests/ops/check.h"

struct norm_case {
    enum norm_kind kind;
    enum dtype type;
    int n_tokens, dim;
    bool with_bias, with_add, in_place;
};

static void expect_norm(double *want, const float *sum, const struct norm_case *k, const struct weight *w,
                        const struct weight *b, double eps)
{
    for (int t = 0; t < k->n_tokens; t++) {
        const float *x = sum + (size_t)t * k->dim;
        double mean = 0, var = 0;
        for (int c = 0; c < k->dim && k->kind == NORM_LAYER; c++)
            mean += x[c] / (double)k->dim;
        for (int c = 0; c < k->dim; c++)
            var += (x[c] - mean) * (x[c] - mean) / k->dim;
        for (int c = 0; c < k->dim; c++)
            want[(size_t)t * k->dim + c] =
                (x[c] - mean) / sqrt(var + eps) * ((k->kind == NORM_RMS_OFFSET) + weight_at(w, 0, c)) +
                (b ? weight_at(b, 0, c) : 0);
    }
}

static void check_norm(struct norm_case k)
{
    if (left_out())
        return;
    uint64_t state = 100 + (uint64_t)k.dim;
    struct queue q = test_queue(2);
    struct weight w = random_weight(k.type, 1, k.dim, &state, 2), b = random_weight(k.type, 1, k.dim, &state, 1);
    size_t n = (size_t)k.n_tokens * (size_t)k.dim;
    struct guarded x = guarded_open(n), add = guarded_open(n), out = guarded_open(n);
    float *sum = zeroed(n, sizeof *sum);
    double *want = zeroed(n, sizeof *want);
    random_fill(x.data, n, &state, 3);
    random_fill(add.data, n, &state, 3);
    for (size_t i = 0; i < n; i++)
        sum[i] = k.with_add ? as_act(x.data[i] + add.data[i]) : x.data[i];
    const struct weight *bias = k.with_bias && k.kind == NORM_LAYER ? &b : NULL;
    expect_norm(want, sum, &k, &w, bias, 1e-5f);
    float *to = k.in_place ? x.data : out.data;
    ops->norm(&q, to, x.data, k.with_add ? add.data : NULL, k.kind, &w, bias, k.n_tokens, k.dim, 1e-5f);
    char what[80];
    snprintf(what, sizeof what, "norm %d %s [%d,%d]", k.kind, dtype_name(k.type), k.n_tokens, k.dim);
    close_enough(what, to, want, n, 1e-6, 1e-6);
    if (!k.in_place && n > 0)
        assert_memory_equal(x.data, sum, n * sizeof *sum);
    free(sum);
    free(want);
    free(w.data);
    free(b.data);
    guarded_close(&x);
    guarded_close(&add);
    guarded_close(&out);
}

static void test_norm(void **unused)
{
    (void)unused;
    const int dims[] = {0, 1, 2, 3, 17, 31, 64, 77, 1024}, tokens[] = {0, 1, 5, 70};
    for (int i = 0; i < 9 * 4 * 4 * DTYPE_COUNT * 8; i++)
        check_norm((struct norm_case){.dim = dims[i % 9],
                                      .n_tokens = tokens[i / 9 % 4],
                                      .kind = i / 36 % 4,
                                      .type = (enum dtype)(i / 144 % DTYPE_COUNT),
                                      .with_bias = i / 432 % 2,
                                      .with_add = i / 864 % 2,
                                      .in_place = i / 1728 % 2});
}

/* A large mean does not swallow the variance. */
static void test_norm_offset(void **unused)
{
    (void)unused;
    /* as large as 16 bits allow with a difference of 1 */
    const float base = backend_act() == DTYPE_F32 ? 100000.0f : backend_act() == DTYPE_F16 ? 1000.0f : 200.0f;
    float x[64], out[64], ones[64];
    double want[64];
    for (int i = 0; i < 64; i++) {
        x[i] = base + (float)(i % 2);
        ones[i] = 1;
        want[i] = (i % 2 - 0.5) / sqrt(0.25 + 1e-5f);
    }
    struct weight w = {.data = ones, .type = DTYPE_F32, .rows = 1, .cols = 64};
    struct queue q = test_queue(1);
    ops->norm(&q, out, x, NULL, NORM_LAYER, &w, NULL, 1, 64, 1e-5f);
    close_enough("offset", out, want, 64, 1e-6, 1e-6);
}

/* Without weights the scale is 1. */
static void test_norm_plain(void **unused)
{
    (void)unused;
    float x[4] = {1, -1, 3, -3}, out[4];
    struct queue q = test_queue(1);
    for (enum norm_kind kind = NORM_LAYER; kind <= NORM_RMS_OFFSET; kind++) {
        const double want[4] = {1 / sqrt(5), -1 / sqrt(5), 3 / sqrt(5), -3 / sqrt(5)};
        ops->norm(&q, out, x, NULL, kind, NULL, NULL, 1, 4, 0);
        close_enough("without weights", out, want, 4, 1e-6, 1e-6);
    }
}

static double formula(enum activation kind, double x)
{
    switch (kind) {
    case ACTIVATION_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * pow(x, 3))));
    case ACTIVATION_RELU:
        return fmax(x, 0);
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_SWIGLU: /* acts on clamped inputs */
    case ACTIVATION_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case ACTIVATION_XIELU:
        break;
    }
    return NAN;
}

static void check_activate(enum activation kind, bool gated, int n_tokens, int cols, bool in_place)
{
    if (left_out())
        return;
    uint64_t state = 200 + (uint64_t)cols;
    struct queue q = test_queue(2);
    size_t n = (size_t)n_tokens * (size_t)cols;
    struct guarded x = guarded_open(gated ? 2 * n : n), out = guarded_open(n);
    double *want = zeroed(n, sizeof *want);
    random_fill(x.data, x.n, &state, 10);
    if (x.n > 4 && !gated)
        memcpy(x.data, (float[]){0.0f, -200.0f, 200.0f, backend_act() == DTYPE_F16 ? -6e4f : -1e30f},
               4 * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        size_t t = i / cols, c = i % cols;
        const float *row = x.data + t * (gated ? 2 : 1) * cols;
        want[i] = formula(kind, row[c]) * (gated ? row[cols + c] : 1);
        if (kind == ACTIVATION_SWIGLU)
            want[i] = formula(kind, fmin(row[2 * c], 7)) * (1 + fmax(-7, fmin(row[2 * c + 1], 7)));
    }
    float *to = in_place ? x.data : out.data;
    ops->activate(&q, to, x.data, kind, gated, n_tokens, cols);
    close_enough("activate", to, want, n, 2e-6, 2e-6);
    free(want);
    guarded_close(&x);
    guarded_close(&out);
}

static void test_activate(void **unused)
{
    (void)unused;
    const int cols[] = {0, 1, 3, 17, 64, 77, 1000}, tokens[] = {0, 1, 5, 40};
    for (enum activation kind = ACTIVATION_GELU; kind <= ACTIVATION_QUICK_GELU; kind++)
        for (int c = 0; c < 7; c++)
            for (int t = 0; t < 4; t++)
                for (int mode = 0; mode < 3; mode++)
                    check_activate(kind, mode == 1, tokens[t], cols[c], mode == 2);
    for (int c = 0; c < 7; c++)
        for (int t = 0; t < 4; t++)
            check_activate(ACTIVATION_SWIGLU, true, tokens[t], cols[c], false);
    float x = NAN, out = 0;
    struct queue q = test_queue(1);
    for (enum activation kind = ACTIVATION_GELU; kind <= ACTIVATION_QUICK_GELU; kind++) {
        ops->activate(&q, &out, &x, kind, false, 1, 1);
        assert_true(isnan(out));
    }
}

static void check_xielu(struct xielu k, int n_tokens, int cols, bool in_place)
{
    uint64_t state = 300 + (uint64_t)cols;
    struct queue q = test_queue(2);
    size_t n = (size_t)n_tokens * (size_t)cols;
    struct guarded x = guarded_open(n), out = guarded_open(n);
    double *want = zeroed(n, sizeof *want);
    random_fill(x.data, n, &state, 10);
    if (n > 5)
        memcpy(x.data, (float[]){0.0f, -0.0f, -200.0f, 200.0f, -1e-7f}, 5 * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        double v = x.data[i], curved = v > 0 ? k.positive * v * v : k.negative * (expm1(fmin(v, k.eps)) - v);
        want[i] = curved + k.beta * v;
    }
    float *to = in_place ? x.data : out.data;
    ops->xielu(&q, to, x.data, k, n_tokens, cols);
    close_enough("xielu", to, want, n, 2e-6, 2e-6);
    free(want);
    guarded_close(&x);
    guarded_close(&out);
}

static void test_xielu(void **unused)
{
    (void)unused;
    const struct xielu constants[] = {{0.8f, 0.8f, 0.5f, -1e-6f}, {0.31f, 1.7f, 0.25f, -0.125f}, {1, 0, 0, 0}};
    const int cols[] = {0, 1, 3, 17, 64, 1000};
    for (int k = 0; k < 3; k++)
        for (int c = 0; c < 6; c++)
            for (int n_tokens = 0; n_tokens < 40; n_tokens += 13)
                for (int in_place = 0; in_place < 2; in_place++)
                    check_xielu(constants[k], n_tokens, cols[c], in_place);
    float x = NAN, out = 0;
    struct queue q = test_queue(1);
    ops->xielu(&q, &out, &x, constants[0], 1, 1);
    assert_true(isnan(out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),     cmocka_unit_test(test_norm_offset), cmocka_unit_test(test_norm_plain),
        cmocka_unit_test(test_activate), cmocka_unit_test(test_xielu),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
