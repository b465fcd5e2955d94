/* tests/ops/test_experts.c - mixtures of experts: who is chosen, by what share, in which order; the products of the chosen
 * ones; and that nobody else's weights are looked at. */
#include "tests/ops/check.h"

struct choice {
    struct routing how;
    struct routes r;
    int n_tokens;
};

static struct choice choice_open(int n_tokens, int n_experts, int n_chosen, bool normalised)
{
    size_t n = (size_t)n_tokens, pairs = n * (size_t)n_chosen;
    return (struct choice){.how = {.n_experts = n_experts, .n_chosen = n_chosen, .normalised = normalised, .scale = 1},
                           .n_tokens = n_tokens,
                           .r = {.logits = zeroed(n * (size_t)n_experts, sizeof(float)),
                                 .expert = zeroed(pairs, sizeof(int32_t)),
                                 .share = zeroed(pairs, sizeof(float)),
                                 .begin = zeroed((size_t)n_experts + 1, sizeof(int32_t)),
                                 .pair = zeroed(pairs, sizeof(int32_t))}};
}

static void choice_close(struct choice *c)
{
    free(c->r.logits);
    free(c->r.expert);
    free(c->r.share);
    free(c->r.begin);
    free(c->r.pair);
}

/* A router of one input says its weights: x is 1. */
static void route_biased(struct choice *c, const float *logits, const float *bias)
{
    struct queue q = test_queue(1);
    struct weight b = {.data = (void *)bias, .type = DTYPE_F32, .rows = 1, .cols = c->how.n_experts};
    struct weight w = {.data = zeroed((size_t)c->how.n_experts, sizeof(float)),
                       .type = DTYPE_F32,
                       .rows = c->how.n_experts,
                       .cols = 1};
    float one = 1;
    memcpy(w.data, logits, (size_t)c->how.n_experts * sizeof(float));
    ops->route(&q, &c->r, &one, &w, bias != NULL ? &b : NULL, &c->how, 1);
    assert_int_equal(q.err.code, ERR_NONE);
    free(w.data);
}

static void route_by(struct choice *c, const float *logits)
{
    route_biased(c, logits, NULL);
}

static void test_ties(void **unused)
{
    (void)unused;
    static const struct {
        float logits[6];
        int n_chosen, expert[6];
    } table[] = {
        {{0, 0, 0, 0, 0, 0}, 3, {0, 1, 2}},
        {{1, 3, 2, 3, 3, 1}, 3, {1, 3, 4}},
        {{1, 3, 2, 3, 3, 1}, 6, {1, 3, 4, 2, 0, 5}},
        {{-5, -1, -1, -7, -1, -1}, 2, {1, 2}},
        {{5, 4, 3, 2, 1, 0}, 1, {0}},
        {{0, 1, 2, 3, 4, 5}, 6, {5, 4, 3, 2, 1, 0}},
        {{0, -INFINITY, 1, -INFINITY, -INFINITY, -INFINITY}, 4, {2, 0, 1, 3}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct choice c = choice_open(1, 6, table[i].n_chosen, true);
        route_by(&c, table[i].logits);
        assert_memory_equal(c.r.expert, table[i].expert, (size_t)table[i].n_chosen * sizeof(int));
        choice_close(&c);
    }
}

static void test_shares(void **unused)
{
    (void)unused;
    static const float logits[4] = {0, 2, -1, 1};
    double part[4], all = 0;
    for (int e = 0; e < 4; e++)
        all += part[e] = exp(logits[e]);
    for (int normalised = 0; normalised < 2; normalised++) {
        struct choice c = choice_open(1, 4, 2, normalised);
        route_by(&c, logits);
        double whole = normalised ? part[1] + part[3] : all;
        assert_true(fabs(c.r.share[0] - part[1] / whole) < 1e-6 && fabs(c.r.share[1] - part[3] / whole) < 1e-6);
        choice_close(&c);
    }
    struct choice one = choice_open(1, 4, 1, true);
    route_by(&one, (float[]){-300, 5000, 4999, 80});
    assert_true(one.r.expert[0] == 1 && one.r.share[0] == 1);
    choice_close(&one);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* The correction chooses and does not count; of negative corrected scores, too, none of a group that is left out is chosen. */
static void test_sigmoids(void **unused)
{
    (void)unused;
    static const float logits[6] = {3, 2, 1, 0, -1, -2}, bias[6] = {-3, -3, -2, -2, -1.5f, -1.5f};
    for (int normalised = 0; normalised < 2; normalised++) {
        struct choice c = choice_open(1, 6, 3, normalised);
        c.how.sigmoid = true;
        c.how.scale = 2.5f;
        route_biased(&c, logits, bias);
        const int best[3] = {4, 2, 5}; /* -1.23, -1.27, -1.38; then -1.5 */
        assert_memory_equal(c.r.expert, best, sizeof best);
        double sum = sigmoid(-1) + sigmoid(1) + sigmoid(-2), whole = normalised ? sum : 1;
        for (int i = 0; i < 3; i++)
            assert_true(fabs(c.r.share[i] - 2.5 * sigmoid(logits[best[i]]) / whole) < 1e-6);
        c.how.n_groups = 3; /* -4.17, -2.77, -2.61 */
        c.how.n_kept = 1;
        c.how.n_chosen = 2;
        route_biased(&c, logits, bias);
        assert_true(c.r.expert[0] == 4 && c.r.expert[1] == 5);
        choice_close(&c);
    }
}

/* The group's two best together. */
static double group_score(const double *key, int g, int size)
{
    double best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; e++) {
        second = fmax(second, fmin(best, key[e]));
        best = fmax(best, key[e]);
    }
    return best + second;
}

/* Of equal scores, so that the correction decides, and ties of experts and groups are many. */
static void check_groups(int n_groups, int size, int n_kept, int n_chosen)
{
    enum { MOST = 256 };
    uint64_t state = 1 + (uint64_t)(n_groups * 1000 + size * 100 + n_kept * 10 + n_chosen);
    int n = n_groups * size;
    float logits[MOST] = {0}, bias[MOST];
    double key[MOST];
    for (int e = 0; e < n; e++) {
        bias[e] = (float)(random_int(&state, 9) - 6);
        key[e] = 0.5 + bias[e];
    }
    struct choice c = choice_open(1, n, n_chosen, true);
    c.how.sigmoid = true;
    c.how.n_groups = n_groups;
    c.how.n_kept = n_kept;
    route_biased(&c, logits, bias);
    for (int e = 0; e < n; e++) {
        int n_before = 0, at = -1, g = e / size, better_groups = 0;
        double score = group_score(key, g, size);
        for (int o = 0; o < n_groups; o++)
            better_groups += group_score(key, o, size) > score || (group_score(key, o, size) == score && o < g);
        for (int i = 0; i < n_chosen; i++) {
            int o = c.r.expert[i];
            at = o == e ? i : at;
            n_before += key[o] > key[e] || (key[o] == key[e] && o < e);
        }
        assert_int_equal(at, better_groups < n_kept && n_before < n_chosen ? n_before : -1);
    }
    choice_close(&c);
}

static void test_groups(void **unused)
{
    (void)unused;
    static const int groups[][4] = {{2, 2, 1, 2}, {4, 2, 2, 3},   {8, 32, 4, 8},
                                    {5, 7, 3, 6}, {32, 8, 9, 20}, {3, 33, 2, 5}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        check_groups(groups[i][0], groups[i][1], groups[i][2], groups[i][3]);
}

/* A logit that is no number is seen, wherever it is: numbers come first, and the shares are none. */
static void test_nan_shows(void **unused)
{
    (void)unused;
    for (int at = 0; at < 5; at++)
        for (int normalised = 0; normalised < 2; normalised++) {
            float logits[5] = {1, 2, 3, 4, 5};
            logits[at] = NAN;
            struct choice c = choice_open(1, 5, 2, normalised);
            route_by(&c, logits);
            assert_true(c.r.expert[0] != at && c.r.expert[1] != at);
            assert_true(isnan(c.r.share[0]) && isnan(c.r.share[1]));
            choice_close(&c);
        }
}

/* Of small integers, whose sums are exact: ties are many. */
static void check_routes(int n_tokens, int n_experts, int n_chosen, int cols)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)(n_tokens * 7919 + n_experts * 31 + n_chosen * 3 + cols);
    struct queue q = test_queue(2);
    struct choice c = choice_open(n_tokens, n_experts, n_chosen, n_tokens % 2);
    struct weight w = random_weight(DTYPE_BF16, n_experts, cols, &state, 1);
    struct weight bias = random_weight(DTYPE_F32, 1, n_experts, &state, 1);
    float *x = zeroed((size_t)n_tokens * (size_t)cols, sizeof *x);
    for (int e = 0; e < n_experts; e++)
        dtype_store(bias.data, bias.type, (size_t)e, (float)(e % 3));
    for (int i = 0; i < n_experts * cols; i++)
        dtype_store(w.data, w.type, (size_t)i, (float)(random_int(&state, 3) - 1));
    for (int i = 0; i < n_tokens * cols; i++)
        x[i] = (float)(random_int(&state, 3) - 1);
    ops->route(&q, &c.r, x, &w, n_experts % 2 ? &bias : NULL, &c.how, n_tokens);
    int32_t *count = zeroed((size_t)n_experts, sizeof *count);
    for (int t = 0; t < n_tokens; t++) {
        const float *logits = c.r.logits + (size_t)t * n_experts;
        const int32_t *expert = c.r.expert + (size_t)t * n_chosen;
        for (int e = 0; e < n_experts; e++) {
            double want = n_experts % 2 ? weight_at(&bias, 0, e) : 0;
            int better = 0, at = -1;
            for (int k = 0; k < cols; k++)
                want += (double)x[t * cols + k] * weight_at(&w, e, k);
            assert_true(logits[e] == (float)want);
            for (int o = 0; o < n_experts; o++)
                better += logits[o] > logits[e] || (logits[o] == logits[e] && o < e);
            for (int i = 0; i < n_chosen; i++)
                at = expert[i] == e ? i : at;
            assert_int_equal(at, better < n_chosen ? better : -1);
            count[e] += at >= 0;
        }
    }
    for (int e = 0, p = 0; e < n_experts; e++) {
        assert_int_equal(c.r.begin[e], p);
        for (int i = 0; i < count[e]; i++, p++) {
            assert_true(c.r.pair[p] >= 0 && c.r.pair[p] < n_tokens * n_chosen);
            assert_int_equal(c.r.expert[c.r.pair[p]], e);
            assert_true(i == 0 || c.r.pair[p] > c.r.pair[p - 1]);
        }
    }
    assert_int_equal(c.r.begin[n_experts], n_tokens * n_chosen);
    free(count);
    free(x);
    free(w.data);
    free(bias.data);
    choice_close(&c);
}

static void test_routes(void **unused)
{
    (void)unused;
    static const int experts[] = {1, 2, 5, 32, 33, 130}, tokens[] = {1, 2, 9, 70}, columns[] = {0, 1, 8, 19};
    for (size_t e = 0; e < sizeof experts / sizeof experts[0]; e++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
            for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
                check_routes(tokens[t], experts[e], 1, columns[c]);
                check_routes(tokens[t], experts[e], (experts[e] + 1) / 2, columns[c]);
                check_routes(tokens[t], experts[e], experts[e], columns[c]);
            }
    check_routes(3, ROUTING_MAX_EXPERTS, 40, 2);
}

/* Random routes, made without the operation; expert 1 takes no token. */
static struct choice random_choice(int n_tokens, int n_experts, int n_chosen, uint64_t *state)
{
    struct choice c = choice_open(n_tokens, n_experts, n_chosen, true);
    int n = 0;
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0, e = random_int(state, n_experts); i < n_chosen; i++, e++) {
            e += e % n_experts == 1 && n_experts > n_chosen;
            c.r.expert[t * n_chosen + i] = e % n_experts;
            c.r.share[t * n_chosen + i] = random_float(state);
        }
    for (int e = 0; e < n_experts; e++) {
        c.r.begin[e] = n;
        for (int p = 0; p < n_tokens * n_chosen; p++)
            if (c.r.expert[p] == e)
                c.r.pair[n++] = p;
    }
    c.r.begin[n_experts] = n;
    return c;
}

static void check_product(enum dtype type, int n_tokens, int rows, int cols, enum expert_rows x_rows)
{
    enum { EXPERTS = 5, CHOSEN = 3 };
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)rows * 1009 + (uint64_t)cols;
    struct queue q = test_queue(1 + rows % 2);
    bool with_bias = (n_tokens + rows) % 2;
    struct choice c = random_choice(n_tokens, EXPERTS, CHOSEN, &state);
    struct weight w = random_weight(type, EXPERTS * rows, cols, &state, 1);
    struct weight bias = random_weight(type, EXPERTS, rows, &state, 1);
    for (int i = 0; i < rows * cols; i++) /* who is not chosen is not read */
        dtype_store(w.data, type, (size_t)(rows * cols + i), NAN);
    int n_pairs = n_tokens * CHOSEN, share = x_rows == X_TOKENS ? CHOSEN : 1;
    struct guarded x = guarded_open((size_t)(n_pairs / share) * cols), out = guarded_open((size_t)n_pairs * rows);
    double *want = zeroed(out.n, sizeof *want);
    random_fill(x.data, x.n, &state, 1);
    for (int p = 0; p < n_pairs; p++)
        for (int o = 0; o < rows; o++) {
            want[(size_t)p * rows + o] = with_bias ? weight_at(&bias, c.r.expert[p], o) : 0;
            for (int i = 0; i < cols; i++)
                want[(size_t)p * rows + o] +=
                    (double)x.data[(size_t)(p / share) * cols + i] * weight_at(&w, c.r.expert[p] * rows + o, i);
        }
    ops->matmul_experts(&q, out.data, x.data, &w, with_bias ? &bias : NULL, &c.r, &c.how, x_rows, n_tokens);
    char what[120];
    snprintf(what, sizeof what, "%s experts of [%d,%d], %d tokens, x %d", dtype_name(type), rows, cols, n_tokens,
             (int)x_rows);
    close_enough(what, out.data, want, out.n, 2e-6 * sqrt(cols + 1.0), 1e-6);
    assert_int_equal(q.err.code, ERR_NONE);
    free(want);
    free(w.data);
    free(bias.data);
    choice_close(&c);
    guarded_close(&x);
    guarded_close(&out);
}

static void test_products(void **unused)
{
    (void)unused;
    static const int tokens[] = {1, 2, 13, 21, 150}, rows[] = {0, 1, 8, 25, 66}, columns[] = {0, 1, 8, 31, 72};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
                for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
                    check_product(type, tokens[t], rows[r], columns[c], (r + c) % 2 ? X_TOKENS : X_PAIRS);
}

/* A token's routes and products have the bits that they have alone. */
static void test_invariance(void **unused)
{
    enum { EXPERTS = 7, CHOSEN = 3, TOKENS = 15, COLS = 136, ROWS = 29 };
    (void)unused;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint64_t state = 5;
        struct queue q = test_queue(2);
        struct weight router = random_weight(type, EXPERTS, COLS, &state, 1);
        struct weight w = random_weight(type, EXPERTS * ROWS, COLS, &state, 1);
        struct choice all = choice_open(TOKENS, EXPERTS, CHOSEN, true), one = choice_open(1, EXPERTS, CHOSEN, true);
        float x[TOKENS * COLS], out[TOKENS * CHOSEN * ROWS], alone[CHOSEN * ROWS];
        random_fill(x, TOKENS * COLS, &state, 1);
        ops->route(&q, &all.r, x, &router, NULL, &all.how, TOKENS);
        ops->matmul_experts(&q, out, x, &w, NULL, &all.r, &all.how, X_TOKENS, TOKENS);
        for (int t = 0; t < TOKENS; t++) {
            ops->route(&q, &one.r, x + t * COLS, &router, NULL, &one.how, 1);
            ops->matmul_experts(&q, alone, x + t * COLS, &w, NULL, &one.r, &one.how, X_TOKENS, 1);
            assert_memory_equal(one.r.logits, all.r.logits + t * EXPERTS, EXPERTS * sizeof(float));
            assert_memory_equal(one.r.expert, all.r.expert + t * CHOSEN, CHOSEN * sizeof(int32_t));
            assert_memory_equal(one.r.share, all.r.share + t * CHOSEN, CHOSEN * sizeof(float));
            assert_memory_equal(alone, out + t * CHOSEN * ROWS, sizeof alone);
        }
        choice_close(&all);
        choice_close(&one);
        free(router.data);
        free(w.data);
    }
}

static void check_combine(int n_tokens, int n_chosen, int dim, bool accumulate)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)(n_tokens * 100 + n_chosen * 10 + dim);
    struct queue q = test_queue(1 + dim % 2);
    struct choice c = random_choice(n_tokens, n_chosen + 2, n_chosen, &state);
    size_t n = (size_t)n_tokens * (size_t)dim;
    struct guarded y = guarded_open(n * (size_t)n_chosen), out = guarded_open(n);
    double *want = zeroed(n, sizeof *want);
    random_fill(y.data, y.n, &state, 1);
    if (accumulate)
        random_fill(out.data, n, &state, 1);
    for (size_t i = 0; i < n; i++) {
        size_t t = i / (size_t)dim;
        want[i] = accumulate ? out.data[i] : 0;
        for (int k = 0; k < n_chosen; k++)
            want[i] += (double)c.r.share[t * n_chosen + k] * y.data[(t * n_chosen + k) * dim + i % dim];
    }
    ops->combine(&q, out.data, y.data, &c.r, &c.how, n_tokens, dim, accumulate);
    close_enough("combine", out.data, want, n, 2e-6, 2e-6);
    free(want);
    choice_close(&c);
    guarded_close(&y);
    guarded_close(&out);
}

static void check_gate(enum dtype type, int n_tokens, int cols, int dim)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)(n_tokens * 100 + cols * 10 + dim);
    struct queue q = test_queue(2);
    struct weight w = random_weight(type, 1, cols, &state, 1);
    struct guarded in = guarded_open((size_t)n_tokens * cols), x = guarded_open((size_t)n_tokens * dim);
    double *want = zeroed(x.n, sizeof *want);
    random_fill(in.data, in.n, &state, 1);
    random_fill(x.data, x.n, &state, 1);
    for (size_t i = 0; i < x.n; i++) {
        double sum = 0;
        for (int c = 0; c < cols; c++)
            sum += (double)in.data[i / dim * cols + c] * weight_at(&w, 0, c);
        want[i] = x.data[i] / (1 + exp(-sum));
    }
    ops->gate(&q, x.data, in.data, &w, n_tokens, dim);
    close_enough("gate", x.data, want, x.n, 2e-6, 4e-6);
    free(want);
    free(w.data);
    guarded_close(&in);
    guarded_close(&x);
}

static void test_combine_and_gate(void **unused)
{
    (void)unused;
    static const int tokens[] = {1, 3, 40}, chosen[] = {1, 2, 8}, dims[] = {0, 1, 130};
    for (int t = 0; t < 3; t++)
        for (int c = 0; c < 3; c++)
            for (int d = 0; d < 3; d++) {
                check_combine(tokens[t], chosen[c], dims[d], (t + c + d) % 2);
                check_gate(c, tokens[t], (const int[]){1, 17, 260}[c], dims[d]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_nan_shows),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_combine_and_gate),
        cmocka_unit_test(test_sigmoids),
        cmocka_unit_test(test_groups),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
