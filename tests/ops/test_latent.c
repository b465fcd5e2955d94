/* tests/ops/test_latent.c - the operations of latent attention against formulas in double: a product for each head,
 * storing into the cache, attention whose values are its keys. */
#include "tests/ops/check.h"

/* ---- a product for each head ---- */

struct shape {
    int n_tokens, n_heads, rows, cols, more; /* more: elements between the rows of heads, and after those of a token */
};

static void check_products(struct shape s, enum dtype type)
{
    if (left_out())
        return;
    uint64_t state = (uint64_t)(1 + s.n_tokens + 100 * s.rows + (int)type);
    int x_head = s.cols + s.more, out_head = s.rows + s.more;
    struct head_rows x = {NULL, s.n_heads * x_head + 2 * s.more, x_head};
    struct head_rows out = {NULL, s.n_heads * out_head + s.more, out_head};
    struct weight w = random_weight(type, s.n_heads * s.rows, s.cols, &state, 1);
    struct guarded in = guarded_open((size_t)s.n_tokens * (size_t)x.per_token);
    struct guarded got = guarded_open((size_t)s.n_tokens * (size_t)out.per_token);
    random_fill(in.data, in.n, &state, 1);
    random_fill(got.data, got.n, &state, 1);
    x.data = in.data;
    out.data = got.data;
    double *want = zeroed(got.n, sizeof *want);
    for (size_t i = 0; i < got.n; i++)
        want[i] = got.data[i];
    for (int i = 0; i < s.n_tokens * s.n_heads * s.rows; i++) {
        int t = i / (s.n_heads * s.rows), h = i / s.rows % s.n_heads, row = i % s.rows;
        double sum = 0;
        for (int c = 0; c < s.cols; c++)
            sum += weight_at(&w, h * s.rows + row, c) *
                   in.data[(size_t)t * (size_t)x.per_token + (size_t)(h * x_head + c)];
        want[(size_t)t * (size_t)out.per_token + (size_t)(h * out_head + row)] = sum;
    }
    struct queue q = test_queue(2);
    ops->matmul_heads(&q, out, x, &w, s.n_heads, s.n_tokens);
    assert_int_equal(q.err.code, ERR_NONE);
    char what[100];
    snprintf(what, sizeof what, "%d tokens, %d heads of [%d, %d]", s.n_tokens, s.n_heads, s.rows, s.cols);
    close_enough(what, got.data, want, got.n, 2e-5, 1e-5);
    free(want);
    free(w.data);
    guarded_close(&in);
    guarded_close(&got);
}

static void test_products(void **unused)
{
    (void)unused;
    static const struct shape shapes[] = {
        {1, 3, 9, 6, 0},      {2, 5, 17, 13, 3},  {1, 16, 64, 128, 8}, {16, 2, 130, 24, 8}, {17, 4, 128, 64, 8},
        {33, 3, 140, 40, 16}, {70, 1, 33, 72, 0}, {19, 2, 5, 7, 1},    {0, 2, 8, 8, 0},     {4, 0, 0, 8, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = 0; type < DTYPE_COUNT; type++)
            check_products(shapes[i], type);
}

/* The bits of a token do not depend on the others; on a device that is not invariant, for up to 16 tokens. */
static void test_same_bits(void **unused)
{
    (void)unused;
    enum { HEADS = 2, ROWS = 24, COLS = 40, TOO_MANY = 50 };
    const int n = backend_is_invariant() ? TOO_MANY : 16;
    uint64_t state = 5;
    struct weight w = random_weight(DTYPE_BF16, HEADS * ROWS, COLS, &state, 1);
    struct guarded in = guarded_open((size_t)n * HEADS * COLS), all = guarded_open((size_t)n * HEADS * ROWS);
    struct queue q = test_queue(2);
    random_fill(in.data, in.n, &state, 1);
    ops->matmul_heads(&q, (struct head_rows){all.data, HEADS * ROWS, ROWS},
                      (struct head_rows){in.data, HEADS * COLS, COLS}, &w, HEADS, n);
    for (int t = 0; t < n; t++) {
        float one[HEADS * ROWS];
        ops->matmul_heads(&q, (struct head_rows){one, HEADS * ROWS, ROWS},
                          (struct head_rows){in.data + (size_t)t * HEADS * COLS, HEADS * COLS, COLS}, &w, HEADS, 1);
        assert_memory_equal(one, all.data + (size_t)t * HEADS * ROWS, sizeof one);
    }
    free(w.data);
    guarded_close(&in);
    guarded_close(&all);
}

/* ---- the cache ---- */

enum { SLOTS = 3, BLOCKS_PER_SLOT = 3, N_BLOCKS = SLOTS * BLOCKS_PER_SLOT + 1, TOKENS = 23 };

/* Sequences of 40, 1 and 17 tokens, whose last 5, 1 and 17 belong to the step; blocks in random order. */
struct step {
    int32_t slot[TOKENS], pos[TOKENS], table[SLOTS * BLOCKS_PER_SLOT];
    struct batch batch;
};

static void step_make(struct step *s)
{
    static const int len[SLOTS] = {40, 1, 17}, n_new[SLOTS] = {5, 1, 17};
    int n = 0;
    backend_n_blocks = N_BLOCKS;
    backend_n_slots = SLOTS;
    for (int slot = 0; slot < SLOTS; slot++)
        for (int pos = len[slot] - n_new[slot]; pos < len[slot]; pos++, n++) {
            s->slot[n] = slot;
            s->pos[n] = pos;
        }
    for (int i = 0; i < SLOTS * BLOCKS_PER_SLOT; i++)
        s->table[i] = (i * 7 + 3) % N_BLOCKS;
    s->batch = (struct batch){.n_tokens = TOKENS,
                              .slot = s->slot,
                              .pos = s->pos,
                              .block_table = s->table,
                              .blocks_per_slot = BLOCKS_PER_SLOT};
}

static size_t row_at(const struct batch *b, int slot, int pos, int dim)
{
    return ((size_t)b->block_table[slot * b->blocks_per_slot + pos / 16] * 16 + (size_t)(pos % 16)) * (size_t)dim;
}

static void turn(double *x, const float *cos_sin, const struct rope *rope)
{
    int pairs = rope->dims / 2;
    for (int j = 0; j < pairs; j++) {
        int ia = rope->layout == ROPE_HALF ? j : 2 * j, ib = rope->layout == ROPE_HALF ? j + pairs : 2 * j + 1;
        double a = x[ia], b = x[ib], c = cos_sin[j], sine = cos_sin[pairs + j];
        x[ia] = a * c - b * sine;
        x[ib] = b * c + a * sine;
    }
}

static void expect_latent(double *to, const float *from, int dim, const float *cos_sin, const struct rope *rope,
                          const struct weight *w)
{
    double sum = 0;
    int rank = dim - rope->dims;
    for (int d = 0; d < rank; d++)
        sum += (double)from[d] * from[d];
    for (int d = 0; d < dim; d++)
        to[d] = d < rank ? weight_at(w, 0, d) * from[d] / sqrt(sum / rank + 1e-6) : from[d];
    turn(to + rank, cos_sin, rope);
}

static void check_store(int n_heads, int dim, int key, int turned, enum rope_layout layout, enum dtype type)
{
    if (left_out())
        return;
    struct step s = {0};
    uint64_t state = (uint64_t)(9 + n_heads + dim);
    struct rope rope = {.layout = layout, .dims = turned};
    struct heads heads = {.n_heads = n_heads, .n_kv_heads = n_heads > 0, .head_dim = dim, .heads_per_kv = 8};
    size_t width = (size_t)((n_heads + 2 * heads.n_kv_heads) * dim), query_dim = (size_t)(key + turned);
    step_make(&s);
    struct guarded qkv = guarded_open(TOKENS * width), query = guarded_open(TOKENS * (size_t)n_heads * query_dim);
    struct guarded latent = guarded_open(TOKENS * (size_t)dim);
    struct guarded cache = guarded_open((size_t)N_BLOCKS * 16 * (size_t)(heads.n_kv_heads * dim));
    struct weight w = random_weight(type, 1, dim - turned, &state, 1);
    float *angles = zeroed(TOKENS * (size_t)turned, sizeof *angles);
    random_fill(qkv.data, qkv.n, &state, 1);
    random_fill(query.data, query.n, &state, 2);
    random_fill(latent.data, latent.n, &state, 2);
    for (size_t i = 0; i < TOKENS * (size_t)turned; i++)
        angles[i] = random_float(&state);
    double *want = zeroed(qkv.n, sizeof *want), row[1024];
    for (size_t i = 0; i < qkv.n; i++)
        want[i] = qkv.data[i];
    for (int i = 0; i < TOKENS * n_heads; i++) {
        int t = i / n_heads;
        double *to = want + (size_t)t * width + (size_t)((i % n_heads + 1) * dim - turned);
        for (int d = 0; d < turned; d++)
            to[d] = query.data[(size_t)i * query_dim + (size_t)(key + d)];
        turn(to, angles + (size_t)t * (size_t)turned, &rope);
    }
    struct queue q = test_queue(2);
    ops->latent_store(&q, qkv.data, query.data, (int)query_dim, latent.data, cache.data, &heads, &s.batch, &rope,
                      angles, &w, 1e-6f);
    assert_int_equal(q.err.code, ERR_NONE);
    close_enough("queries", qkv.data, want, qkv.n, 3e-6, 3e-6);
    size_t n_written = 0;
    for (int t = 0; t < TOKENS && n_heads > 0; t++, n_written += (size_t)dim) {
        expect_latent(row, latent.data + (size_t)(t * dim), dim, angles + (size_t)t * (size_t)turned, &rope, &w);
        close_enough("latent", cache.data + row_at(&s.batch, s.slot[t], s.pos[t], dim), row, (size_t)dim, 3e-6, 3e-6);
    }
    for (size_t i = 0; i < cache.n; i++)
        n_written -= !isnan(cache.data[i]);
    assert_int_equal(n_written, 0);
    free(want);
    free(angles);
    free(w.data);
    guarded_close(&qkv);
    guarded_close(&query);
    guarded_close(&latent);
    guarded_close(&cache);
}

static void test_store(void **unused)
{
    (void)unused;
    static const struct {
        int n_heads, dim, key, turned;
    } sizes[] = {{3, 13, 6, 4}, {1, 7, 1, 2}, {16, 576, 128, 64}, {5, 40, 24, 16}, {0, 20, 8, 4}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int type = 0; type < DTYPE_COUNT; type++)
            for (int layout = 0; layout < 2; layout++)
                check_store(sizes[i].n_heads, sizes[i].dim, sizes[i].key, sizes[i].turned,
                            layout ? ROPE_INTERLEAVED : ROPE_HALF, type);
}

/* An unchecked plan writes nothing into the cache. */
static void test_bad_positions(void **unused)
{
    (void)unused;
    struct step s = {0};
    step_make(&s);
    for (int t = 0; t < TOKENS; t++) {
        s.slot[t] = t % 3 == 0 ? -1 : s.slot[t];
        s.pos[t] = t % 3 == 1 ? -5 : BLOCKS_PER_SLOT * 16;
    }
    struct rope rope = {.layout = ROPE_HALF, .dims = 2};
    struct heads heads = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 5, .heads_per_kv = 1};
    float norm[3] = {1, 1, 1}, angles[TOKENS * 2] = {0}, qkv[TOKENS * 15] = {0}, query[TOKENS * 3] = {0};
    float latent[TOKENS * 5] = {0};
    struct weight w = {.data = norm, .type = DTYPE_F32, .rows = 1, .cols = 3};
    struct guarded cache = guarded_open((size_t)N_BLOCKS * 16 * 5);
    struct queue q = test_queue(1);
    ops->latent_store(&q, qkv, query, 3, latent, cache.data, &heads, &s.batch, &rope, angles, &w, 1e-6f);
    for (size_t i = 0; i < cache.n; i++)
        assert_true(isnan(cache.data[i]));
    guarded_close(&cache);
}

/* ---- attention ---- */

/* Adds the result of token t's head with query q to want[head_dim], in double. sink: -INFINITY: there is none. */
static void expect_attention(double *want, const struct batch *b, int t, const float *q, double sink,
                             const float *cache, const struct heads *h)
{
    int dim = h->head_dim, pos = b->pos[t], n = pos + 1, slot = b->slot[t];
    double *score = zeroed((size_t)n, sizeof *score), best = sink, sum;
    for (int i = 0; i < n; i++) {
        if ((h->window > 0 && i <= pos - h->window) || (h->chunk > 0 && i / h->chunk != pos / h->chunk)) {
            score[i] = -INFINITY;
            continue;
        }
        const float *key = cache + row_at(b, slot, i, dim);
        for (int d = 0; d < dim; d++)
            score[i] += (double)h->scale * q[d] * key[d];
        best = fmax(best, score[i]);
    }
    sum = sink > -INFINITY ? exp(sink - best) : 0;
    for (int i = 0; i < n; i++)
        sum += exp(score[i] - best);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < dim; d++)
            want[d] += exp(score[i] - best) / sum * cache[row_at(b, slot, i, dim) + (size_t)d];
    free(score);
}

/* All heads read the same keys, which are also the values; len: of each slot; the rest of the cache is NaN. seen: the
 * visible part, and the sinks. */
static void check_attention(const struct batch *b, const int *len, int n_slots, int n_blocks, int n_heads, int dim,
                            const struct heads *seen)
{
    uint64_t state = (uint64_t)(3 + dim + b->n_tokens);
    struct heads heads = {.n_heads = n_heads,
                          .n_kv_heads = 1,
                          .head_dim = dim,
                          .heads_per_kv = 2 * n_heads,
                          .scale = 1.5f / sqrtf((float)dim),
                          .window = seen->window,
                          .chunk = seen->chunk,
                          .sinks = seen->sinks,
                          .sinks_type = DTYPE_F32};
    const float *sinks = seen->sinks;
    size_t width = (size_t)((n_heads + 2) * dim), n_rows = (size_t)(b->n_tokens * n_heads);
    struct guarded qkv = guarded_open((size_t)b->n_tokens * width), out = guarded_open(n_rows * (size_t)dim);
    struct guarded cache = guarded_open((size_t)(n_blocks * 16 * dim));
    backend_n_blocks = n_blocks;
    backend_n_slots = n_slots;
    random_fill(qkv.data, qkv.n, &state, 1);
    for (int slot = 0; slot < n_slots; slot++)
        for (int pos = 0; pos < len[slot]; pos++)
            random_fill(cache.data + row_at(b, slot, pos, dim), (size_t)dim, &state, 1);
    double *want = zeroed(out.n, sizeof *want);
    for (size_t i = 0; i < n_rows; i++)
        expect_attention(want + i * (size_t)dim, b, (int)i / n_heads,
                         qkv.data + i / (size_t)n_heads * width + i % (size_t)n_heads * (size_t)dim,
                         sinks != NULL ? (double)sinks[i % (size_t)n_heads] : -INFINITY, cache.data, &heads);
    struct queue q = test_queue(2);
    ops->attention(&q, out.data, qkv.data, cache.data, cache.data, &heads, b);
    assert_int_equal(q.err.code, ERR_NONE);
    close_enough("attention", out.data, want, out.n, 5e-6, 5e-6);
    free(want);
    guarded_close(&qkv);
    guarded_close(&out);
    guarded_close(&cache);
}

static void test_attention(void **unused)
{
    (void)unused;
    static const int sizes[][2] = {{5, 13}, {3, 40}, {20, 64}, {2, 257}, {3, 320}, {16, 576}, {20, 576}};
    static const int len[SLOTS] = {40, 1, 17};
    struct step s = {0};
    step_make(&s);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!left_out())
            check_attention(&s.batch, len, SLOTS, N_BLOCKS, sizes[i][0], sizes[i][1], &(struct heads){0});
}

/* Windows and chunks that end within blocks and at their edges, sinks, and as many heads as DeepSeek-V3 has. */
static void test_seen_in_part(void **unused)
{
    (void)unused;
    enum { MOST_HEADS = 128 };
    static float sinks[MOST_HEADS];
    static const int len[SLOTS] = {40, 1, 17};
    static const struct heads seen[] = {{.window = 1},
                                        {.window = 16},
                                        {.window = 21},
                                        {.window = 99},
                                        {.chunk = 5},
                                        {.chunk = 16},
                                        {.chunk = 64},
                                        {.sinks = sinks},
                                        {.sinks = sinks, .window = 7},
                                        {0}};
    static const int sizes[][2] = {{3, 40}, {MOST_HEADS, 40}, {5, 576}, {MOST_HEADS, 576}};
    uint64_t state = 8;
    struct step s = {0};
    step_make(&s);
    for (int i = 0; i < MOST_HEADS; i++)
        sinks[i] = i % 9 == 8 ? 40 : 3 * random_float(&state);
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            if (!left_out())
                check_attention(&s.batch, len, SLOTS, N_BLOCKS, sizes[k][0], sizes[k][1], &seen[i]);
}

/* Contexts of several parts: up to 16 tokens, which have the most parts, up to 128, and more. */
static void test_long_attention(void **unused)
{
    (void)unused;
    enum { LONG_SLOTS = 4, PER_SLOT = 45, LONG_BLOCKS = LONG_SLOTS * PER_SLOT + 1, MOST = 140 };
    static const int len[LONG_SLOTS] = {705, 128, 33, 260},
                     n_new[][LONG_SLOTS] = {{1, 1, 1, 1}, {3, 0, 0, 2}, {9, 3, 2, 10}, {100, 20, 0, 20}};
    static const int n_heads[] = {16, 5, 20, 3};
    static int32_t table[LONG_SLOTS * PER_SLOT], slot[MOST], pos[MOST];
    for (int i = 0; i < LONG_SLOTS * PER_SLOT; i++)
        table[i] = (i * 7 + 3) % LONG_BLOCKS;
    for (size_t i = 0; i < sizeof n_new / sizeof n_new[0]; i++) {
        int n = 0;
        for (int k = 0; k < LONG_SLOTS; k++)
            for (int p = len[k] - n_new[i][k]; p < len[k]; p++, n++) {
                slot[n] = k;
                pos[n] = p;
            }
        struct batch b = {.n_tokens = n, .slot = slot, .pos = pos, .block_table = table, .blocks_per_slot = PER_SLOT};
        if (!left_out())
            check_attention(&b, len, LONG_SLOTS, LONG_BLOCKS, n_heads[i], 576, &(struct heads){0});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),       cmocka_unit_test(test_same_bits), cmocka_unit_test(test_store),
        cmocka_unit_test(test_bad_positions),  cmocka_unit_test(test_attention), cmocka_unit_test(test_seen_in_part),
        cmocka_unit_test(test_long_attention),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
