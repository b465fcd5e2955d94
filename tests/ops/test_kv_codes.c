/* tests/ops/test_kv_codes.c - keys and values in FP8: the nearest code is stored, and attention over codes equals
 * attention over the numbers that they represent. */
#include "tests/ops/check.h"

enum { MOST_SLOTS = 24, BLOCKS_PER_SLOT = 20, MOST_TOKENS = 400 };

/* A batch over caches of codes; `want` has the same cache as numbers. */
struct setup {
    struct heads heads;
    struct batch batch;
    int n_slots;
    int32_t slot[MOST_TOKENS], pos[MOST_TOKENS], rope_len[MOST_TOKENS], table[MOST_SLOTS * BLOCKS_PER_SLOT];
    float scales[16]; /* [2, n_kv_heads] */
    size_t n_cache;   /* elements */
    uint8_t *k, *v;
    float *k_wide, *v_wide;
    struct guarded qkv, out;
    uint64_t state;
};

static size_t cache_at(const struct setup *s, int slot, int pos, int kv)
{
    int block = s->table[slot * BLOCKS_PER_SLOT + pos / 16];
    return (((size_t)block * s->heads.n_kv_heads + kv) * 16 + pos % 16) * s->heads.head_dim;
}

static void setup_open(struct setup *s, struct heads heads, int n_slots, const int *len, const int *n_new)
{
    int n = 0;
    *s = (struct setup){.heads = heads, .n_slots = n_slots, .state = 77};
    backend_n_blocks = n_slots * BLOCKS_PER_SLOT + 1;
    backend_n_slots = n_slots;
    for (int i = 0; i < n_slots * BLOCKS_PER_SLOT; i++)
        s->table[i] = n_slots * BLOCKS_PER_SLOT - i;
    for (int slot = 0; slot < n_slots; slot++)
        for (int i = len[slot] - n_new[slot]; i < len[slot]; i++, n++) {
            s->slot[n] = slot;
            s->pos[n] = i;
            s->rope_len[n] = len[slot];
        }
    for (int i = 0; i < 2 * heads.n_kv_heads; i++)
        s->scales[i] = 0.01f + 0.003f * (float)i;
    s->heads.kv_scales = s->scales;
    s->batch = (struct batch){.n_tokens = n,
                              .slot = s->slot,
                              .pos = s->pos,
                              .rope_len = s->rope_len,
                              .block_table = s->table,
                              .blocks_per_slot = BLOCKS_PER_SLOT};
    s->n_cache = (size_t)backend_n_blocks * 16 * (size_t)(heads.n_kv_heads * heads.head_dim);
    s->k = zeroed(s->n_cache, 1);
    s->v = zeroed(s->n_cache, 1);
    s->k_wide = zeroed(s->n_cache, sizeof(float));
    s->v_wide = zeroed(s->n_cache, sizeof(float));
    s->qkv = guarded_open((size_t)n * (size_t)((heads.n_heads + 2 * heads.n_kv_heads) * heads.head_dim));
    s->out = guarded_open((size_t)n * (size_t)(heads.n_heads * heads.head_dim));
    random_fill(s->qkv.data, s->qkv.n, &s->state, 2);
}

static void setup_close(struct setup *s)
{
    free(s->k);
    free(s->v);
    free(s->k_wide);
    free(s->v_wide);
    guarded_close(&s->qkv);
    guarded_close(&s->out);
}

/* Fills the sequences' positions with random codes, the rest with NaN codes, so that reading one key too many shows. */
static void fill_cache(struct setup *s, const int *len)
{
    memset(s->k, 0xff, s->n_cache);
    memset(s->v, 0x7f, s->n_cache);
    for (int slot = 0; slot < s->n_slots; slot++)
        for (int pos = 0; pos < len[slot]; pos++)
            for (int kv = 0; kv < s->heads.n_kv_heads; kv++)
                for (int d = 0; d < s->heads.head_dim; d++) {
                    size_t i = cache_at(s, slot, pos, kv) + (size_t)d;
                    s->k[i] = (uint8_t)(random_int(&s->state, 0x70) | random_int(&s->state, 2) << 7);
                    s->v[i] = (uint8_t)(random_int(&s->state, 0x70) | random_int(&s->state, 2) << 7);
                    s->k_wide[i] = code_value(CODES_E4M3, s->k[i]) * s->scales[kv];
                    s->v_wide[i] = code_value(CODES_E4M3, s->v[i]) * s->scales[s->heads.n_kv_heads + kv];
                }
}

static void expect_row(double *want, const struct setup *s, int t, int h)
{
    const struct heads *k = &s->heads;
    int kv = (k->first_head + h) / k->heads_per_kv - k->first_kv_head, pos = s->pos[t];
    const float *q = s->qkv.data + ((size_t)t * (k->n_heads + 2 * k->n_kv_heads) + h) * k->head_dim;
    double score[BLOCKS_PER_SLOT * 16], sum = 0, max = -INFINITY;
    for (int i = 0; i <= pos; i++) {
        score[i] = 0;
        for (int d = 0; d < k->head_dim; d++)
            score[i] += (double)k->scale * q[d] * s->k_wide[cache_at(s, s->slot[t], i, kv) + (size_t)d];
        if (k->cap > 0)
            score[i] = k->cap * tanh(score[i] / k->cap);
        if (k->window > 0 && i <= pos - k->window)
            score[i] = -INFINITY;
        max = fmax(max, score[i]);
    }
    for (int i = 0; i <= pos; i++)
        sum += exp(score[i] - max);
    if (k->sinks)
        sum += exp(((const float *)k->sinks)[h] - max);
    for (int d = 0; d < k->head_dim; d++)
        want[d] = 0;
    for (int i = 0; i <= pos; i++)
        for (int d = 0; d < k->head_dim; d++)
            want[d] += exp(score[i] - max) / sum * s->v_wide[cache_at(s, s->slot[t], i, kv) + (size_t)d];
}

static void compare(struct setup *s)
{
    struct queue q = test_queue(2);
    char what[100];
    ops->attention(&q, s->out.data, s->qkv.data, s->k, s->v, &s->heads, &s->batch);
    assert_int_equal(q.err.code, ERR_NONE);
    double *want = zeroed(s->out.n, sizeof *want);
    for (int t = 0; t < s->batch.n_tokens; t++)
        for (int h = 0; h < s->heads.n_heads; h++)
            expect_row(want + ((size_t)t * s->heads.n_heads + h) * s->heads.head_dim, s, t, h);
    (void)snprintf(what, sizeof what, "attention over codes, heads %d/%d of %d, %d tokens, %d alone", s->heads.n_heads,
                   s->heads.n_kv_heads, s->heads.head_dim, s->batch.n_tokens, s->batch.n_alone);
    close_enough(what, s->out.data, want, s->out.n, 1e-5, 1e-5);
    free(want);
}

/* Single tokens, few and many, and longer pieces; widths with and without a specialised kernel on a device. */
static void test_attention(void **unused)
{
    (void)unused;
    static const float sinks[4] = {0.5f, -3, 2, 0};
    static const int dims[] = {8, 17, 64, 80, 96, 128, 256};
    int len[MOST_SLOTS], n_new[3][MOST_SLOTS];
    for (int i = 0; i < MOST_SLOTS; i++) {
        len[i] = (const int[]){1, 15, 16, 17, 300, 31, 130, 64}[i % 8];
        n_new[0][i] = n_new[1][i] = 1;
        n_new[2][i] = i % 8 == 4 || i % 8 == 6 ? 45 : 1;
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int mode = 0; mode < 6; mode++) {
            if (left_out())
                continue;
            int way = mode % 3; /* a few tokens, many, pieces of sequences */
            struct heads heads = {.n_heads = 4, .n_kv_heads = 2, .heads_per_kv = 2, .head_dim = dims[i]};
            if (mode >= 4) /* a rank's share, which has not all query heads of its KV heads */
                heads.n_heads = 3, heads.first_head = 3, heads.first_kv_head = 1;
            heads.scale = 0.5f / sqrtf((float)dims[i]);
            heads.sinks = mode % 2 ? sinks : NULL;
            heads.window = mode == 2 ? 40 : 0;
            heads.cap = mode == 3 ? 2 : 0;
            struct setup s;
            setup_open(&s, heads, way == 0 ? 8 : way == 1 ? MOST_SLOTS : 7, len, n_new[way]);
            fill_cache(&s, len);
            compare(&s);
            s.batch.n_alone = way < 2 ? s.batch.n_tokens : 4;
            compare(&s);
            setup_close(&s);
        }
}

/* With scales of 1, and numbers that codes represent exactly, the bits are those of a cache of activations, where both
 * have the same kernel. */
static void test_exact(void **unused)
{
    (void)unused;
    if (backend_is_device() && backend_is_invariant())
        return;
    const int len[] = {90, 33, 16}, n_new[] = {5, 2, 1};
    struct heads heads = {.n_heads = 4, .n_kv_heads = 2, .heads_per_kv = 2, .head_dim = 64, .scale = 0.02f};
    struct setup s;
    setup_open(&s, heads, 3, len, n_new);
    for (int i = 0; i < 4; i++)
        s.scales[i] = 1;
    fill_cache(&s, len);
    struct queue q = test_queue(1);
    struct guarded other = guarded_open(s.out.n);
    ops->attention(&q, s.out.data, s.qkv.data, s.k, s.v, &s.heads, &s.batch);
    s.heads.kv_scales = NULL;
    ops->attention(&q, other.data, s.qkv.data, s.k_wide, s.v_wide, &s.heads, &s.batch);
    assert_memory_equal(other.data, s.out.data, s.out.n * sizeof(float));
    guarded_close(&other);
    setup_close(&s);
}

/* k and v become the nearest codes of x over the scale, those beyond the largest number become that number. */
static void test_store(void **unused)
{
    (void)unused;
    const int len[] = {17, 33, 5}, n_new[] = {17, 3, 1};
    struct heads heads = {.n_heads = 2, .n_kv_heads = 2, .heads_per_kv = 1, .head_dim = 40};
    struct setup s;
    setup_open(&s, heads, 3, len, n_new);
    s.scales[3] = 0.001f; /* the second head's values: most are too large */
    struct queue q = test_queue(1);
    float *before = zeroed(s.qkv.n, sizeof *before);
    memcpy(before, s.qkv.data, s.qkv.n * sizeof *before);
    ops->qkv_store(&q, s.qkv.data, s.k, s.v, &s.heads, &s.batch, NULL, NULL, &(struct head_norms){0});
    int n_largest = 0;
    for (int t = 0; t < s.batch.n_tokens; t++)
        for (int part = 0; part < 2; part++)
            for (int kv = 0; kv < 2; kv++)
                for (int d = 0; d < heads.head_dim; d++) {
                    float x = before[((size_t)t * 6 + 2 + 2 * (size_t)part + (size_t)kv) * 40 + (size_t)d];
                    uint8_t want = float_to_e4m3(x / s.scales[2 * part + kv]);
                    size_t at = cache_at(&s, s.slot[t], s.pos[t], kv) + (size_t)d;
                    assert_int_equal((part == 0 ? s.k : s.v)[at], want);
                    n_largest += (want & 0x7f) == 0x7e;
                }
    assert_true(n_largest > 100);
    free(before);
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_store),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
