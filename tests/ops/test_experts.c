/* tests/ops/test_experts.c - mixtures of experts: who is chosen, by what share, in which order; the products of the
 * chosen ones; and that nobody else's weights are looked at. */
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

/* The correction chooses and does not count; of negative corrected scores, too, none of a group that is left out is
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

/* The group's two best together, or its best. */
static double group_score(const double *key, int g, int size, bool by_best)
{
    double best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; e++) {
        second = fmax(second, fmin(best, key[e]));
        best = fmax(best, key[e]);
    }
    return by_best ? best : best + second;
}

/* Scores are equal, so that the correction decides, and ties of experts and groups are many. */
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

/* Sigmoids that are all 1 choose nobody: the logits do; and the share of the one that is chosen is a factor of its
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

/* Logits are sums of small integers, which are exact: ties are many. */
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

/* The pairs by expert, made without the operation. */
static void sort_pairs(struct choice *c)
{
    int n = 0;
    for (int e = 0; e < c->how.n_experts; e++) {
        c->r.begin[e] = n;
        for (int p = 0; p < c->n_tokens * c->how.n_chosen; p++)
            if (c->r.expert[p] == e)
                c->r.pair[n++] = p;
    }
    c->r.begin[c->how.n_experts] = n;
}

/* Random routes; expert 1 takes no token. */
static struct choice random_choice(int n_tokens, int n_experts, int n_chosen, uint64_t *state)
{
    struct choice c = choice_open(n_tokens, n_experts, n_chosen, true);
    for (int t = 0; t < n_tokens; t++)
        for (int i = 0, e = random_int(state, n_experts); i < n_chosen; i++, e++) {
            e += e % n_experts == 1 && n_experts > n_chosen;
            c.r.expert[t * n_chosen + i] = e % n_experts;
            c.r.share[t * n_chosen + i] = random_float(state);
        }
    sort_pairs(&c);
    return c;
}

enum { EXPERTS = 5, CHOSEN = 3 };

/* Expert 1, which takes no token, is not read: its weights are not numbers. */
static struct weight some_experts(enum dtype type, int rows, int cols, uint64_t *state)
{
    struct weight w = random_weight(type, EXPERTS * rows, cols, state, 1);
    for (int i = 0; i < rows * cols; i++)
        dtype_store(w.data, type, (size_t)(rows * cols + i), NAN);
    return w;
}

/* Row o of pair p's expert, times x. */
static double said(const struct choice *c, const struct weight *w, const struct weight *bias, int p, int o,
                   const float *x)
{
    int e = c->r.expert[p], rows = w->rows / EXPERTS;
    double sum = bias != NULL ? weight_at(bias, e, o) : 0;
    for (int i = 0; i < w->cols; i++)
        sum += (double)x[i] * weight_at(w, e * rows + o, i);
    return sum;
}

/* A result, and how far off it may be: where activations have 16 bits, what it is made of may have been rounded on its
 * way. */
struct bound {
    double want, slack;
};

/* Half a unit in the last place of 1. */
static double rounding(void)
{
    return backend_act() == DTYPE_F32 ? 0 : backend_act() == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

static void within(const char *what, const struct guarded *got, const struct bound *b)
{
    for (size_t i = 0; i < got->n; i++)
        if (!(fabs(got->data[i] - b[i].want) <= b[i].slack))
            fail_msg("%s: element %zu is %.9g, expected %.9g within %.3g", what, i, (double)got->data[i], b[i].want,
                     b[i].slack);
}

static struct bound activated(enum activation kind, double gate, double up, int hidden)
{
    double g = gate, u = up, of_gate = 0;
    if (kind == ACTIVATION_SWIGLU) {
        g = fmin(gate, SWIGLU_LIMIT);
        u = fmax(fmin(up, SWIGLU_LIMIT), -SWIGLU_LIMIT) + 1;
        of_gate = g / (1 + exp(-1.702 * g));
    } else {
        of_gate = kind == ACTIVATION_SILU ? g / (1 + exp(-g)) : fmax(g, 0);
    }
    double parts = fabs(gate * u) + fabs(of_gate * up) + fabs(of_gate * u);
    return (struct bound){of_gate * u,
                          rounding() * (2 * parts + 1) + 2e-6 * sqrt(hidden + 1.0) * (1 + fabs(u) + fabs(of_gate))};
}

/* Their gates are far enough from 0 that the clamp counts: x is large. */
static void check_first(enum dtype type, enum activation kind, int n_tokens, int columns, int hidden)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)columns * 1009 + (uint64_t)hidden;
    struct queue q = test_queue(1 + columns % 2);
    struct choice c = random_choice(n_tokens, EXPERTS, CHOSEN, &state);
    struct weight w = some_experts(type, 2 * columns, hidden, &state);
    struct weight b = random_weight(type, EXPERTS, 2 * columns, &state, 1);
    const struct weight *bias = (n_tokens + columns) % 2 ? &b : NULL;
    int n_pairs = n_tokens * CHOSEN;
    struct guarded x = guarded_open((size_t)n_tokens * hidden), out = guarded_open((size_t)n_pairs * columns);
    struct guarded work = guarded_open(2 * out.n);
    struct bound *want = zeroed(out.n, sizeof *want);
    random_fill(x.data, x.n, &state, kind == ACTIVATION_SWIGLU ? 4 : 1);
    for (int p = 0; p < n_pairs; p++)
        for (int f = 0; f < columns; f++) {
            const float *from = x.data + (size_t)(p / CHOSEN) * hidden;
            bool pairs = kind == ACTIVATION_SWIGLU;
            double gate = said(&c, &w, bias, p, pairs ? 2 * f : f, from);
            double up = said(&c, &w, bias, p, pairs ? 2 * f + 1 : f + columns, from);
            want[p * columns + f] = activated(kind, gate, up, hidden);
        }
    ops->experts_first(&q, out.data, x.data, &w, bias, &c.r, &c.how, kind, work.data, n_tokens);
    assert_int_equal(q.err.code, ERR_NONE);
    char what[120];
    snprintf(what, sizeof what, "%s experts' %d columns of %d, %d tokens, activation %d", dtype_name(type), columns,
             hidden, n_tokens, (int)kind);
    within(what, &out, want);
    free(want);
    free(w.data);
    free(b.data);
    choice_close(&c);
    guarded_close(&x);
    guarded_close(&out);
    guarded_close(&work);
}

static void check_second(enum dtype type, int n_tokens, int dim, int columns, bool accumulate)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)dim * 1009 + (uint64_t)columns;
    struct queue q = test_queue(1 + dim % 2);
    struct choice c = random_choice(n_tokens, EXPERTS, CHOSEN, &state);
    struct weight w = some_experts(type, dim, columns, &state);
    struct weight b = random_weight(type, EXPERTS, dim, &state, 1);
    const struct weight *bias = (n_tokens + dim) % 2 ? &b : NULL;
    int n_pairs = n_tokens * CHOSEN;
    struct guarded x = guarded_open((size_t)n_pairs * columns), out = guarded_open((size_t)n_tokens * dim);
    struct guarded work = guarded_open((size_t)n_pairs * dim);
    struct bound *want = zeroed(out.n, sizeof *want);
    random_fill(x.data, x.n, &state, 1);
    if (accumulate)
        random_fill(out.data, out.n, &state, 1);
    for (int t = 0; t < n_tokens; t++)
        for (int o = 0; o < dim; o++) {
            struct bound *sum = &want[t * dim + o];
            sum->want = accumulate ? out.data[t * dim + o] : 0;
            sum->slack = 4e-6 * sqrt(columns + 1.0) + 2 * rounding() * (1 + fabs(sum->want));
            for (int p = t * CHOSEN; p < (t + 1) * CHOSEN; p++) {
                double part = c.r.share[p] * said(&c, &w, bias, p, o, x.data + (size_t)p * columns);
                sum->want += part;
                sum->slack += 2 * rounding() * fabs(part);
            }
        }
    ops->experts_second(&q, out.data, x.data, &w, bias, &c.r, &c.how, work.data, n_tokens, accumulate);
    char what[120];
    snprintf(what, sizeof what, "%s experts' %d rows of %d, %d tokens", dtype_name(type), dim, columns, n_tokens);
    within(what, &out, want);
    assert_int_equal(q.err.code, ERR_NONE);
    free(want);
    free(w.data);
    free(b.data);
    choice_close(&c);
    guarded_close(&x);
    guarded_close(&out);
    guarded_close(&work);
}

/* Sizes around those of tiles, steps and boxes of each way to compute them. */
static void test_products(void **unused)
{
    (void)unused;
    static const int tokens[] = {1, 2, 8, 13, 21, 150, 420};
    static const int inner[] = {0, 1, 8, 31, 72, 328}, outer[] = {0, 1, 8, 25, 66, 136};
    static const enum activation kinds[] = {ACTIVATION_SILU, ACTIVATION_SWIGLU, ACTIVATION_RELU};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
            for (size_t o = 0; o < sizeof outer / sizeof outer[0]; o++)
                for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
                    check_first(type, kinds[(o + i) % 3], tokens[t], outer[o], inner[i]);
                    check_second(type, tokens[t], outer[o], inner[i], (o + i) % 2);
                }
    for (int type = 0; type < DTYPE_COUNT; type++) /* tiles and waves of them that are not full */
        for (size_t t = 0; t < 5; t++) {
            check_first(type, kinds[t % 2], tokens[t], 280, 64);
            check_second(type, tokens[t], 2200, 40, false);
            check_second(type, tokens[t], 4400, 8, true);
        }
}

/* A token's routes and products have the bits that they have alone. */
static void test_invariance(void **unused)
{
    enum { MANY = 7, TOKENS = 15, HIDDEN = 136, COLUMNS = 24 };
    (void)unused;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint64_t state = 5;
        struct queue q = test_queue(2);
        struct weight router = random_weight(type, MANY, HIDDEN, &state, 1);
        struct weight in = random_weight(type, MANY * 2 * COLUMNS, HIDDEN, &state, 1);
        struct weight back = random_weight(type, MANY * HIDDEN, COLUMNS, &state, 1);
        struct choice all = choice_open(TOKENS, MANY, CHOSEN, true), one = choice_open(1, MANY, CHOSEN, true);
        float x[TOKENS * HIDDEN], y[TOKENS * CHOSEN * COLUMNS], own[CHOSEN * COLUMNS];
        float out[TOKENS * HIDDEN], alone[HIDDEN], work[TOKENS * CHOSEN * HIDDEN];
        random_fill(x, TOKENS * HIDDEN, &state, 1);
        ops->route(&q, &all.r, x, &router, NULL, &all.how, TOKENS);
        ops->experts_first(&q, y, x, &in, NULL, &all.r, &all.how, ACTIVATION_SILU, work, TOKENS);
        ops->experts_second(&q, out, y, &back, NULL, &all.r, &all.how, work, TOKENS, false);
        for (int t = 0; t < TOKENS; t++) {
            ops->route(&q, &one.r, x + t * HIDDEN, &router, NULL, &one.how, 1);
            ops->experts_first(&q, own, x + t * HIDDEN, &in, NULL, &one.r, &one.how, ACTIVATION_SILU, work, 1);
            ops->experts_second(&q, alone, own, &back, NULL, &one.r, &one.how, work, 1, false);
            assert_memory_equal(one.r.logits, all.r.logits + t * MANY, MANY * sizeof(float));
            assert_memory_equal(one.r.expert, all.r.expert + t * CHOSEN, CHOSEN * sizeof(int32_t));
            assert_memory_equal(one.r.share, all.r.share + t * CHOSEN, CHOSEN * sizeof(float));
            assert_memory_equal(own, y + t * CHOSEN * COLUMNS, sizeof own);
            assert_memory_equal(alone, out + t * HIDDEN, sizeof alone);
        }
        choice_close(&all);
        choice_close(&one);
        free(router.data);
        free(in.data);
        free(back.data);
    }
}

/* The same n_chosen experts, from `first` on, take all tokens; a single one leaves the last token to another. A weight
 * that is no number shows in the tokens of its expert only. */
static void check_uneven(int first, int n_chosen)
{
    enum { MANY = 40, TOKENS = 16, HIDDEN = 64, COLUMNS = 16, PAIRS = TOKENS * MANY };
    uint64_t state = 11;
    struct queue q = test_queue(2);
    struct choice c = choice_open(TOKENS, MANY, n_chosen, true);
    struct weight in = random_weight(DTYPE_BF16, MANY * 2 * COLUMNS, HIDDEN, &state, 1);
    struct weight back = random_weight(DTYPE_BF16, MANY * HIDDEN, COLUMNS, &state, 1);
    float x[TOKENS * HIDDEN], out[TOKENS * HIDDEN], *y = zeroed(PAIRS * COLUMNS, sizeof *y);
    float *work = zeroed(PAIRS * HIDDEN, sizeof *work);
    for (int p = 0; p < TOKENS * n_chosen; p++) {
        c.r.expert[p] = first + p % n_chosen;
        c.r.share[p] = 1.0f / (float)n_chosen;
    }
    if (n_chosen == 1)
        c.r.expert[TOKENS - 1] = (first + 7) % MANY;
    sort_pairs(&c);
    random_fill(x, TOKENS * HIDDEN, &state, 1);
    dtype_store(back.data, DTYPE_BF16, (size_t)first * HIDDEN * COLUMNS + 3 * COLUMNS, NAN);
    ops->experts_first(&q, y, x, &in, NULL, &c.r, &c.how, ACTIVATION_SILU, work, TOKENS);
    ops->experts_second(&q, out, y, &back, NULL, &c.r, &c.how, work, TOKENS, false);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        assert_int_equal(isnan(out[i]) != 0, i % HIDDEN == 3 && c.r.expert[i / HIDDEN * n_chosen] == first);
    free(y);
    free(work);
    free(in.data);
    free(back.data);
    choice_close(&c);
}

static void test_uneven_experts(void **unused)
{
    (void)unused;
    static const int chosen[] = {1, 2, 31, 32, 33, 40};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        check_uneven(0, chosen[i]);
        check_uneven(40 - chosen[i], chosen[i]);
    }
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

static void test_gate(void **unused)
{
    (void)unused;
    static const int tokens[] = {1, 3, 40}, columns[] = {1, 17, 260}, dims[] = {0, 1, 130};
    for (int t = 0; t < 3; t++)
        for (int c = 0; c < 3; c++)
            for (int d = 0; d < 3; d++)
                check_gate(c, tokens[t], columns[c], dims[d]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties),           cmocka_unit_test(test_shares),   cmocka_unit_test(test_nan_shows),
        cmocka_unit_test(test_routes),         cmocka_unit_test(test_products), cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_uneven_experts), cmocka_unit_test(test_gate),     cmocka_unit_test(test_sigmoids),
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_input),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
