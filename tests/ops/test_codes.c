/* tests/ops/test_codes.c - products with quantised weights: compared with sums in double of the elements that
 * base/codes.c decodes, for every kind of code, of groups and of offsets of a rank's inputs in them; and their bits
 * compared across batches. */
#include "tests/ops/check.h"

#include <limits.h>

/* Returns random codes with scales such that sums are of the order of one. */
static struct weight coded_weight(struct code_form form, int rows, int cols, uint64_t *state)
{
    static const double size[CODES_COUNT] = {1, 130, 74, 4.6, 2.9};
    size_t bytes = code_bytes(&form, rows, cols), n_scales = (size_t)rows * (size_t)code_groups(&form, cols);
    struct weight w = {.data = malloc(bytes + (bytes == 0)), .rows = rows, .cols = cols, .form = form};
    uint8_t *data = w.data, *scales = data + code_scales_at(&form, rows, cols);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)random_bits(state);
        if (form.codes == CODES_E4M3 && (data[i] & 0x7f) == 0x7f)
            data[i] ^= 1;
    }
    for (size_t i = code_zeros_at(&form, rows, cols); i < bytes && form.codes == CODES_INT4; i++)
        data[i] %= 17; /* GPTQ's zeros may be 16 */
    for (size_t i = 0; i < n_scales && bytes > 0; i++) {
        double x = (0.5 + 0.5 * fabs(random_float(state))) / size[form.codes] / sqrt(cols);
        float wide = (float)x;
        if (form.scale == SCALE_F32)
            memcpy(scales + i * sizeof wide, &wide, sizeof wide);
        else
            scales[i] = (uint8_t)(127 + (int)floor(log2(x)));
    }
    return w;
}

static double element(const struct weight *w, int r, int c)
{
    return code_element(w->data, &w->form, w->rows, w->cols, r, c);
}

/* Returns all elements. */
static double *elements(const struct weight *w)
{
    double *all = zeroed((size_t)w->rows * (size_t)w->cols, sizeof *all);
    for (int r = 0; r < w->rows; r++)
        for (int c = 0; c < w->cols; c++)
            all[(size_t)r * w->cols + c] = element(w, r, c);
    return all;
}

/* Several sums side by side: a single one would wait for each addition. */
static double product(const float *x, const double *weights, int n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * weights[i];
    return sum;
}

static void check_product(struct code_form form, int n_tokens, int rows, int cols, bool with_bias, bool accumulate)
{
    if (left_out())
        return;
    uint64_t state = 1 + (uint64_t)n_tokens * 1000003 + (uint64_t)rows * 1009 + (uint64_t)cols;
    struct queue q = test_queue(2);
    struct weight w = coded_weight(form, rows, cols, &state), bias = random_weight(backend_act(), 1, rows, &state, 1);
    size_t n = (size_t)n_tokens * (size_t)rows;
    struct guarded x = guarded_open((size_t)n_tokens * cols), out = guarded_open(n);
    double *want = zeroed(n, sizeof *want), *weights = elements(&w);
    random_fill(x.data, x.n, &state, 1);
    if (accumulate)
        random_fill(out.data, n, &state, 1);
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < rows; r++) {
            double sum = accumulate ? out.data[t * rows + r] : 0;
            sum += with_bias ? weight_at(&bias, 0, r) : 0;
            want[t * rows + r] = sum + product(x.data + t * cols, weights + (size_t)r * cols, cols);
        }
    ops->matmul(&q, out.data, x.data, &w, with_bias ? &bias : NULL, n_tokens, accumulate);
    char what[160];
    snprintf(what, sizeof what, "%s, groups of %d from %d%s [%d,%d] x [%d]", codes_name(form.codes), form.group,
             form.first, form.zeros ? " with zeros" : "", rows, cols, n_tokens);
    close_enough(what, out.data, want, n, 4e-6, 1e-6);
    assert_int_equal(q.err.code, ERR_NONE);
    free(w.data);
    free(bias.data);
    free(weights);
    free(want);
    guarded_close(&x);
    guarded_close(&out);
}

static const struct {
    int group, first;
} groups[] = {{INT_MAX, 0}, {INT_MAX, 40}, {128, 0}, {256, 128}, {128, 64},
              {64, 32},     {32, 0},       {16, 0},  {128, 8},   {7, 3}};
#define N_GROUPS (sizeof groups / sizeof groups[0])

/* Calls f(form) for every kind. */
static void each_form(void (*f)(struct code_form form, size_t number))
{
    for (size_t g = 0, number = 0; g < N_GROUPS; g++)
        for (int codes = CODES_E4M3; codes < CODES_COUNT; codes++)
            for (int zeros = 0; zeros < 2; zeros++) {
                bool integer = codes == CODES_INT8 || codes == CODES_INT4;
                const struct code_form form = {.codes = (enum codes)codes,
                                               .scale = codes == CODES_E2M1 && zeros ? SCALE_E8M0 : SCALE_F32,
                                               .group = groups[g].group,
                                               .first = groups[g].first,
                                               .zeros = integer && zeros};
                if (codes != CODES_E4M3 || !zeros)
                    f(form, number++);
            }
}

static void check_sizes(struct code_form form, size_t number)
{
    static const int tokens[] = {0, 1, 3, 9, 16, 17, 70}, rows[] = {0, 1, 17, 50},
                     cols[] = {0, 1, 6, 40, 129, 264, 2056};
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
                if ((t + r + c + number) % 3 == 0)
                    check_product(form, tokens[t], rows[r], cols[c], (r + t) % 2, (c + t) % 2);
}

static void test_sizes(void **unused)
{
    (void)unused;
    each_form(check_sizes);
}

/* More rows than a device decodes at once, and than it has multiprocessors. */
static void test_many_rows(void **unused)
{
    (void)unused;
    const struct code_form form = {.codes = CODES_INT4, .group = 128, .zeros = true};
    check_product(form, 1, 3001, 264, true, false);
    check_product(form, 19, 3001, 264, true, true);
}

/* More rows and tokens than a tile has, columns in one part and in several: on a device with its own kernel for a
 * moderate number of tokens, all of these products use it. */
static void check_some_tokens(struct code_form form, size_t number)
{
    check_product(form, 17, 264, 136, number % 2, number % 3 == 0);
    check_product(form, 33 + 4 * (int)number, 72, 1416, number % 3 == 0, number % 2);
    if (number % 4 == 0)
        check_product(form, 300, 520, 264, true, false);
}

static void test_some_tokens(void **unused)
{
    (void)unused;
    each_form(check_some_tokens);
}

/* Each code by itself decodes to its element, for a single token in many places. scale: that of even groups; odd ones
 * have twice that. */
static void check_every_code(enum codes codes, int n_tokens, float scale)
{
    enum { COLS = 272 };
    const int places = n_tokens == 1 ? 39 : 1;
    struct queue q = test_queue(1);
    const struct code_form form = {.codes = codes, .group = codes == CODES_INT8 ? 64 : 128};
    int n_codes = code_bits(form.codes) == 8 ? 256 : 16;
    size_t bytes = code_bytes(&form, n_codes, COLS), pitch = code_pitch(&form, COLS);
    struct weight w = {.data = calloc(1, bytes), .rows = n_codes, .cols = COLS, .form = form};
    uint8_t *data = w.data;
    float *scales = (float *)(void *)(data + code_scales_at(&form, n_codes, COLS));
    for (int r = 0; r < n_codes; r++) {
        bool nan = codes == CODES_E4M3 && (r & 0x7f) == 0x7f;
        memset(data + (size_t)r * pitch, nan ? 0 : n_codes == 256 ? r : r * 17, pitch);
        for (int g = 0; g < code_groups(&form, COLS); g++)
            scales[r * code_groups(&form, COLS) + g] = scale * (float)(1 << g % 2);
    }
    float *x = zeroed((size_t)n_tokens * COLS, sizeof *x), *out = zeroed((size_t)n_tokens * n_codes, sizeof *out);
    for (int i = 0; i < places; i++) {
        memset(x, 0, (size_t)n_tokens * COLS * sizeof *x);
        for (int t = 0; t < n_tokens; t++)
            x[t * COLS + (t * 37 + 7 * i + 5) % COLS] = 1;
        ops->matmul(&q, out, x, &w, NULL, n_tokens, false);
        for (int t = 0; t < n_tokens; t++)
            for (int r = 0; r < n_codes; r++)
                assert_true(out[t * n_codes + r] == as_act((float)element(&w, r, (t * 37 + 7 * i + 5) % COLS)));
    }
    free(x);
    free(out);
    free(w.data);
}

/* On the CPU also with tiny scales, and with large ones, for which some way to decode has no room. */
static void test_every_code(void **unused)
{
    (void)unused;
    static const float scale[] = {1, 0x1p-100f, 0x1p6f, 0x1p7f, 0x1p100f};
    static const int n_tokens[] = {1, 3, 9, 17};
    const size_t n_scales = backend_is_device() ? 1 : sizeof scale / sizeof scale[0];
    for (int codes = CODES_E4M3; codes < CODES_COUNT; codes++)
        for (size_t t = 0; t < sizeof n_tokens / sizeof n_tokens[0]; t++)
            for (size_t i = 0; i < n_scales; i++)
                check_every_code((enum codes)codes, n_tokens[t], scale[i]);
}

/* Every power of two that a scale may be, including the smallest and the NaN code, by the row and, with more groups
 * than are read at once, by the group. */
static void test_every_power(void **unused)
{
    (void)unused;
    enum { GROUPS = 72, COLS = 32 * GROUPS, ROWS = 256 };
    struct queue q = test_queue(1);
    const struct code_form form = {.codes = CODES_E2M1, .scale = SCALE_E8M0, .group = 32};
    struct weight w = {.data = calloc(1, code_bytes(&form, ROWS, COLS)), .rows = ROWS, .cols = COLS, .form = form};
    uint8_t *data = w.data, *scales = data + code_scales_at(&form, ROWS, COLS);
    float *x = zeroed(COLS, sizeof *x), *out = zeroed(ROWS, sizeof *out);
    for (unsigned code = 0; code < 16 && !backend_is_device(); code++) {
        memset(data, (int)(code << 4 | code), (size_t)ROWS * code_pitch(&form, COLS));
        for (int group = 0; group < GROUPS; group += 71) {
            for (int r = 0; r < ROWS; r++)
                for (int g = 0; g < GROUPS; g++)
                    scales[r * GROUPS + g] = g == group ? (uint8_t)r : 127;
            x[32 * group + (int)code] = 1;
            ops->matmul(&q, out, x, &w, NULL, 1, false);
            x[32 * group + (int)code] = 0;
            for (int r = 0; r < ROWS; r++) { /* beside an infinite weight others of the group add NaN */
                float want = code_value(CODES_E2M1, code) * e8m0_value((uint8_t)r);
                assert_true(isfinite(want) ? out[r] == want : !isfinite(out[r]));
            }
        }
    }
    free(x);
    free(out);
    free(w.data);
}

/* A token's result has the same bits alone and in a batch; on a device that is not invariant in batches of up to 16. */
static void check_bits(struct code_form form, size_t number)
{
    enum { ROWS = 40, COLS = 528, TOKENS = 150 };
    const int n = backend_is_invariant() ? TOKENS : 16;
    uint64_t state = 5 + number;
    struct queue q = test_queue(2);
    struct weight w = coded_weight(form, ROWS, COLS, &state);
    float *x = malloc(TOKENS * COLS * sizeof *x), *all = malloc(TOKENS * ROWS * sizeof *all), one[ROWS];
    random_fill(x, TOKENS * COLS, &state, 1);
    ops->matmul(&q, all, x, &w, NULL, n, false);
    for (int t = 0; t < n; t += 5) {
        ops->matmul(&q, one, x + (size_t)t * COLS, &w, NULL, 1, false);
        assert_memory_equal(one, all + (size_t)t * ROWS, sizeof one);
    }
    free(x);
    free(all);
    free(w.data);
}

static void test_bits(void **unused)
{
    (void)unused;
    each_form(check_bits);
}

/* Token t's i-th expert is (3 t + i) mod experts, except that no token takes the last one, and that four of eight
 * tokens take the first ones, which so have more tokens than others. */
static void fill_routes(struct routes *r, const struct routing *how, int n_tokens)
{
    int n_pairs = n_tokens * how->n_chosen, at = 0;
    for (int p = 0; p < n_pairs; p++)
        r->expert[p] =
            ((p / how->n_chosen % 8 < 4 ? 3 * (p / how->n_chosen) : 0) + p % how->n_chosen) % (how->n_experts - 1);
    for (int e = 0; e < how->n_experts; e++) {
        r->begin[e] = at;
        for (int p = 0; p < n_pairs; p++)
            if (r->expert[p] == e)
                r->pair[at++] = p;
    }
    r->begin[how->n_experts] = at;
}

/* Returns the activated gate f times its up, from the `rows` results of a pair's first product. */
static double gated(enum activation kind, const double *said, int rows, int f)
{
    double gate = said[f], up = said[rows / 2 + f];
    if (kind == ACTIVATION_RELU)
        return fmax(gate, 0) * up;
    if (kind == ACTIVATION_SILU)
        return gate / (1 + exp(-gate)) * up;
    gate = fmin(said[2 * f], SWIGLU_LIMIT);
    up = fmax(fmin(said[2 * f + 1], SWIGLU_LIMIT), -SWIGLU_LIMIT);
    return (up + 1) * gate / (1 + exp(-1.702 * gate));
}

/* first: which of the two products. This rank holds n_held of five experts, from first_held on. */
static void check_experts(struct code_form form, enum activation kind, int n_tokens, int rows, int cols, bool first,
                          int first_held, int n_held)
{
    if (left_out())
        return;
    const struct routing how = {.n_experts = 5, .n_chosen = 2, .scale = 1};
    uint64_t state = 11 + (uint64_t)n_tokens * 101 + (uint64_t)cols;
    size_t pairs = (size_t)n_tokens * 2, n_said = pairs * (size_t)rows;
    struct queue q = test_queue(2);
    struct weight w = coded_weight(form, rows * n_held, cols, &state);
    struct weight bias = random_weight(backend_act(), n_held, rows, &state, 1);
    struct routes r = {zeroed((size_t)n_tokens * 5, sizeof(float)),
                       zeroed(pairs, sizeof(int32_t)),
                       zeroed(pairs, sizeof(float)),
                       zeroed(6, sizeof(int32_t)),
                       zeroed(pairs, sizeof(int32_t)),
                       first_held,
                       n_held};
    fill_routes(&r, &how, n_tokens);
    struct guarded x = guarded_open((first ? (size_t)n_tokens : pairs) * cols), work = guarded_open(n_said);
    struct guarded out = guarded_open(n_said / 2);
    double *weights = elements(&w);
    double *said = zeroed(n_said, sizeof *said), *want = zeroed(n_said / 2, sizeof *want);
    random_fill(x.data, x.n, &state, first ? 0.5f : 1); /* roundings of gates and of ups multiply */
    for (size_t p = 0; p < pairs; p++)
        for (int o = 0; o < rows; o++) {
            double *sum = &said[p * rows + o];
            int e = r.expert[p] - first_held;
            if (e < 0 || e >= n_held)
                continue;
            *sum = weight_at(&bias, e, o) +
                   product(x.data + (first ? p / 2 : p) * (size_t)cols, weights + ((size_t)e * rows + o) * cols, cols);
        }
    for (size_t p = 0; p < pairs; p++) {
        r.share[p] = p % 2 == 0 ? 0.5f : 0.25f;
        for (int o = 0; o < rows / 2 && first; o++)
            want[p * rows / 2 + o] = gated(kind, said + p * rows, rows, o);
        for (int o = 0; o < rows && !first; o++)
            want[p / 2 * rows + o] += r.share[p] * said[p * rows + o];
    }
    if (first)
        ops->experts_first(&q, out.data, x.data, &w, &bias, &r, &how, kind, work.data, n_tokens);
    else
        ops->experts_second(&q, out.data, x.data, &w, &bias, &r, &how, work.data, n_tokens, rows, false);
    for (size_t p = 0; p < pairs && first; p++) /* results of experts held elsewhere may be anything here */
        for (int o = 0; o < rows / 2; o++)
            if (r.expert[p] < first_held || r.expert[p] >= first_held + n_held)
                out.data[p * rows / 2 + o] = 0;
    char what[160];
    snprintf(what, sizeof what, "experts of %s, groups of %d from %d [%d,%d] x [%d], the %s product",
             codes_name(form.codes), form.group, form.first, rows, cols, n_tokens, first ? "first" : "second");
    close_enough(what, out.data, want, out.n, 2e-5, 4e-6);
    assert_int_equal(q.err.code, ERR_NONE);
    free(r.logits);
    free(r.expert);
    free(r.share);
    free(r.begin);
    free(r.pair);
    free(w.data);
    free(bias.data);
    free(weights);
    free(said);
    free(want);
    guarded_close(&x);
    guarded_close(&work);
    guarded_close(&out);
}

static void check_expert_sizes(struct code_form form, size_t number)
{
    static const int tokens[] = {1, 7, 20, 61}, cols[] = {6, 96, 264};
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++)
        for (size_t c = 0; c < sizeof cols / sizeof cols[0]; c++)
            if ((t + c + number) % 2 == 0) {
                check_experts(form, ACTIVATION_RELU, tokens[t], 20 + 16 * (int)c, cols[c], (t + c) % 2, 0, 5);
                check_experts(form, ACTIVATION_RELU, tokens[t], 20 + 16 * (int)c, cols[c], (t + c) % 2, 1 + (int)c, 2);
            }
}

static void test_experts(void **unused)
{
    (void)unused;
    each_form(check_expert_sizes);
}

/* The same powers for each expert, in any order; f16 has only some of them, and sums of bfloat16 may be infinite on the
 * way to results from 2^117 on (fours_digits.cuh). */
static void check_every_power(int n_tokens)
{
    enum { ROWS = 256, COLS = 192 };
    const struct routing how = {.n_experts = 1, .n_chosen = 1, .scale = 1};
    struct queue q = test_queue(1);
    const struct code_form form = {.codes = CODES_E2M1, .scale = SCALE_E8M0, .group = 32};
    struct weight w = {.data = calloc(1, code_bytes(&form, ROWS, COLS)), .rows = ROWS, .cols = COLS, .form = form};
    uint8_t *data = w.data, *scales = data + code_scales_at(&form, ROWS, COLS);
    size_t n = (size_t)n_tokens;
    int32_t *expert = zeroed(n, sizeof *expert), *pair = zeroed(n, sizeof *pair), begin[] = {0, n_tokens};
    float *share = zeroed(n, sizeof *share), *logits = zeroed(n, sizeof *logits);
    float lowest = backend_act() == DTYPE_F16 ? 0x1p-14f : 0;
    struct routes r = {logits, expert, share, begin, pair, 0, 1};
    struct guarded x = guarded_open(n * COLS), work = guarded_open(n * ROWS), out = guarded_open(work.n);
    memset(data, 0x2a, (size_t)ROWS * code_pitch(&form, COLS)); /* -1, 1, alternating */
    for (int i = 0; i < ROWS; i++)
        memset(scales + i * (COLS / 32), i * 37 % ROWS, COLS / 32);
    for (int t = 0; t < n_tokens; t++) {
        pair[t] = t;
        share[t] = 1;
        for (int c = 0; c < COLS; c++)
            x.data[t * COLS + c] = c == 1 + 64 * (t % 3) ? 1 : 0;
    }
    ops->experts_second(&q, out.data, x.data, &w, NULL, &r, &how, work.data, n_tokens, ROWS, false);
    assert_int_equal(q.err.code, ERR_NONE);
    for (int i = 0; i < n_tokens * ROWS; i++) {
        int power = i % ROWS * 37 % ROWS;
        float want = e8m0_value((uint8_t)power);
        bool known = want >= lowest && want < (lowest == 0 ? 0x1p117f : 0x1p16f);
        assert_true(power == 255 ? !isfinite(out.data[i]) : !known || out.data[i] == want);
    }
    guarded_close(&x);
    guarded_close(&work);
    guarded_close(&out);
    free(w.data);
    free(expert);
    free(pair);
    free(share);
    free(logits);
}

static void test_every_power_of_an_expert(void **unused)
{
    (void)unused;
    check_every_power(3);
    check_every_power(200);
}

/* More rows and columns than a tile has, of experts with fewer or more tokens than a tile: on a device with kernels for
 * few and for many tokens of each expert, all of these products use them. */
static void check_many_experts(struct code_form form, size_t number)
{
    static const int tokens[] = {2, 17, 60, 90, 330};
    enum activation kind = number % 2 == 0 ? ACTIVATION_SILU : ACTIVATION_SWIGLU;
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
        check_experts(form, kind, tokens[t], 2 * 136, 136, true, 0, 5);
        check_experts(form, kind, tokens[t], 264, 72, false, 1, 3);
        check_experts(form, kind, tokens[t], 2 * 136, 320, true, 0, 5);
        check_experts(form, kind, tokens[t], 264, 192, false, 1, 3);
    }
}

static void test_many_experts(void **unused)
{
    (void)unused;
    each_form(check_many_experts);
}

/* Rows and columns of fours_digits.cuh, whose steps have 960 columns and are shared by four warpgroups, 256 columns
 * each and 192 for the last: some of the shares, all of them, and more steps. The last sizes have more units of 64 rows
 * than a device has multiprocessors, so blocks work on several experts. Of 8 tokens the first two experts have 6 each,
 * more than fit together, and of 12 an expert has more than one run. */
static void test_short_runs(void **unused)
{
    (void)unused;
    static const struct code_form form = {.codes = CODES_E2M1, .scale = SCALE_E8M0, .group = 32};
    static const int tokens[] = {1, 3, 8, 12};
    for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
        check_experts(form, ACTIVATION_SWIGLU, tokens[t], 2 * 96, 480, true, 0, 5);
        check_experts(form, ACTIVATION_SWIGLU, tokens[t], 2 * 64, 960, true, 0, 5);
        check_experts(form, ACTIVATION_SILU, tokens[t], 2 * 64, 1056, true, 1, 3);
        check_experts(form, ACTIVATION_SILU, tokens[t], 192, 2088, false, 0, 5);
        check_experts(form, ACTIVATION_SILU, tokens[t], 64, 40, false, 1, 3);
    }
    check_experts(form, ACTIVATION_SWIGLU, 8, 2 * 3200, 64, true, 0, 5);
    check_experts(form, ACTIVATION_SILU, 8, 2 * 3200, 96, true, 1, 3);
    check_experts(form, ACTIVATION_SILU, 8, 6400, 96, false, 0, 5);
    check_experts(form, ACTIVATION_SWIGLU, 12, 2 * 3200, 64, true, 0, 5);
    check_experts(form, ACTIVATION_SILU, 12, 6400, 96, false, 0, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_some_tokens),  cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_bits),         cmocka_unit_test(test_experts),
        cmocka_unit_test(test_many_experts), cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_every_power),  cmocka_unit_test(test_every_power_of_an_expert),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
