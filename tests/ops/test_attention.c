/* tests/ops/test_attention.c - attention over the paged cache against the formula in double. */
#include "tests/ops/attention_setup.h"

static void expect_attention(double *want, const struct setup *s, int t, int h)
{
    const struct heads *k = &s->heads;
    int kv = (k->first_head + h) / k->heads_per_kv - k->first_kv_head, pos = s->pos[t];
    const float *q = s->qkv.data + ((size_t)t * (k->n_heads + 2 * k->n_kv_heads) + h) * k->head_dim;
    double score[MANY_CACHED], sum = 0, max = -INFINITY;
    for (int i = 0; i <= pos; i++) {
        const float *key = s->k_cache.data + cache_at(s, s->slot[t], i, kv);
        score[i] = 0;
        for (int d = 0; d < k->head_dim; d++)
            score[i] += (double)k->scale * q[d] * key[d];
        if (k->cap > 0)
            score[i] = k->cap * tanh(score[i] / k->cap);
        if (k->alibi_slopes)
            score[i] += (double)k->alibi_slopes[h] * i;
        if ((k->window > 0 && i <= pos - k->window) || (k->chunk > 0 && i / k->chunk != pos / k->chunk))
            score[i] = -INFINITY;
        max = fmax(max, score[i]);
    }
    if (k->sinks) { /* sinks are float, the host's type */
        max = fmax(max, ((const float *)k->sinks)[h]);
        sum = exp(((const float *)k->sinks)[h] - max);
    }
    for (int i = 0; i <= pos; i++)
        sum += exp(score[i] - max);
    for (int d = 0; d < k->head_dim; d++)
        want[d] = 0;
    for (int i = 0; i <= pos; i++) {
        const float *value = s->v_cache.data + cache_at(s, s->slot[t], i, kv);
        double share = exp(score[i] - max) / sum;
        for (int d = 0; d < k->head_dim; d++)
            want[d] += share * value[d];
    }
}

/* Returns all outputs by the formula; the caller frees them. */
static double *expect_all(const struct setup *s)
{
    double *want = zeroed(s->out.n, sizeof *want);
    for (int t = 0; t < s->batch.n_tokens; t++)
        for (int h = 0; h < s->heads.n_heads; h++)
            expect_attention(want + ((size_t)t * s->heads.n_heads + h) * s->heads.head_dim, s, t, h);
    return want;
}

/* Fills the positions that the sequences have; the rest of the cache stays NaN, so that reading one key too many
 * shows. */
static void fill_cache(struct setup *s, const int *len)
{
    for (int slot = 0; slot < s->n_slots; slot++)
        for (int pos = 0; pos < len[slot]; pos++)
            for (int kv = 0; kv < s->heads.n_kv_heads; kv++) {
                random_fill(s->k_cache.data + cache_at(s, slot, pos, kv), s->heads.head_dim, &s->state, 2);
                random_fill(s->v_cache.data + cache_at(s, slot, pos, kv), s->heads.head_dim, &s->state, 2);
            }
}

/* Compares the batch as it is with the formula's outputs. */
static void compare_attention(struct setup *s, const double *want)
{
    const struct heads heads = s->heads;
    struct queue q = test_queue(2);
    ops->attention(&q, s->out.data, s->qkv.data, s->k_cache.data, s->v_cache.data, &s->heads, &s->batch);
    char what[120];
    snprintf(what, sizeof what, "attention heads %d/%d dim %d window %d, %d of %d tokens known to be alone",
             heads.n_heads, heads.n_kv_heads, heads.head_dim, heads.window, s->batch.n_alone, s->batch.n_tokens);
    close_enough(what, s->out.data, want, s->out.n, 5e-6, 5e-6);
}

static void check_attention(struct heads heads, const int *len, const int *n_new)
{
    if (left_out())
        return;
    struct setup s;
    setup_open(&s, heads, len, n_new);
    fill_cache(&s, len);
    double *want = expect_all(&s);
    compare_attention(&s, want);
    free(want);
    setup_close(&s);
}

static void test_attention(void **unused)
{
    (void)unused;
    static const float slopes[8] = {0.5f, 0.25f, 0.125f, 0.0625f, 1, 2, 0.03125f, 0.7f};
    static const float sinks[8] = {0.5f, -3, 2, 0, 80, 1, -200, 5};
    const struct heads shapes[] = {{4, 4, 8, 0, 0, 1, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {8, 2, 17, 0, 0, 4, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {3, 2, 64, 3, 1, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {5, 1, 33, 0, 0, 71, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {1, 1, 1, 7, 7, 1, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {0, 0, 16, 0, 0, 1, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 2, 128, 0, 0, 1, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL}};
    const int len[][SLOTS] = {{1, 1, 1}, {17, 80, 3}, {16, 33, 48}, {64, 0, 40}};
    const int n_new[][SLOTS] = {{1, 1, 1}, {1, 1, 3}, {16, 1, 48}, {2, 0, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int l = 0; l < 4; l++)
            for (int mode = 0; mode < 10; mode++) {
                struct heads heads = shapes[i];
                heads.scale = 1.0f / sqrtf((float)heads.head_dim);
                heads.window = (const int[]){0, 1, 20, 0, 0, 9, 0, 11, 0, 0}[mode];
                heads.chunk = mode < 8 ? 0 : mode == 8 ? 7 : 32;
                heads.alibi_slopes = mode == 3 ? slopes : NULL;
                heads.sinks = mode == 4 || mode == 5 ? sinks : NULL;
                heads.cap = mode == 6 || mode == 7 ? 0.75f : 0;
                check_attention(heads, len[l], n_new[l]);
            }
}

/* More single tokens than a few, alone and followed by longer pieces; the batch's hints about them change nothing. */
static void test_attention_many(void **unused)
{
    (void)unused;
    static const float sinks[20] = {0.5f, -3, 2, 0, 80, 1, -200, 5, 3, 3, 3, 1, -1, 0, 6, 2, 2, 9, 2, 1};
    static const float slopes[5] = {0.004f, 0.03f, 0.015f, 0.0078125f, 0.001f};
    const struct heads shapes[] = {{8, 2, 128, 0, 0, 4, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {3, 2, 64, 3, 1, 2, 0, 70, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 2, 80, 0, 0, 1, 0, 0, slopes, NULL, DTYPE_F32, 0, 0, NULL},
                                   {5, 1, 96, 0, 0, 71, 0, 0, slopes, NULL, DTYPE_F32, 0, 0, NULL},
                                   {20, 1, 64, 0, 0, 20, 0, 600, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 1, 256, 0, 0, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL}};
    int len[MANY_SLOTS], n_new[2][MANY_SLOTS], n_alone = MANY_SLOTS - 4;
    for (int i = 0; i < MANY_SLOTS; i++) {
        len[i] = (const int[]){1, 15, 16, 17, 300, 512, 513, 530, 1024, 1025, MANY_CACHED, 31}[i % 12];
        n_new[0][i] = 1;
        n_new[1][i] = i < n_alone || i % 3 == 0 ? 1 : len[i] < 20 ? len[i] : 20;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int mixed = 0; mixed < 2; mixed++) {
            struct heads heads = shapes[i];
            struct setup s;
            if (left_out())
                continue;
            heads.scale = 1.0f / sqrtf((float)heads.head_dim);
            heads.sinks = mixed == (int)(i % 2) ? sinks : NULL;
            heads.cap = i % 3 == 0 ? 1.5f : 0;
            setup_sized(&s, heads, MANY_SLOTS, MANY_BLOCKS, len, n_new[mixed]);
            fill_cache(&s, len);
            double *want = expect_all(&s);
            compare_attention(&s, want);
            s.batch.n_alone = 5;
            compare_attention(&s, want);
            s.batch.n_alone = mixed ? n_alone : s.batch.n_tokens;
            compare_attention(&s, want);
            free(want);
            setup_close(&s);
        }
}

/* Gives sequences [begin, end) the first n_blocks blocks of sequence begin. */
static void share_blocks(struct setup *s, int begin, int end, int n_blocks)
{
    for (int slot = begin + 1; slot < end; slot++)
        memcpy(s->table + slot * s->batch.blocks_per_slot, s->table + begin * s->batch.blocks_per_slot,
               (size_t)n_blocks * sizeof *s->table);
}

static void expect_prefix(const struct prefixes *p, int i, int first_token, int n_members, int n_blocks)
{
    const struct shared_prefix *prefix = &p->prefix[i];
    assert_int_equal(prefix->n_members, n_members);
    assert_int_equal(prefix->n_blocks, n_blocks);
    for (int m = 0; m < n_members; m++) {
        int t = p->member[prefix->first + m];
        assert_int_equal(t, first_token + m);
        assert_int_equal(p->place[t], prefix->first + m);
        assert_int_equal(p->prefix_of[t], i);
    }
}

/* The prefixes are as find_prefixes's comment says, and the same on every device as on the CPU. */
static void check_prefixes(const struct setup *s, struct prefixes *p)
{
    struct prefixes expected;
    struct queue q = test_queue(2);
    ops->find_prefixes(&q, p, &s->batch);
    ops_cpu.find_prefixes(&q, &expected, &s->batch);
    assert_memory_equal(p, &expected, sizeof expected);
}

/* Single tokens of sequences that begin with the same blocks: two prefixes, followed by whole blocks of their own or a
 * few keys; between them and after them tokens that share nothing, or too little. */
static void test_attention_shared(void **unused)
{
    (void)unused;
    static const float sinks[20] = {0.5f, -3, 2, 0, 80, 1, -200, 5, 3, 3, 3, 1, -1, 0, 6, 2, 2, 9, 2, 1};
    static const float slopes[4] = {0.004f, 0.03f, 0.015f, 0.0078125f};
    const struct heads shapes[] = {{8, 2, 128, 0, 0, 4, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {3, 2, 64, 3, 1, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {20, 1, 64, 0, 0, 20, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {4, 4, 128, 0, 0, 1, 0, 600, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {4, 4, 128, 0, 0, 1, 0, 0, slopes, NULL, DTYPE_F32, 0, 0, NULL},
                                   {2, 1, 80, 0, 0, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL}};
    int len[MANY_SLOTS], n_new[MANY_SLOTS];
    for (int i = 0; i < MANY_SLOTS; i++) {
        len[i] = i < 9 ? 273 + i * 40 : i < 11 ? 5 + i : i < 18 ? 993 + i * 5 : i < 21 ? 700 : 300 + i;
        n_new[i] = i < MANY_SLOTS - 1 ? 1 : 30; /* the last one is not a single token */
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int with_sinks = 0; with_sinks < 2; with_sinks++) {
            struct heads heads = shapes[i];
            struct setup s;
            struct prefixes p;
            if (left_out())
                continue;
            heads.scale = 1.0f / sqrtf((float)heads.head_dim);
            heads.sinks = with_sinks ? sinks : NULL;
            setup_sized(&s, heads, MANY_SLOTS, MANY_BLOCKS, len, n_new);
            share_blocks(&s, 0, 9, 17);
            share_blocks(&s, 11, 18, 62);
            share_blocks(&s, 18, 21, 43); /* too few tokens */
            s.batch.n_alone = MANY_SLOTS - 1;
            fill_cache(&s, len);
            check_prefixes(&s, &p);
            assert_int_equal(p.n_prefixes, 2);
            expect_prefix(&p, 0, 0, 9, 17);
            expect_prefix(&p, 1, 11, 7, 62);
            s.batch.prefixes = &p;
            double *want = expect_all(&s);
            compare_attention(&s, want);
            free(want);
            setup_close(&s);
        }
}

/* The prefixes that save most are shared: many tokens with few blocks, or few with many; blocks that are not full, or
 * do not exist, are never shared. Then random sequences and tables. */
static void test_prefixes(void **unused)
{
    (void)unused;
    const struct heads heads = {1, 1, 8, 0, 0, 1, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
    int len[MANY_SLOTS], n_new[MANY_SLOTS];
    struct setup s;
    struct prefixes p;
    for (int i = 0; i < MANY_SLOTS; i++) {
        len[i] = MANY_CACHED - 15; /* one key in the last block */
        n_new[i] = 1;
    }
    setup_sized(&s, heads, MANY_SLOTS, MANY_BLOCKS, len, n_new);
    s.batch.n_alone = MANY_SLOTS;
    share_blocks(&s, 0, MANY_SLOTS, 20);
    share_blocks(&s, 0, 5, MANY_BLOCKS);
    check_prefixes(&s, &p); /* 23 x 20 blocks are more than 4 x 67 */
    assert_int_equal(p.n_prefixes, 1);
    expect_prefix(&p, 0, 0, MANY_SLOTS, 20);
    s.batch.n_alone = 16; /* 15 x 20 blocks are still more; 4 x 67 are more than 12 x 20 */
    check_prefixes(&s, &p);
    expect_prefix(&p, 0, 0, 16, 20);
    s.batch.n_alone = 13;
    check_prefixes(&s, &p);
    assert_int_equal(p.n_prefixes, 2);
    expect_prefix(&p, 0, 0, 5, MANY_BLOCKS - 1);
    expect_prefix(&p, 1, 5, 8, 20);
    s.pos[2] = 16 * 30 + 3;
    s.table[40] = -1; /* of sequence 0, so that the prefix ends there for all */
    check_prefixes(&s, &p);
    assert_int_equal(p.n_prefixes, 1);
    expect_prefix(&p, 0, 0, 13, 20);
    s.batch.n_alone = MANY_SLOTS;
    for (int round = 0; round < 50; round++) {
        for (int slot = 1; slot < MANY_SLOTS; slot++) {
            int other = random_int(&s.state, slot), n = random_int(&s.state, MANY_BLOCKS);
            memcpy(s.table + slot * MANY_BLOCKS, s.table + other * MANY_BLOCKS, (size_t)n * sizeof *s.table);
            s.pos[slot] = random_int(&s.state, MANY_CACHED);
        }
        check_prefixes(&s, &p);
    }
    setup_close(&s);
}

/* Longer pieces of sequences, from their beginning and from the middle, around tile boundaries. */
static void test_attention_prompts(void **unused)
{
    (void)unused;
    static const float slopes[3] = {0.004f, 0.03f, 0.015f}, sinks[4] = {0.5f, -3, 4, 80};
    const int len[] = {133, 290, 17, 257}, n_new[] = {133, 45, 17, 2}, dims[] = {64, 80, 96, 128, 256};
    for (int i = 0; i < 5; i++)
        for (int mode = 0; mode < 9; mode++) {
            if (left_out())
                continue;
            struct heads heads = {.n_heads = 4, .n_kv_heads = 1, .heads_per_kv = 4, .head_dim = dims[i]};
            if (mode >= 4 && mode < 6) /* a rank's share, which has not all query heads of its KV heads */
                heads = (struct heads){.n_heads = 3,
                                       .n_kv_heads = 2,
                                       .head_dim = dims[i],
                                       .first_head = 3,
                                       .first_kv_head = 1,
                                       .heads_per_kv = 2,
                                       .alibi_slopes = slopes};
            heads.window = (const int[]){0, 1, 100, 128, 0, 60, 70, 0, 0}[mode];
            heads.chunk = mode < 7 ? 0 : mode == 7 ? 48 : 101;
            heads.cap = mode == 6 ? 1.5f : 0;
            heads.sinks = mode % 2 ? NULL : sinks;
            heads.sinks_type = DTYPE_F32;
            heads.scale = 1.0f / sqrtf((float)heads.head_dim);
            struct setup s;
            setup_sized(&s, heads, 4, 20, len, n_new);
            fill_cache(&s, len);
            double *want = expect_all(&s);
            compare_attention(&s, want);
            free(want);
            setup_close(&s);
        }
}

/* A prompt gives the same bits as a whole and in chunks of more than a few tokens, whatever else is in the batch. */
static void test_attention_chunks(void **unused)
{
    (void)unused;
    const int len[] = {150, 40}, n_new[] = {150, 40}, cut[] = {0, 17, 60, 133, 190};
    const struct heads shapes[] = {
        {.n_heads = 4, .n_kv_heads = 2, .head_dim = 40, .heads_per_kv = 2, .scale = 0.15f},
        {.n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .heads_per_kv = 4, .scale = 0.125f},
        {.n_heads = 2, .n_kv_heads = 2, .head_dim = 80, .heads_per_kv = 1, .scale = 0.11f, .window = 50},
        {.n_heads = 2, .n_kv_heads = 1, .head_dim = 256, .heads_per_kv = 2, .scale = 0.06f},
        {.n_heads = 3,
         .n_kv_heads = 2,
         .head_dim = 128,
         .first_head = 3,
         .first_kv_head = 1,
         .heads_per_kv = 2,
         .scale = 0.09f}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct setup s;
        struct queue q = test_queue(2);
        setup_sized(&s, shapes[i], 2, 20, len, n_new);
        fill_cache(&s, len);
        size_t row = (size_t)(shapes[i].n_heads * shapes[i].head_dim);
        size_t qkv_row = row + 2 * (size_t)(shapes[i].n_kv_heads * shapes[i].head_dim);
        ops->attention(&q, s.out.data, s.qkv.data, s.k_cache.data, s.v_cache.data, &s.heads, &s.batch);
        for (int c = 0; c < 4; c++) {
            struct batch chunk = s.batch;
            size_t n = (size_t)(cut[c + 1] - cut[c]), from = (size_t)cut[c];
            struct guarded out = guarded_open(n * row);
            chunk.n_tokens = (int)n;
            chunk.slot += from;
            chunk.pos += from;
            ops->attention(&q, out.data, s.qkv.data + from * qkv_row, s.k_cache.data, s.v_cache.data, &s.heads, &chunk);
            assert_memory_equal(out.data, s.out.data + from * row, n * row * sizeof *out.data);
            guarded_close(&out);
        }
        setup_close(&s);
    }
}

/* If a query is not a number, neither is any output of its head; all others are unchanged. */
static void check_nan(struct heads heads, int n_slots, int blocks_per_slot, const int *len, const int *n_new, int t)
{
    if (left_out())
        return;
    int head = heads.n_heads - 1, dim = heads.head_dim, n_nan = 0;
    struct setup s;
    setup_sized(&s, heads, n_slots, blocks_per_slot, len, n_new);
    fill_cache(&s, len);
    s.qkv.data[((size_t)t * (size_t)(heads.n_heads + 2 * heads.n_kv_heads) + (size_t)head) * (size_t)dim] = NAN;
    struct queue q = test_queue(2);
    ops->attention(&q, s.out.data, s.qkv.data, s.k_cache.data, s.v_cache.data, &s.heads, &s.batch);
    double *want = zeroed(s.out.n, sizeof *want);
    for (int i = 0; i < s.batch.n_tokens * heads.n_heads; i++)
        if (i != t * heads.n_heads + head)
            expect_attention(want + (size_t)i * (size_t)dim, &s, i / heads.n_heads, i % heads.n_heads);
    float *got = s.out.data + (size_t)(t * heads.n_heads + head) * (size_t)dim;
    for (int d = 0; d < dim; d++) {
        n_nan += isnan(got[d]);
        got[d] = 0;
    }
    assert_int_equal(n_nan, dim);
    close_enough("attention beside a NaN query", s.out.data, want, s.out.n, 5e-6, 5e-6);
    free(want);
    setup_close(&s);
}

/* Keys in one part and in several, of few tokens and of many, alone and with neighbours. */
static void test_attention_nan(void **unused)
{
    (void)unused;
    const struct heads heads = {4, 2, 64, 0, 0, 2, 0.125f, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
    const int few[] = {17, 80, 3}, long_ones[] = {300, MANY_CACHED, 18}, one[] = {1, 1, 1}, more[] = {16, 1, 3};
    int many[MANY_SLOTS], ones[MANY_SLOTS];
    for (int i = 0; i < MANY_SLOTS; i++) {
        many[i] = 1 + i * 45;
        ones[i] = 1;
    }
    for (int t = 0; t < 3; t++) {
        check_nan(heads, SLOTS, BLOCKS_PER_SLOT, few, one, t);
        check_nan(heads, SLOTS, MANY_BLOCKS, long_ones, one, t);
        check_nan(heads, SLOTS, BLOCKS_PER_SLOT, few, more, 8 * t);
        check_nan(heads, SLOTS, MANY_BLOCKS, long_ones, more, 8 * t);
        check_nan(heads, MANY_SLOTS, MANY_BLOCKS, many, ones, 11 * t);
    }
}

/* A query gives the same bits alone, in a batch and with more threads. dim: of a head, at most 128 */
static void check_invariance(int dim)
{
    const int len[SLOTS] = {40, 60, 33}, n_new[SLOTS] = {40, 9, 33};
    struct heads heads = {6, 3, dim, 0, 0, 2, 0.2f, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
    const size_t n = 6 * (size_t)dim;
    struct setup s;
    setup_open(&s, heads, len, n_new);
    fill_cache(&s, len);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct queue q = test_queue(n_threads);
        ops->attention(&q, s.out.data, s.qkv.data, s.k_cache.data, s.v_cache.data, &s.heads, &s.batch);
        for (int t = 0; t < s.batch.n_tokens; t++) {
            if (left_out())
                continue;
            struct batch one = s.batch;
            float out[6 * 128];
            one.n_tokens = 1;
            one.slot += t;
            one.pos += t;
            struct queue single = test_queue(1);
            ops->attention(&single, out, s.qkv.data + (size_t)t * 2 * n, s.k_cache.data, s.v_cache.data, &s.heads,
                           &one);
            if (!backend_is_invariant() &&
                backend_act() != DTYPE_F32) { /* prefill there uses another algorithm than decode */
                double want[6 * 128];
                for (size_t i = 0; i < n; i++)
                    want[i] = out[i];
                close_enough("alone and in a batch", s.out.data + (size_t)t * n, want, n, 0, 0);
                continue;
            }
            assert_memory_equal(out, s.out.data + (size_t)t * n, n * sizeof *out);
        }
    }
    setup_close(&s);
}

static void test_attention_invariance(void **unused)
{
    (void)unused;
    check_invariance(40);
    check_invariance(64);
    check_invariance(128);
}

/* Rows of every sequence, and sequences whose rows stay together. */
enum { ALIKE_ROWS = 8, ALIKE_WHOLE = 3 };

/* Fills *mixed: of all sequences but the last ones one row, then all rows of these. row[i]: that row's number in the
 * whole batch */
static void mix_rows(struct setup *mixed, const struct setup *s, size_t qkv_row, int *row)
{
    int n = 0, n_single = s->n_slots - ALIKE_WHOLE;
    for (int slot = 0; slot < s->n_slots; slot++)
        for (int i = 0; i < ALIKE_ROWS; i++)
            if (slot >= n_single || i == slot * 5 % ALIKE_ROWS)
                row[n++] = slot * ALIKE_ROWS + i;
    for (int i = 0; i < n; i++) {
        mixed->slot[i] = s->slot[row[i]];
        mixed->pos[i] = s->pos[row[i]];
        memcpy(mixed->qkv.data + (size_t)i * qkv_row, s->qkv.data + (size_t)row[i] * qkv_row,
               qkv_row * sizeof *s->qkv.data);
    }
    mixed->batch.n_tokens = n;
    mixed->batch.n_alone = n_single;
}

static void run_attention(const struct setup *s, float *out, const float *qkv, const struct batch *batch)
{
    struct queue q = test_queue(2);
    ops->attention(&q, out, qkv, s->k_cache.data, s->v_cache.data, &s->heads, batch);
}

/* Rows of prompts, the same rows as single tokens among others, and alone. */
static void check_alike(struct heads heads, int n_slots, int n_blocks, const int *len)
{
    if (left_out())
        return;
    int row[MANY_SLOTS * ALIKE_ROWS], n_new[MANY_SLOTS];
    size_t n = (size_t)(heads.n_heads * heads.head_dim);
    size_t qkv_row = n + 2 * (size_t)(heads.n_kv_heads * heads.head_dim);
    struct setup s, mixed;
    for (int i = 0; i < n_slots; i++)
        n_new[i] = ALIKE_ROWS;
    setup_sized(&mixed, heads, n_slots, n_blocks, len, n_new);
    setup_sized(&s, heads, n_slots, n_blocks, len, n_new);
    fill_cache(&s, len);
    mix_rows(&mixed, &s, qkv_row, row);
    run_attention(&s, s.out.data, s.qkv.data, &s.batch);
    run_attention(&s, mixed.out.data, mixed.qkv.data, &mixed.batch);
    for (int i = 0; i < mixed.batch.n_tokens; i++)
        assert_memory_equal(mixed.out.data + (size_t)i * n, s.out.data + (size_t)row[i] * n, n * sizeof *s.out.data);
    for (int i = 0; i < n_slots; i += 3) {
        struct batch one = mixed.batch;
        struct guarded out = guarded_open(n);
        one.n_tokens = 1;
        one.n_alone = i % 2;
        one.slot += i;
        one.pos += i;
        run_attention(&s, out.data, mixed.qkv.data + (size_t)i * qkv_row, &one);
        assert_memory_equal(out.data, s.out.data + (size_t)row[i] * n, n * sizeof *out.data);
        guarded_close(&out);
    }
    setup_close(&mixed);
    setup_close(&s);
}

/* Tokens alone, among others and as rows of a prompt give the same bits on invariant devices: lengths around steps of
 * keys and blocks of the cache, all sizes of heads that have kernels; then many heads with few keys. */
static void test_attention_alike(void **unused)
{
    (void)unused;
    static const float slopes[48] = {0.004f, 0.03f, 0.015f, 0.0078125f, 0.5f, 0.001f, 0.25f, 1};
    static const float sinks[48] = {0.5f, -3, 4, 80, 0, 1, -200, 5};
    const int dims[] = {64, 80, 96, 128, 256}, per_kv[] = {1, 2, 3, 4, 5, 6, 7, 8, 20};
    const int len[] = {1025, 130, MANY_CACHED, 259, 15, 390, 1000, 520};
    const int short_ones[] = {8, 15, 66, 130, 129, 16, 17, 33, 135, 136, 128, 127, 192, 48, 64, 140};
    if (!backend_is_invariant())
        return;
    for (int d = 0; d < 5; d++)
        for (int mode = 0; mode < 11; mode++) {
            int of_kv = per_kv[(d + mode) % 9], n_kv = of_kv < 4 ? 2 : 1;
            if (!backend_is_device() && (d + mode) % 5 != 0)
                continue;
            if (mode >= 9)
                of_kv = mode - 8, n_kv = 24;
            struct heads heads = {of_kv * n_kv, n_kv, dims[d], 0, 0, of_kv, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
            heads.window = (const int[]){0, 0, 1, 0, 100, 129, 0, 900, 0, 0, 40}[mode];
            heads.alibi_slopes = mode == 3 || mode == 5 ? slopes : NULL;
            heads.sinks = mode == 1 || mode == 5 || mode == 7 ? sinks : NULL;
            heads.scale = (mode == 8 ? 8.0f : 1.0f) / sqrtf((float)heads.head_dim);
            if (mode < 9)
                check_alike(heads, 8, MANY_BLOCKS, len);
            else
                check_alike(heads, 16, 12, short_ones);
        }
}

/* The same with thousands of keys, whose steps blocks divide and hand on: lengths around rounds of steps, up to 8 and
 * up to 20 query heads a KV head, the first key seen amid the steps. */
static void test_attention_alike_long(void **unused)
{
    (void)unused;
    static const float sinks[20] = {0.5f, -3, 4, 80, 0, 1, -200, 5};
    static const float slopes[20] = {0.004f, 0.03f, 0.015f, 0.0078125f, 0.5f, 0.001f, 0.25f, 1};
    const int dims[] = {64, 80, 96, 128, 256}, per_kv[] = {4, 9, 1, 8, 20};
    const int len[][4] = {{6400, 4102, 1200, 40}, {1032, 2054, 6399, 1024}, {2055, 3900, 900, 5000}};
    if (!backend_is_invariant())
        return;
    for (int d = 0; d < 5; d++)
        for (int mode = 0; mode < 3; mode++) {
            if (!backend_is_device() && (d + mode) % 5 != 0)
                continue;
            int of_kv = per_kv[(d + mode) % 5], n_kv = of_kv < 8 ? 2 : 1;
            struct heads heads = {of_kv * n_kv, n_kv, dims[d], 0, 0, of_kv, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
            heads.window = mode == 2 ? 1500 : 0;
            heads.sinks = mode == 1 ? sinks : NULL;
            heads.alibi_slopes = mode == 2 ? slopes : NULL;
            heads.scale = (mode == 0 ? 4.0f : 1.0f) / sqrtf((float)heads.head_dim);
            check_alike(heads, 4, 400, len[mode]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),         cmocka_unit_test(test_attention_shared),
        cmocka_unit_test(test_prefixes),          cmocka_unit_test(test_attention_many),
        cmocka_unit_test(test_attention_prompts), cmocka_unit_test(test_attention_chunks),
        cmocka_unit_test(test_attention_nan),     cmocka_unit_test(test_attention_invariance),
        cmocka_unit_test(test_attention_alike),   cmocka_unit_test(test_attention_alike_long),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
