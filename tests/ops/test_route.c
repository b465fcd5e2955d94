/* tests/ops/test_route.c - mixtures of experts: the chosen experts, their shares and their order. */
#include "tests/ops/choice.h"

/* With a router of one input, and x = 1, the weights are the logits. */
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

/* The correction affects only the choice; even if corrected scores are negative, no expert of an excluded group is
 * chosen. */
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

/* The bias of a corrected softmax affects only the choice; the sum of the chosen probabilities counts as `least` at
 * least. 40 and 300 experts: another number of them per lane of a GPU. */
static void test_corrected_softmax(void **unused)
{
    (void)unused;
    static const int n_experts[] = {5, 40, 300};
    for (size_t i = 0; i < sizeof n_experts / sizeof n_experts[0]; i++) {
        float logits[300], bias[300];
        double all = 0;
        for (int e = 0; e < n_experts[i]; e++) {
            logits[e] = e == 1 ? 3 : e == 4 ? 1 : -1;
            bias[e] = e == 1 ? -1 : e == 3 ? 0.5f : 0;
            all += exp(logits[e]);
        }
        for (int least = 0; least < 2; least++) {
            struct choice c = choice_open(1, n_experts[i], 2, true);
            c.how.corrected = true;
            c.how.least = least ? 0.8f : 1e-12f;
            route_biased(&c, logits, bias);
            assert_true(c.r.expert[0] == 3 && c.r.expert[1] == 4);
            double whole = least ? 0.8 * all : exp(-1) + exp(1);
            assert_true(fabs(c.r.share[0] - exp(-1) / whole) < 1e-6 && fabs(c.r.share[1] - exp(1) / whole) < 1e-6);
            logits[2] = NAN;
            route_biased(&c, logits, bias);
            assert_true(isnan(c.r.share[0]) && isnan(c.r.share[1]));
            logits[2] = -1;
            choice_close(&c);
        }
    }
}

/* Returns the sum of the group's two best scores, or its best. */
static double group_score(const double *key, int g, int size, bool by_best)
{
    double best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; e++) {
        second = fmax(second, fmin(best, key[e]));
        best = fmax(best, key[e]);
    }
    return by_best ? best : best + second;
}

/* Scores are equal, so that the correction decides, and ties of experts and groups are frequent. */
static void check_groups(int n_groups, int size, int n_kept, int n_chosen, bool by_best)
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
    c.how.groups_by_best = by_best;
    route_biased(&c, logits, bias);
    for (int e = 0; e < n; e++) {
        int n_before = 0, at = -1, g = e / size, better_groups = 0;
        double score = group_score(key, g, size, by_best);
        for (int o = 0; o < n_groups; o++)
            better_groups +=
                group_score(key, o, size, by_best) > score || (group_score(key, o, size, by_best) == score && o < g);
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
        for (int by_best = 0; by_best < 2; by_best++)
            check_groups(groups[i][0], groups[i][1], groups[i][2], groups[i][3], by_best);
    check_groups(6, 1, 3, 3, true);
}

/* Sigmoids that are all 1 do not decide the choice: the logits do; the chosen expert's share is a factor of its
 * input. */
static void test_input(void **unused)
{
    (void)unused;
    static const float logits[5] = {30, 40, 39, -3, 20};
    struct choice c = choice_open(1, 5, 1, false);
    c.how.sigmoid = c.how.by_logits = c.how.of_input = true;
    route_by(&c, logits);
    assert_true(c.r.expert[0] == 1 && c.r.share[0] == 1);
    choice_close(&c);
    enum { TOKENS = 3, DIM = 300 };
    uint64_t state = 4;
    float share[TOKENS] = {0.25f, 1, 0.75f};
    struct routes r = {.share = share};
    struct guarded x = guarded_open(TOKENS * DIM), out = guarded_open(TOKENS * DIM);
    struct queue q = test_queue(2);
    double want[TOKENS * DIM];
    random_fill(x.data, x.n, &state, 1);
    for (size_t i = 0; i < x.n; i++)
        want[i] = (double)share[i / DIM] * x.data[i];
    ops->weigh_input(&q, out.data, x.data, &r, TOKENS, DIM);
    close_enough("weigh_input", out.data, want, out.n, 1e-7, 1e-6);
    assert_true(share[0] == 1 && share[1] == 1 && share[2] == 1);
    guarded_close(&x);
    guarded_close(&out);
}

/* A NaN logit is noticed wherever it is: numbers come first, and the shares are NaN. */
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

/* Logits are sums of small integers, which are exact: ties are frequent. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties),   cmocka_unit_test(test_shares),   cmocka_unit_test(test_nan_shows),
        cmocka_unit_test(test_routes), cmocka_unit_test(test_sigmoids), cmocka_unit_test(test_corrected_softmax),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_input),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
