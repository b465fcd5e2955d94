/* tests/ops/test_experts.c - mixtures of experts: the products of the chosen experts, of all or of the held ones;
 * weights of other experts are not read. */
#include "tests/ops/choice.h"

/* Sorts the pairs by expert, independently of the operation. */
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

/* Makes random routes; expert 1 takes no token. */
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

/* The experts that this rank holds; pairs of others belong to another rank. */
struct held {
    int first, n;
};
static const struct held all_held = {0, EXPERTS};

static bool is_held(const struct routes *r, int pair)
{
    int e = r->expert[pair] - r->first_held;
    return e >= 0 && e < r->n_held;
}

/* Expert 1, which takes no token, must not be read: its weights are NaN. */
static struct weight some_experts(enum dtype type, struct held held, int rows, int cols, uint64_t *state)
{
    struct weight w = random_weight(type, held.n * rows, cols, state, 1);
    int at = 1 - held.first;
    for (int i = 0; i < rows * cols && at >= 0 && at < held.n; i++)
        dtype_store(w.data, type, (size_t)(at * rows * cols + i), NAN);
    return w;
}

/* Fills it with NaN, so that no stale element passes as a result. */
static void fill_nan(struct guarded *g)
{
    for (size_t i = 0; i < g->n; i++)
        g->data[i] = NAN;
}

/* Returns row o of pair p's expert times x. */
static double said(const struct choice *c, const struct weight *w, const struct weight *bias, int p, int o,
                   const float *x)
{
    int e = c->r.expert[p] - c->r.first_held, rows = w->rows / c->r.n_held;
    double sum = bias != NULL ? weight_at(bias, e, o) : 0;
    for (int i = 0; i < w->cols; i++)
        sum += (double)x[i] * weight_at(w, e * rows + o, i);
    return sum;
}

/* A result and its tolerance; below 0: any value is right. If activations have 16 bits, intermediate terms may have
 * been rounded. */
struct bound {
    double want, slack;
};

/* Returns half a unit in the last place of 1. */
static double rounding(void)
{
    return backend_act() == DTYPE_F32 ? 0 : backend_act() == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

static void within(const char *what, const struct guarded *got, const struct bound *b)
{
    for (size_t i = 0; i < got->n; i++)
        if (b[i].slack >= 0 && !(fabs(got->data[i] - b[i].want) <= b[i].slack))
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

/* x is large, so that gates are far enough from 0 for the clamp to matter. */
static void check_first(enum dtype type, struct held held, enum activation kind, int n_tokens, int columns, int hidden)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)columns * 1009 + (uint64_t)hidden;
    struct queue q = test_queue(1 + columns % 2);
    struct choice c = random_choice(n_tokens, EXPERTS, CHOSEN, &state);
    c.r.first_held = held.first, c.r.n_held = held.n;
    struct weight w = some_experts(type, held, 2 * columns, hidden, &state);
    struct weight b = random_weight(type, held.n, 2 * columns, &state, 1);
    const struct weight *bias = (n_tokens + columns) % 2 ? &b : NULL;
    int n_pairs = n_tokens * CHOSEN;
    struct guarded x = guarded_open((size_t)n_tokens * hidden), out = guarded_open((size_t)n_pairs * columns);
    struct guarded work = guarded_open(2 * out.n);
    struct bound *want = zeroed(out.n, sizeof *want);
    random_fill(x.data, x.n, &state, kind == ACTIVATION_SWIGLU ? 4 : 1);
    fill_nan(&out);
    for (int p = 0; p < n_pairs; p++)
        for (int f = 0; f < columns; f++) {
            want[p * columns + f] = (struct bound){0, -1};
            if (!is_held(&c.r, p))
                continue;
            const float *from = x.data + (size_t)(p / CHOSEN) * hidden;
            bool pairs = kind == ACTIVATION_SWIGLU;
            double gate = said(&c, &w, bias, p, pairs ? 2 * f : f, from);
            double up = said(&c, &w, bias, p, pairs ? 2 * f + 1 : f + columns, from);
            want[p * columns + f] = activated(kind, gate, up, hidden);
        }
    ops->experts_first(&q, out.data, x.data, &w, bias, &c.r, &c.how, kind, work.data, n_tokens);
    assert_int_equal(q.err.code, ERR_NONE);
    char what[120];
    snprintf(what, sizeof what, "%s experts' %d columns of %d, %d tokens, activation %d, experts %d..%d",
             dtype_name(type), columns, hidden, n_tokens, (int)kind, held.first, held.first + held.n - 1);
    within(what, &out, want);
    free(want);
    free(w.data);
    free(b.data);
    choice_close(&c);
    guarded_close(&x);
    guarded_close(&out);
    guarded_close(&work);
}

static void check_second(enum dtype type, struct held held, int n_tokens, int dim, int columns, bool accumulate)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)dim * 1009 + (uint64_t)columns;
    struct queue q = test_queue(1 + dim % 2);
    struct choice c = random_choice(n_tokens, EXPERTS, CHOSEN, &state);
    c.r.first_held = held.first, c.r.n_held = held.n;
    struct weight w = some_experts(type, held, dim, columns, &state);
    struct weight b = random_weight(type, held.n, dim, &state, 1);
    const struct weight *bias = (n_tokens + dim) % 2 ? &b : NULL;
    int n_pairs = n_tokens * CHOSEN;
    struct guarded x = guarded_open((size_t)n_pairs * columns), out = guarded_open((size_t)n_tokens * dim);
    struct guarded work = guarded_open((size_t)n_pairs * dim);
    struct bound *want = zeroed(out.n, sizeof *want);
    fill_nan(&x);
    for (int p = 0; p < n_pairs; p++)
        if (is_held(&c.r, p))
            random_fill(x.data + (size_t)p * columns, (size_t)columns, &state, 1);
    if (accumulate)
        random_fill(out.data, out.n, &state, 1);
    for (int t = 0; t < n_tokens; t++)
        for (int o = 0; o < dim; o++) {
            struct bound *sum = &want[t * dim + o];
            sum->want = accumulate ? out.data[t * dim + o] : 0;
            sum->slack = 4e-6 * sqrt(columns + 1.0) + 2 * rounding() * (1 + fabs(sum->want));
            for (int p = t * CHOSEN; p < (t + 1) * CHOSEN; p++) {
                if (!is_held(&c.r, p))
                    continue;
                double part = c.r.share[p] * said(&c, &w, bias, p, o, x.data + (size_t)p * columns);
                sum->want += part;
                sum->slack += 2 * rounding() * fabs(part);
            }
        }
    ops->experts_second(&q, out.data, x.data, &w, bias, &c.r, &c.how, work.data, n_tokens, dim, accumulate);
    char what[120];
    snprintf(what, sizeof what, "%s experts' %d rows of %d, %d tokens, experts %d..%d", dtype_name(type), dim, columns,
             n_tokens, held.first, held.first + held.n - 1);
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

/* Sizes around those of tiles, steps and boxes of each implementation. */
static void test_products(void **unused)
{
    (void)unused;
    static const int tokens[] = {1, 2, 8, 13, 28, 100, 420};
    static const int inner[] = {0, 1, 8, 31, 72, 328}, outer[] = {0, 1, 8, 25, 66, 136};
    static const enum activation kinds[] = {ACTIVATION_SILU, ACTIVATION_SWIGLU, ACTIVATION_RELU};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
            for (size_t o = 0; o < sizeof outer / sizeof outer[0]; o++)
                for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
                    check_first(type, all_held, kinds[(o + i) % 3], tokens[t], outer[o], inner[i]);
                    check_second(type, all_held, tokens[t], outer[o], inner[i], (o + i) % 2);
                }
    for (int type = 0; type < DTYPE_COUNT; type++) /* tiles and waves of tiles that are not full */
        for (size_t t = 0; t < 5; t++) {
            check_first(type, all_held, kinds[t % 2], tokens[t], 280, 64);
            check_second(type, all_held, tokens[t], 2200, 40, false);
            check_second(type, all_held, tokens[t], 4400, 8, true);
        }
}

/* This rank holds some experts, and whatever the others' pairs contain is not read: ranges that no token chooses, that
 * one token chooses, that are empty; in every implementation. */
static void test_held(void **unused)
{
    (void)unused;
    static const struct held ranges[] = {{0, 0}, {0, 1}, {1, 1}, {1, 3}, {4, 1}, {5, 0}, {2, 3}};
    static const int tokens[] = {1, 5, 14, 40, 180};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++)
            for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
                check_first(type, ranges[r], (r + t) % 2 ? ACTIVATION_SWIGLU : ACTIVATION_SILU, tokens[t], 24, 72);
                check_first(type, ranges[r], ACTIVATION_SILU, tokens[t], 9, 31);
                check_second(type, ranges[r], tokens[t], 136, 72, t % 2);
                check_second(type, ranges[r], tokens[t], 25, 31, t % 2 == 0);
            }
}

/* A token's routes and products have the same bits in a batch as alone. */
static void test_invariance(void **unused)
{
    enum { MANY = 7, TOKENS = 60, HIDDEN = 136, COLUMNS = 24 };
    const int n = backend_is_invariant() ? TOKENS : 15;
    (void)unused;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        uint64_t state = 5;
        struct queue q = test_queue(2);
        struct weight router = random_weight(type, MANY, HIDDEN, &state, 1);
        struct weight in = random_weight(type, MANY * 2 * COLUMNS, HIDDEN, &state, 1);
        struct weight back = random_weight(type, MANY * HIDDEN, COLUMNS, &state, 1);
        struct choice all = choice_open(n, MANY, CHOSEN, true), one = choice_open(1, MANY, CHOSEN, true);
        float x[TOKENS * HIDDEN], y[TOKENS * CHOSEN * COLUMNS], own[CHOSEN * COLUMNS];
        float out[TOKENS * HIDDEN], alone[HIDDEN], work[TOKENS * CHOSEN * HIDDEN];
        random_fill(x, TOKENS * HIDDEN, &state, 1);
        ops->route(&q, &all.r, x, &router, NULL, &all.how, n);
        ops->experts_first(&q, y, x, &in, NULL, &all.r, &all.how, ACTIVATION_SILU, work, n);
        ops->experts_second(&q, out, y, &back, NULL, &all.r, &all.how, work, n, HIDDEN, false);
        for (int t = 0; t < n; t++) {
            ops->route(&q, &one.r, x + t * HIDDEN, &router, NULL, &one.how, 1);
            ops->experts_first(&q, own, x + t * HIDDEN, &in, NULL, &one.r, &one.how, ACTIVATION_SILU, work, 1);
            ops->experts_second(&q, alone, own, &back, NULL, &one.r, &one.how, work, 1, HIDDEN, false);
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

/* The same n_chosen experts, from `first` on, take all tokens; a single one leaves the last token to another. A NaN
 * weight shows only in the tokens of its expert. */
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
    ops->experts_second(&q, out, y, &back, NULL, &c.r, &c.how, work, TOKENS, HIDDEN, false);
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
        cmocka_unit_test(test_products),       cmocka_unit_test(test_held), cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_uneven_experts), cmocka_unit_test(test_gate),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
