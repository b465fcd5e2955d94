/* tests/ops/test_qkv_store.c - rotation, per-head norms and storing into the paged cache, against formulas in
 * double. */
#include "tests/ops/attention_setup.h"

static void make_rope(struct rope *r, enum rope_layout layout, enum rope_growth growth, int dims)
{
    *r = (struct rope){.layout = layout,
                       .growth = growth,
                       .dims = dims,
                       .long_from = 30,
                       .attention_scaling = 1.25f,
                       .theta = 10000,
                       .factor = 4};
    for (int j = 0; j < dims / 2; j++) {
        r->inv_freq[j] = (float)pow(10000, -2.0 * j / dims);
        r->inv_freq_long[j] = 0.3f * r->inv_freq[j];
    }
}

static double rope_angle(const struct rope *r, int j, int pos, int n)
{
    double f = r->inv_freq[j];
    if (r->growth == ROPE_LONG && n > r->long_from)
        f = r->inv_freq_long[j];
    if (r->growth == ROPE_DYNAMIC && n > r->long_from) {
        double grown = (double)r->factor * n / r->long_from - (r->factor - 1);
        f = pow(r->theta * pow(grown, r->dims / (r->dims - 2.0)), -2.0 * j / r->dims);
    }
    return (double)((float)pos * (float)f); /* the angle is a float by definition */
}

static void test_rope_table(void **unused)
{
    (void)unused;
    const int32_t pos[] = {0, 1, 29, 30, 77, 5000, 131071}, len[] = {30, 31, 30, 31, 100, 5001, 131072};
    const int dims[] = {4, 6, 64, 128, 512};
    for (int growth = ROPE_FIXED; growth <= ROPE_LONG; growth++) {
        for (int k = 0; k < 5; k++) {
            struct rope r;
            make_rope(&r, ROPE_HALF, growth, dims[k]);
            struct guarded out = guarded_open(7 * (size_t)dims[k]);
            double *want = zeroed(out.n, sizeof *want);
            for (int t = 0; t < 7; t++)
                for (int j = 0; j < dims[k] / 2; j++) {
                    double angle = rope_angle(&r, j, pos[t], len[t]);
                    want[t * dims[k] + j] = 1.25 * cos(angle);
                    want[t * dims[k] + dims[k] / 2 + j] = 1.25 * sin(angle);
                }
            struct queue q = test_queue(2);
            ops->rope_table(&q, out.data, &r, pos, len, 7);
            /* one ulp of difference in the frequency moves a late angle by this much */
            close_enough("rope_table", out.data, want, out.n, growth == ROPE_DYNAMIC ? 2e-2 : 1e-6, 0);
            free(want);
            guarded_close(&out);
        }
    }
}

/* The treatment of heads before they are stored. */
enum head_mode {
    HEADS_PLAIN,
    HEADS_RMS,
    HEADS_OFFSET,
    HEADS_LAYER_EACH,
    HEADS_ONE_ROW,
    HEADS_UNIT,
    HEADS_ROTATED,
    HEAD_MODES
};
static const enum norm_kind norm_of_mode[] = {NORM_RMS,      NORM_RMS, NORM_RMS_OFFSET, NORM_LAYER,
                                              NORM_RMS_ONCE, NORM_RMS, NORM_RMS};

/* Norms head h of q or k; square: the mean square of the row that it is normed with, negative: its own. */
static void expect_norm(double *x, int dim, const struct head_norms *n, const struct weight *w, int h, double square)
{
    double mean = 0, sum = 0;
    for (int d = 0; d < dim && n->kind == NORM_LAYER; d++)
        mean += x[d] / dim;
    for (int d = 0; d < dim; d++)
        sum += (x[d] - mean) * (x[d] - mean) / dim;
    for (int d = 0; d < dim; d++)
        x[d] = (x[d] - mean) / sqrt((square < 0 ? sum : square) + 1e-6) *
               (n->unit ? 1 : (n->kind == NORM_RMS_OFFSET) + weight_at(w, 0, w->cols > dim ? h * dim + d : d));
}

static void expect_growth(double *x, int dim, const struct rope *r, int pos)
{
    for (int d = 0; d < dim && r->query_growth > 0; d++)
        x[d] *= 1 + (double)r->query_growth * log(1 + floor((double)(pos + r->query_shift) / r->query_period));
}

static void expect_rotation(double *x, int dim, const struct rope *r, int pos, int len, bool is_q)
{
    double y[512];
    memcpy(y, x, sizeof(double) * (size_t)dim);
    for (int j = 0; j < r->dims / 2; j++) {
        int a = r->layout == ROPE_HALF ? j : 2 * j, b = r->layout == ROPE_HALF ? j + r->dims / 2 : 2 * j + 1;
        double c = 1.25 * cos(rope_angle(r, j, pos, len)), sine = 1.25 * sin(rope_angle(r, j, pos, len));
        x[a] = y[a] * c - y[b] * sine;
        x[b] = y[b] * c + y[a] * sine;
    }
    if (is_q)
        expect_growth(x, dim, r, pos);
}

/* Makes the squares of a row with as many elements again on other ranks, whose squares are all 1. */
static void make_squares(float *squares, const struct setup *s, struct head_norms *n)
{
    const struct heads *h = &s->heads;
    struct queue q = test_queue(2);
    int n_q = h->n_heads * h->head_dim, n_k = h->n_kv_heads * h->head_dim, all = n_q + 2 * n_k;
    ops->head_squares(&q, squares, s->qkv.data, h, (struct kv_range){0, h->n_kv_heads}, s->batch.n_tokens);
    for (int t = 0; t < s->batch.n_tokens; t++) {
        double want[2] = {0, 0};
        for (int i = 0; i < n_q + n_k; i++)
            want[i >= n_q] += pow(s->qkv.data[(size_t)t * all + i], 2);
        for (int k = 0; k < 2; k++)
            assert_true(fabs(squares[2 * t + k] - want[k]) <= 1e-5 * want[k]);
        squares[2 * t] += (float)n_q;
        squares[2 * t + 1] += (float)n_k;
    }
    n->squares = squares;
    n->n_q = 2 * n_q;
    n->n_k = 2 * n_k;
}

static void expect_store(double *want, const struct setup *s, const struct rope *rope, const struct head_norms *n)
{
    const struct heads *h = &s->heads;
    int dim = h->head_dim, n_heads = h->n_heads + h->n_kv_heads, all = n_heads + h->n_kv_heads;
    for (size_t i = 0; i < s->qkv.n; i++)
        want[i] = s->qkv.data[i];
    for (int i = 0; i < s->batch.n_tokens * n_heads; i++) {
        int t = i / n_heads, k = i % n_heads;
        bool is_k = k >= h->n_heads;
        double *x = want + ((size_t)t * all + k) * dim;
        double square = n->squares ? (double)n->squares[2 * t + is_k] / (is_k ? n->n_k : n->n_q) : -1;
        if ((n->q || n->unit) && !n->rotated)
            expect_norm(x, dim, n, is_k ? n->k : n->q, is_k ? k - h->n_heads : k, square);
        if (rope)
            expect_rotation(x, dim, rope, s->pos[t], s->rope_len[t], !is_k && !n->rotated);
        if (n->rotated)
            expect_norm(x, dim, n, is_k ? n->k : n->q, 0, -1);
        if (rope && n->rotated && !is_k)
            expect_growth(x, dim, rope, s->pos[t]);
    }
}

/* k and v are in the cache as in the rows, and nothing else changed. */
static void expect_cache(const struct setup *s)
{
    const struct heads *h = &s->heads;
    int dim = h->head_dim, all = h->n_heads + 2 * h->n_kv_heads;
    size_t n_written = 0;
    for (int t = 0; t < s->batch.n_tokens; t++)
        for (int kv = 0; kv < h->n_kv_heads; kv++) {
            const float *k = s->qkv.data + ((size_t)t * all + h->n_heads + kv) * dim, *v = k + h->n_kv_heads * dim;
            size_t at = cache_at(s, s->slot[t], s->pos[t], kv);
            assert_memory_equal(s->k_cache.data + at, k, (size_t)dim * sizeof *k);
            assert_memory_equal(s->v_cache.data + at, v, (size_t)dim * sizeof *v);
            n_written += (size_t)dim;
        }
    for (size_t i = 0; i < s->k_cache.n; i++)
        n_written -= !isnan(s->k_cache.data[i]);
    assert_int_equal(n_written, 0);
}

/* With 16 bits a normed element is rounded before it is rotated, as in transformers: a small result may have the
 * rounding error of a large partner. */
static double rounding_before_turn(const double *want, size_t n, const struct head_norms *norms)
{
    double peak = 0;
    for (size_t i = 0; i < n && (norms->q != NULL || norms->unit); i++)
        peak = fmax(peak, fabs(want[i]));
    return backend_act() == DTYPE_F32 ? 0 : peak * 4 * (backend_act() == DTYPE_F16 ? 0x1p-12 : 0x1p-9);
}

static void check_store(struct heads heads, const struct rope *rope, enum dtype type, enum head_mode mode)
{
    if (left_out())
        return;
    const int len[SLOTS] = {17, 50, 3}, n_new[SLOTS] = {17, 1, 2};
    int dim = heads.head_dim;
    bool each = mode == HEADS_LAYER_EACH || mode == HEADS_ONE_ROW;
    struct setup s;
    setup_open(&s, heads, len, n_new);
    struct weight q_norm = random_weight(type, 1, each ? heads.n_heads * dim : dim, &s.state, 1);
    struct weight k_norm = random_weight(type, 1, each ? heads.n_kv_heads * dim : dim, &s.state, 1);
    struct head_norms norms = {.kind = norm_of_mode[mode], .eps = 1e-6f};
    float *squares = zeroed(2 * 200, sizeof *squares);
    norms.unit = mode == HEADS_UNIT;
    norms.rotated = mode == HEADS_ROTATED;
    if (mode != HEADS_PLAIN && mode != HEADS_UNIT) {
        norms.q = &q_norm;
        norms.k = &k_norm;
    }
    if (mode == HEADS_ONE_ROW)
        make_squares(squares, &s, &norms);
    double *want = zeroed(s.qkv.n, sizeof *want);
    expect_store(want, &s, rope, &norms);
    struct queue q = test_queue(2);
    float *table = zeroed(200 * 2 * ROPE_MAX_PAIRS, sizeof *table);
    if (rope)
        ops->rope_table(&q, table, rope, s.pos, s.rope_len, s.batch.n_tokens);
    ops->qkv_store(&q, s.qkv.data, s.k_cache.data, s.v_cache.data, &s.heads, &s.batch, rope, table, &norms);
    close_enough("qkv_store", s.qkv.data, want, s.qkv.n, 3e-6 + rounding_before_turn(want, s.qkv.n, &norms), 3e-6);
    expect_cache(&s);
    free(table);
    free(want);
    free(squares);
    free(q_norm.data);
    free(k_norm.data);
    setup_close(&s);
}

static void test_qkv_store(void **unused)
{
    (void)unused;
    const struct heads shapes[] = {{4, 4, 8, 0, 0, 1, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {8, 2, 18, 0, 0, 4, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {3, 2, 64, 3, 1, 2, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {0, 0, 16, 0, 0, 1, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 1, 77, 0, 0, 2, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {9, 3, 128, 0, 0, 3, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 1, 256, 0, 0, 2, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = 0; type < DTYPE_COUNT; type++)
            for (int k = 0; k < 6 * HEAD_MODES; k++) {
                struct rope rope;
                enum head_mode mode = (enum head_mode)(k / 6);
                int dims = k / 3 % 2 ? 8 : shapes[i].head_dim / 2 * 2;
                make_rope(&rope, k % 3 == 1 ? ROPE_HALF : ROPE_INTERLEAVED, ROPE_FIXED, dims);
                rope.query_growth = mode % 2 ? 0.3f : 0;
                rope.query_period = 7;
                rope.query_shift = mode % 3;
                check_store(shapes[i], k % 3 == 0 ? NULL : &rope, type, mode);
            }
}

/* An unchecked plan writes nothing outside the cache. */
static void test_bad_positions(void **unused)
{
    (void)unused;
    struct heads heads = {1, 1, 4, 0, 0, 1, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
    const int len[SLOTS] = {1, 1, 1}, n_new[SLOTS] = {1, 1, 1};
    struct setup s;
    setup_open(&s, heads, len, n_new);
    s.slot[0] = -1;
    s.pos[1] = -5;
    s.pos[2] = CACHED;
    struct queue q = test_queue(1);
    ops->qkv_store(&q, s.qkv.data, s.k_cache.data, s.v_cache.data, &heads, &s.batch, NULL, NULL,
                   &(struct head_norms){0});
    ops->attention(&q, s.out.data, s.qkv.data, s.k_cache.data, s.v_cache.data, &heads, &s.batch);
    for (size_t i = 0; i < s.k_cache.n; i++)
        assert_true(isnan(s.k_cache.data[i]) && isnan(s.v_cache.data[i]));
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_qkv_store),
        cmocka_unit_test(test_bad_positions),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
