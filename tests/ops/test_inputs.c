/* tests/ops/test_inputs.c - products of quantised weights whose inputs are quantised, too (kernels/inputs.h): compared
 * with sums in double of the numbers that codes and scales represent. */
#include "kernels/inputs.h"
#include "tests/ops/check.h"
#include "tests/support/arguments.h"

#include <limits.h>

/* Codes of E4M3 with a scale for each row, or for blocks of INPUT_BLOCK x INPUT_BLOCK. */
static struct weight random_codes(const struct input_form *f, int rows, int cols, uint64_t *state)
{
    const struct code_form form = {.codes = CODES_E4M3, .group = f->group};
    struct weight w = {.data = malloc(code_bytes(&form, rows, cols)), .rows = rows, .cols = cols, .form = form};
    int groups = code_groups(&form, cols);
    uint8_t *data = w.data;
    float *scales = (float *)(void *)(data + code_scales_at(&form, rows, cols));
    assert_non_null(data);
    for (size_t i = 0; i < (size_t)rows * code_pitch(&form, cols); i++) {
        data[i] = (uint8_t)random_bits(state);
        data[i] ^= (data[i] & 0x7f) == 0x7f;
    }
    for (int i = 0; i < rows * groups; i++)
        scales[i] = f->blocks && i / groups % INPUT_BLOCK > 0
                        ? scales[i - groups]
                        : (0.75f + 0.25f * random_float(state)) / 130 / sqrtf((float)cols);
    return w;
}

/* Computes the numbers that a row of inputs becomes after quantisation. */
static void quantised(double *number, const struct input_form *f, const float *row, int cols)
{
    for (int begin = 0, end; begin < cols; begin = end) {
        float largest = 0;
        end = f->group < cols - begin ? begin + f->group : cols;
        for (int c = begin; c < end; c++)
            largest = fmaxf(largest, fabsf(row[c]));
        largest = f->most > 0 ? fminf(largest, f->most) : largest;
        float scale = f->scale > 0 ? f->scale : largest / 448.0f;
        scale = scale > 0 ? scale : 1;
        for (int c = begin; c < end; c++)
            number[c] = (double)code_value(CODES_E4M3, float_to_e4m3(row[c] / scale)) * (double)scale;
    }
}

/* Computes it as a layer does: by the backend's operations, or within its product. */
static void product(struct queue *q, float *out, float *x, struct weight *w, const struct weight *bias,
                    const struct input_form *f, int n_tokens, bool accumulate)
{
    const struct input_ops *inputs = backend_real_ops()->inputs;
    float *largest = zeroed((size_t)n_tokens * (size_t)f->n_groups, sizeof *largest);
    w->inputs = f;
    if (inputs->quantise != NULL) {
        inputs->find_largest(q, largest, x, f, n_tokens, w->cols);
        inputs->quantise(q, x, x, largest, f, n_tokens, w->cols);
    }
    ops->matmul(q, out, x, w, bias, n_tokens, accumulate);
    free(largest);
}

static double *expected(const float *x, const float *before, const struct weight *w, const struct weight *bias,
                        const struct input_form *f, int n_tokens)
{
    double *want = zeroed((size_t)n_tokens * (size_t)w->rows, sizeof *want);
    double *number = zeroed((size_t)w->cols, sizeof *number);
    double *weights = zeroed((size_t)w->rows * (size_t)w->cols, sizeof *weights);
    for (int i = 0; i < w->rows * w->cols; i++)
        weights[i] = code_element(w->data, &w->form, w->rows, w->cols, i / w->cols, i % w->cols);
    for (int t = 0; t < n_tokens; t++) {
        quantised(number, f, x + (size_t)t * w->cols, w->cols);
        for (int r = 0; r < w->rows; r++) {
            size_t i = (size_t)t * (size_t)w->rows + (size_t)r;
            want[i] = (before != NULL ? before[i] : 0) + (bias != NULL ? weight_at(bias, 0, r) : 0);
            for (int c = 0; c < w->cols; c++)
                want[i] += number[c] * weights[(size_t)r * (size_t)w->cols + (size_t)c];
        }
    }
    free(number);
    free(weights);
    return want;
}

/* Fills rows of many magnitudes, and one with zeros. */
static void fill_rows(float *x, int n_tokens, int cols, uint64_t *state)
{
    for (int t = 0; t < n_tokens; t++)
        random_fill(x + (size_t)t * cols, (size_t)cols, state, t == 7 ? 0 : 0.25f * (float)(1 + t % 5));
}

static bool takes(const struct weight *w, const struct input_form *f)
{
    return backend_real_ops()->inputs->refusal(backend_real_queue(), w, f, false) == NULL;
}

static void check_product(struct input_form f, int n_tokens, int rows, int cols, bool with_bias, bool accumulate)
{
    if (left_out())
        return;
    uint64_t state = 3 + (uint64_t)n_tokens * 1000003 + (uint64_t)rows * 1009 + (uint64_t)cols;
    struct queue q = test_queue(2);
    struct weight w = random_codes(&f, rows, cols, &state), bias = random_weight(backend_act(), 1, rows, &state, 1);
    struct guarded x = guarded_open((size_t)n_tokens * cols), out = guarded_open((size_t)n_tokens * rows);
    fill_rows(x.data, n_tokens, cols, &state);
    if (accumulate)
        random_fill(out.data, out.n, &state, 1);
    double *want = expected(x.data, accumulate ? out.data : NULL, &w, with_bias ? &bias : NULL, &f, n_tokens);
    if (takes(&w, &f)) {
        char what[120];
        product(&q, out.data, x.data, &w, with_bias ? &bias : NULL, &f, n_tokens, accumulate);
        snprintf(what, sizeof what, "[%d,%d] x [%d]%s%s%s, scale %g, at most %g", rows, cols, n_tokens,
                 f.blocks ? " in blocks" : "", with_bias ? ", bias" : "", accumulate ? ", added" : "", (double)f.scale,
                 (double)f.most);
        close_enough(what, out.data, want, out.n, 4e-6, 2e-6);
        assert_int_equal(q.err.code, ERR_NONE);
    }
    free(w.data);
    free(bias.data);
    free(want);
    guarded_close(&x);
    guarded_close(&out);
}

static const struct input_form of_rows = {.codes = CODES_E4M3, .group = INT_MAX, .n_groups = 1};

static void test_sizes(void **unused)
{
    static const int tokens[] = {17, 18, 33, 130, 300}, rows[] = {16, 48, 528}, cols[] = {16, 48, 272, 4112};
    (void)unused;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
                if (tokens[t] * rows[r] < 2000 || cols[c] < 1000)
                    check_product(of_rows, tokens[t], rows[r], cols[c], (r + t) % 2, (c + t) % 3 == 0);
}

static void test_blocks(void **unused)
{
    static const int tokens[] = {17, 20, 64, 130, 299}, rows[] = {16, 128, 272, 528},
                     cols[] = {16, 128, 192, 272, 1040};
    (void)unused;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++) {
                const struct input_form of_blocks = {.codes = CODES_E4M3,
                                                     .group = INPUT_BLOCK,
                                                     .n_groups = (cols[c] + INPUT_BLOCK - 1) / INPUT_BLOCK,
                                                     .blocks = true};
                check_product(of_blocks, tokens[t], rows[r], cols[c], (r + t) % 3 == 0, (c + t) % 3 == 0);
            }
}

/* The checkpoint's own scale, which large inputs exceed; and an upper bound of the scale. */
static void test_given(void **unused)
{
    struct input_form given = of_rows, bound = of_rows;
    (void)unused;
    given.scale = 0.001f;
    bound.most = 0.3f;
    for (int kind = 0; kind < 4; kind++) {
        check_product(given, 40, 64, 272, kind % 2, kind / 2);
        check_product(bound, 40, 64, 272, kind % 2, kind / 2);
    }
}

/* More rows of x than fit at once as codes in memory. */
static void test_many_tokens(void **unused)
{
    enum { TOKENS = 5000, ROWS = 16, COLS = 16384 };
    uint64_t state = 77;
    struct queue q = test_queue(2);
    struct weight w = random_codes(&of_rows, ROWS, COLS, &state);
    (void)unused;
    if (backend_is_device() && takes(&w, &of_rows)) {
        float *x = zeroed((size_t)TOKENS * COLS, sizeof *x), *out = zeroed((size_t)TOKENS * ROWS, sizeof *out);
        for (int t = 0; t < TOKENS; t++)
            x[(size_t)t * COLS + (size_t)(t * 37 % COLS)] = as_act(1 + (float)t);
        product(&q, out, x, &w, NULL, &of_rows, TOKENS, false);
        for (int t = 0; t < TOKENS; t += 7)
            for (int r = 0; r < ROWS; r++) {
                int c = t * 37 % COLS;
                double want =
                    (double)x[(size_t)t * COLS + (size_t)c] * (double)code_element(w.data, &w.form, ROWS, COLS, r, c);
                assert_true(fabs(out[t * ROWS + r] - want) <= 0.01 * fabs(want) + 1e-6);
            }
        free(x);
        free(out);
    }
    free(w.data);
}

/* A row with an element that is not a number has NaN results, and no other row has. */
static void check_no_numbers(const struct input_form *f)
{
    enum { TOKENS = 20, ROWS = 32, COLS = 272 };
    uint64_t state = 9;
    struct queue q = test_queue(2);
    struct weight w = random_codes(f, ROWS, COLS, &state);
    struct guarded x = guarded_open(TOKENS * COLS), out = guarded_open(TOKENS * ROWS);
    random_fill(x.data, x.n, &state, 1);
    x.data[4 * COLS + 9] = NAN;
    x.data[17 * COLS + COLS - 1] = NAN;
    if (takes(&w, f)) {
        product(&q, out.data, x.data, &w, NULL, f, TOKENS, false);
        for (int i = 0; i < TOKENS * ROWS; i++)
            assert_true(isnan(out.data[i]) == (i / ROWS == 4 || i / ROWS == 17));
    }
    free(w.data);
    guarded_close(&x);
    guarded_close(&out);
}

static void test_no_numbers(void **unused)
{
    (void)unused;
    struct input_form given = of_rows, bound = of_rows;
    const struct input_form of_blocks = {.codes = CODES_E4M3, .group = INPUT_BLOCK, .n_groups = 3, .blocks = true};
    given.scale = 0.01f;
    bound.most = 0.5f;
    check_no_numbers(&of_rows);
    check_no_numbers(&of_blocks);
    check_no_numbers(&given);
    check_no_numbers(&bound);
}

/* For a matrix of any size the product is right, or it is refused in a few words; the reference refuses none. */
static void test_refusals(void **unused)
{
    static const int rows[] = {1, 7, 16, 130}, cols[] = {1, 13, 128, 250};
    const struct input_ops *inputs = backend_real_ops()->inputs;
    (void)unused;
    for (int i = 0; i < 2 * 4 * 4; i++) {
        uint64_t state = (uint64_t)(i + 1);
        int n_rows = rows[i / 2 % 4], n_cols = cols[i / 8];
        const struct input_form of_blocks = {.codes = CODES_E4M3,
                                             .group = INPUT_BLOCK,
                                             .n_groups = (n_cols + INPUT_BLOCK - 1) / INPUT_BLOCK,
                                             .blocks = true};
        const struct input_form *f = i % 2 ? &of_blocks : &of_rows;
        struct weight w = random_codes(f, n_rows, n_cols, &state);
        for (int experts = 0; experts < 2; experts++) {
            const char *why = inputs->refusal(backend_real_queue(), &w, f, experts);
            assert_true(why == NULL || (strlen(why) >= 4 && strlen(why) < 100 && strchr(why, '\n') == NULL));
            assert_true(why == NULL || backend_is_device());
        }
        free(w.data);
        check_product(*f, 19, n_rows, n_cols, i % 3 == 0, i % 5 == 0);
    }
}

/* Two ranks' parts of rows, given the largest magnitudes of both, are quantised as whole rows are; nothing else is
 * written. */
static void check_shares(const struct input_form *whole, int cols, int mine)
{
    enum { TOKENS = 9 };
    const struct input_ops *inputs = backend_real_ops()->inputs;
    struct queue q = test_queue(2);
    uint64_t state = (uint64_t)(cols + mine);
    size_t n_largest = (size_t)TOKENS * (size_t)whole->n_groups;
    struct guarded x = guarded_open(TOKENS * (size_t)cols), want = guarded_open(x.n);
    struct guarded all = guarded_open(n_largest), both = guarded_open(n_largest);
    random_fill(x.data, x.n, &state, 3);
    inputs->find_largest(&q, all.data, x.data, whole, TOKENS, cols);
    inputs->quantise(&q, want.data, x.data, all.data, whole, TOKENS, cols);
    memset(both.data, 0, n_largest * sizeof(float));
    for (int pass = 0; pass < 4; pass++) { /* largest of either rank, then each rank's codes */
        int first = pass % 2 ? mine : 0, n = pass % 2 ? cols - mine : mine;
        struct input_form part = *whole;
        struct guarded in = guarded_open(TOKENS * (size_t)n), out = guarded_open(in.n), own = guarded_open(n_largest);
        part.first = first;
        part.shared = true;
        for (int t = 0; t < TOKENS; t++)
            memcpy(in.data + t * n, x.data + t * cols + first, (size_t)n * sizeof(float));
        inputs->find_largest(&q, own.data, in.data, &part, TOKENS, n);
        for (size_t i = 0; i < n_largest; i++)
            both.data[i] = fmaxf(both.data[i], own.data[i]);
        inputs->quantise(&q, out.data, in.data, both.data, &part, TOKENS, n);
        for (int t = 0; t < TOKENS && pass >= 2; t++)
            assert_memory_equal(out.data + t * n, want.data + t * cols + first, (size_t)n * sizeof(float));
        guarded_close(&in);
        guarded_close(&out);
        guarded_close(&own);
    }
    assert_memory_equal(both.data, all.data, n_largest * sizeof(float));
    guarded_close(&x);
    guarded_close(&want);
    guarded_close(&all);
    guarded_close(&both);
}

static void test_shares(void **unused)
{
    static const int cols[] = {2, 13, 256, 300}, mine[] = {1, 5, 128, 131};
    (void)unused;
    for (int i = 0; i < 4 * 4 && backend_real_ops()->inputs->quantise != NULL; i++) {
        int n = cols[i / 4];
        struct input_form f = {.codes = i % 2 ? CODES_INT8 : CODES_E4M3,
                               .group = i % 4 < 2 ? INT_MAX : 32,
                               .n_groups = i % 4 < 2 ? 1 : (n + 31) / 32};
        check_shares(&f, n, mine[i / 4]);
    }
}

/* ---- inputs that the previous operation has left quantised, in the backend's own memory ---- */

static void *act(const char *name, float *x, size_t n, enum argument_use use)
{
    return argument_data(argument_act(name, x, n, use));
}

/* Computes out = w times the quantised output of a norm of x + add, scaled by `scale`; scale NULL: of the activated
 * gates and ups x. gated: with the gated product. False: no quantised output was left. */
static bool compute_left(float *out, float *x, float *add, const struct weight *scale, const struct weight *w,
                         int n_tokens, bool gated)
{
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    struct weight dw = *w, ds = scale != NULL ? *scale : *w;
    size_t n = (size_t)n_tokens * (size_t)w->cols;
    dw.wide = real->alloc(q, WIDE_BYTES);
    dw.data = argument_data(argument("weights", w->data, code_bytes(&w->form, w->rows, w->cols), 1, ARGUMENT_READ));
    bool left;
    if (scale != NULL) {
        ds.data =
            argument_data(argument("scale", scale->data, (size_t)w->cols, dtype_bytes(scale->type), ARGUMENT_READ));
        left = real->inputs->norm(q, &dw, act("x", x, n, ARGUMENT_CHANGED), act("summand", add, n, ARGUMENT_READ),
                                  NORM_RMS, &ds, NULL, n_tokens, 1e-5f);
    } else {
        left = real->inputs->activate(q, &dw, act("x", x, 2 * n, ARGUMENT_READ), ACTIVATION_SILU, n_tokens);
    }
    if (left && gated)
        left = real->gated_product(q, act("result", out, (size_t)n_tokens * (size_t)(w->rows / 2), ARGUMENT_MADE), NULL,
                                   &dw, ACTIVATION_SILU, n_tokens);
    else if (left)
        real->matmul(q, act("result", out, (size_t)n_tokens * (size_t)w->rows, ARGUMENT_MADE), NULL, &dw, NULL,
                     n_tokens, false);
    const char *wrong = arguments_return();
    real->free(q, dw.wide);
    assert_int_equal(q->err.code, ERR_NONE);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    return left;
}

static bool product_of_left(float *out, float *x, float *add, const struct weight *scale, const struct weight *w,
                            int n_tokens)
{
    return compute_left(out, x, add, scale, w, n_tokens, false);
}

static bool gated_of_left(float *out, float *x, float *add, const struct weight *scale, const struct weight *w,
                          int n_tokens)
{
    return compute_left(out, x, add, scale, w, n_tokens, true);
}

/* The bits are the same as those of a norm or an activation followed by a product that quantises its inputs. */
static void check_left(const struct input_form *f, bool normed, int n_tokens, int rows, int cols, bool possible)
{
    uint64_t state = (uint64_t)(n_tokens + cols);
    struct queue q = test_queue(2);
    struct weight w = random_codes(f, rows, cols, &state), scale = random_weight(backend_act(), 1, cols, &state, 2);
    size_t n = (size_t)n_tokens * (size_t)cols, n_out = (size_t)n_tokens * (size_t)rows;
    struct guarded x = guarded_open(2 * n), add = guarded_open(n), in = guarded_open(n), sum = guarded_open(n);
    struct guarded want = guarded_open(n_out), out = guarded_open(n_out);
    w.inputs = f;
    fill_rows(x.data, n_tokens, 2 * cols, &state);
    random_fill(add.data, n, &state, 1);
    memcpy(sum.data, x.data, n * sizeof(float));
    if (takes(&w, f) && possible) {
        if (normed)
            ops->norm(&q, in.data, sum.data, add.data, NORM_RMS, &scale, NULL, n_tokens, cols, 1e-5f);
        else
            ops->activate(&q, in.data, x.data, ACTIVATION_SILU, true, n_tokens, cols);
        ops->matmul(&q, want.data, in.data, &w, NULL, n_tokens, false);
        assert_true(product_of_left(out.data, x.data, add.data, normed ? &scale : NULL, &w, n_tokens));
        assert_memory_equal(out.data, want.data, n_out * sizeof(float));
        if (normed)
            assert_memory_equal(x.data, sum.data, n * sizeof(float));
    } else if (takes(&w, f)) {
        assert_false(product_of_left(out.data, x.data, add.data, normed ? &scale : NULL, &w, n_tokens));
    }
    free(w.data);
    free(scale.data);
    guarded_close(&x);
    guarded_close(&add);
    guarded_close(&in);
    guarded_close(&sum);
    guarded_close(&want);
    guarded_close(&out);
}

static void test_left(void **unused)
{
    static const int tokens[] = {129, 130, 300}, cols[] = {16, 272, 4096, 4112};
    const struct input_form blocks = {.codes = CODES_E4M3, .group = INPUT_BLOCK, .n_groups = 3, .blocks = true};
    struct input_form given = of_rows;
    (void)unused;
    given.scale = 0.01f;
    if (backend_is_device() && backend_is_invariant()) /* it takes no quantised inputs */
        return;
    for (int i = 0; i < 3 * 4 * 2 && backend_real_ops()->inputs->norm != NULL; i++) {
        check_left(&of_rows, i % 2, tokens[i / 8], 48, cols[i / 2 % 4], true);
        check_left(&given, i % 2, tokens[i / 8], 528, cols[i / 2 % 4], true);
        check_left(&of_rows, i % 2, 20, 48, cols[i / 2 % 4], false); /* few rows */
        check_left(&blocks, i % 2, 132, 128, 272, false);
    }
}

/* ---- gates and ups of quantised inputs that are activated at once ---- */

#define GATED_SAMPLES 9    /* tokens whose results are compared, at most */
#define GATED_LEAST   5896 /* gates from which devices that quantise inputs have the operation */
#define GATED_MOST    193  /* tokens up to which they have it */

/* The activated products of the tokens that are compared. */
static double *expected_gated(const float *x, const struct weight *w, const struct input_form *f, int n_tokens)
{
    const int gates = w->rows / 2, n = n_tokens < GATED_SAMPLES ? n_tokens : GATED_SAMPLES;
    float *some = zeroed((size_t)n * (size_t)w->cols, sizeof *some);
    double *want = zeroed((size_t)n * (size_t)gates, sizeof *want), *both;
    for (int i = 0; i < n; i++)
        memcpy(some + (size_t)i * (size_t)w->cols, x + (size_t)(n_tokens - 1 - i) * (size_t)w->cols,
               (size_t)w->cols * sizeof *some);
    both = expected(some, NULL, w, NULL, f, n);
    for (int i = 0; i < n * gates; i++) {
        const double *row = both + (size_t)(i / gates) * (size_t)w->rows, gate = row[i % gates];
        want[i] = gate / (1 + exp(-gate)) * row[gates + i % gates];
    }
    free(some);
    free(both);
    return want;
}

/* Returns whether the backend has the operation for these sizes. */
static bool check_gated(struct input_form f, int n_tokens, int gates, int cols)
{
    uint64_t state = 7 + (uint64_t)n_tokens * 1000003 + (uint64_t)gates * 1009 + (uint64_t)cols;
    struct queue q = test_queue(2);
    struct weight w = random_codes(&f, 2 * gates, cols, &state);
    struct guarded x = guarded_open((size_t)n_tokens * cols), out = guarded_open((size_t)n_tokens * gates);
    bool has = false;
    w.inputs = &f;
    fill_rows(x.data, n_tokens, cols, &state);
    memset(out.data, 0, out.n * sizeof *out.data);
    if (takes(&w, &f) && backend_real_ops()->inputs->quantise == NULL)
        has = ops->gated_product(&q, out.data, x.data, &w, ACTIVATION_SILU, n_tokens);
    assert_int_equal(q.err.code, ERR_NONE);
    if (takes(&w, &f) && n_tokens <= GATED_MOST && gates >= GATED_LEAST)
        assert_true(has);
    if (has) {
        char what[120];
        const int n = n_tokens < GATED_SAMPLES ? n_tokens : GATED_SAMPLES;
        double *want = expected_gated(x.data, &w, &f, n_tokens);
        for (int i = 0; i < n; i++) {
            snprintf(what, sizeof what, "2 x [%d,%d] x [%d], token %d", gates, cols, n_tokens, n_tokens - 1 - i);
            close_enough(what, out.data + (size_t)(n_tokens - 1 - i) * (size_t)gates, want + (size_t)i * (size_t)gates,
                         (size_t)gates, 4e-6, 2e-6);
        }
        free(want);
    }
    free(w.data);
    guarded_close(&x);
    guarded_close(&out);
    return has;
}

static void test_gated(void **unused)
{
    static const int tokens[] = {17, 64, 100, 129, 193, 256, 1024, 1030}, gates[] = {16, 5896, 8192},
                     cols[] = {16, 272};
    struct input_form given = of_rows;
    int n = 0;
    (void)unused;
    given.scale = 0.01f;
    if (!backend_is_device() || backend_is_invariant())
        return;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t g = 0; g < sizeof gates / sizeof gates[0]; g++)
            for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
                if (!left_out())
                    n += check_gated(c + g == 2 ? given : of_rows, tokens[t], gates[g], cols[c]);
    printf("# the backend has the operation for %d of these sizes\n", n);
}

/* Only results of inputs that are not numbers are not numbers. */
static void test_gated_nan(void **unused)
{
    enum { TOKENS = 70, GATES = 6000, COLS = 272 };
    uint64_t state = 11;
    struct queue q = test_queue(2);
    struct weight w = random_codes(&of_rows, 2 * GATES, COLS, &state);
    float *x = zeroed(TOKENS * COLS, sizeof *x), *out = zeroed(TOKENS * GATES, sizeof *out);
    (void)unused;
    w.inputs = &of_rows;
    random_fill(x, TOKENS * COLS, &state, 1);
    x[5 * COLS + COLS - 1] = NAN;
    if (backend_is_device() && takes(&w, &of_rows)) {
        assert_true(ops->gated_product(&q, out, x, &w, ACTIVATION_SILU, TOKENS));
        for (int i = 0; i < TOKENS * GATES; i++)
            assert_true(isnan(out[i]) == (i / GATES == 5));
    }
    free(w.data);
    free(x);
    free(out);
}

/* The bits are the same if a norm has left the inputs quantised. */
static void test_gated_left(void **unused)
{
    enum { TOKENS = 1024, GATES = 8192, COLS = 272 };
    uint64_t state = 5;
    struct queue q = test_queue(2);
    struct weight w = random_codes(&of_rows, 2 * GATES, COLS, &state), scale;
    (void)unused;
    w.inputs = &of_rows;
    if (!backend_is_device() || backend_is_invariant() || !takes(&w, &of_rows)) {
        free(w.data);
        return;
    }
    scale = random_weight(backend_act(), 1, COLS, &state, 2);
    float *x = zeroed(TOKENS * COLS, sizeof *x), *add = zeroed(TOKENS * COLS, sizeof *add);
    float *in = zeroed(TOKENS * COLS, sizeof *in), *sum = zeroed(TOKENS * COLS, sizeof *sum);
    float *want = zeroed((size_t)TOKENS * GATES, sizeof *want), *out = zeroed((size_t)TOKENS * GATES, sizeof *out);
    fill_rows(x, TOKENS, COLS, &state);
    random_fill(add, TOKENS * COLS, &state, 1);
    memcpy(sum, x, TOKENS * COLS * sizeof *x);
    ops->norm(&q, in, sum, add, NORM_RMS, &scale, NULL, TOKENS, COLS, 1e-5f);
    if (ops->gated_product(&q, want, in, &w, ACTIVATION_SILU, TOKENS)) {
        assert_true(gated_of_left(out, x, add, &scale, &w, TOKENS));
        assert_memory_equal(out, want, (size_t)TOKENS * GATES * sizeof *out);
    }
    free(w.data);
    free(scale.data);
    free(x), free(add), free(in), free(sum), free(want), free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_blocks),     cmocka_unit_test(test_given),
        cmocka_unit_test(test_many_tokens), cmocka_unit_test(test_no_numbers), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_shares),      cmocka_unit_test(test_left),       cmocka_unit_test(test_gated),
        cmocka_unit_test(test_gated_nan),   cmocka_unit_test(test_gated_left),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
