/* tests/ops/test_store_and_attend.c - qkv_store and attention as one operation: the bits that the two leave, in the
 * results and in the cache. A backend need not have it; GPUs have it for 16-bit types. */
#include "tests/ops/attention_setup.h"
#include "tests/ops/hopper.h"

struct outcome {
    float *out, *k_cache, *v_cache;
};

static float *copied(const struct guarded *of)
{
    float *to = zeroed(of->n, sizeof *to);
    memcpy(to, of->data, of->n * sizeof *to);
    return to;
}

static void forget(struct outcome *o)
{
    free(o->out);
    free(o->k_cache);
    free(o->v_cache);
}

/* Runs the step over copies of its cache; at_once: by the operation of this test, which may be refused. */
static bool run_step(struct setup *s, const struct rope *rope, const float *cos_sin, bool at_once, struct outcome *o)
{
    const struct head_norms none = {0};
    struct queue q = test_queue(1);
    struct guarded qkv = guarded_open(s->qkv.n);
    bool done = true;
    memcpy(qkv.data, s->qkv.data, qkv.n * sizeof *qkv.data);
    *o = (struct outcome){zeroed(s->out.n, sizeof *o->out), copied(&s->k_cache), copied(&s->v_cache)};
    if (at_once) {
        done = ops->store_and_attend(&q, o->out, qkv.data, o->k_cache, o->v_cache, &s->heads, &s->batch, rope, cos_sin,
                                     &none);
        assert_memory_equal(qkv.data, s->qkv.data, qkv.n * sizeof *qkv.data);
    } else {
        ops->qkv_store(&q, qkv.data, o->k_cache, o->v_cache, &s->heads, &s->batch, rope, cos_sin, &none);
        ops->attention(&q, o->out, qkv.data, o->k_cache, o->v_cache, &s->heads, &s->batch);
    }
    assert_int_equal(q.err.code, ERR_NONE);
    guarded_close(&qkv);
    return done;
}

/* Gives the sequences keys and values up to their new token, whose place holds a number that would show. */
static void fill_cache(struct setup *s)
{
    const int row = s->heads.head_dim;
    random_fill(s->k_cache.data, s->k_cache.n, &s->state, 2);
    random_fill(s->v_cache.data, s->v_cache.n, &s->state, 2);
    for (int t = 0; t < s->batch.n_tokens; t++)
        for (int kv = 0; kv < s->heads.n_kv_heads; kv++)
            for (int d = 0; d < row; d++) {
                s->k_cache.data[cache_at(s, s->slot[t], s->pos[t], kv) + (size_t)d] = 1e4f;
                s->v_cache.data[cache_at(s, s->slot[t], s->pos[t], kv) + (size_t)d] = NAN;
            }
}

static void make_rope(struct rope *r, int dims)
{
    *r = (struct rope){.layout = ROPE_HALF, .dims = dims, .attention_scaling = 1};
    for (int j = 0; j < dims / 2; j++)
        r->inv_freq[j] = (float)pow(10000, -2.0 * j / dims);
}

#define SHORT 768 /* tokens of a sequence whose keys invariant devices do not divide */

/* Is the operation there for heads that its kernels take? Invariant devices have it where attention's kernel of prompts
 * takes them, too, for short sequences. */
static bool is_taken(const struct heads *heads, int longest)
{
    if (!backend_is_device() || backend_act() == DTYPE_F32)
        return false;
    return !backend_is_invariant() || (heads->cap == 0 && heads->chunk == 0 && longest > 0 && is_hopper());
}

/* longest: of struct batch. Without it invariant devices may refuse some batches. */
static void check_both(struct heads heads, int n_seqs, bool wanted, int longest)
{
    static const int lengths[] = {1, 15, 16, 17, 300, 512, 513, 530, 1024, 1025, MANY_CACHED, 31};
    int len[MANY_SLOTS], n_new[MANY_SLOTS];
    struct setup s;
    struct rope rope;
    if (left_out())
        return;
    for (int i = 0; i < n_seqs; i++)
        len[i] = longest > 0 && lengths[i % 12] > longest ? longest : lengths[i % 12], n_new[i] = 1;
    heads.scale = 1.0f / sqrtf((float)heads.head_dim);
    setup_sized(&s, heads, n_seqs, MANY_BLOCKS, len, n_new);
    s.batch.n_alone = n_seqs;
    s.batch.longest = longest;
    fill_cache(&s);
    make_rope(&rope, heads.head_dim);
    struct guarded cos_sin = guarded_open((size_t)(n_seqs * heads.head_dim));
    struct queue q = test_queue(1);
    ops->rope_table(&q, cos_sin.data, &rope, s.pos, s.rope_len, n_seqs);
    struct outcome want, got;
    run_step(&s, &rope, cos_sin.data, false, &want);
    bool done = run_step(&s, &rope, cos_sin.data, true, &got);
    bool taken = wanted && is_taken(&heads, longest), any = wanted && backend_is_invariant() && longest == 0;
    if (done != taken && !any)
        fail_msg("%d sequences of up to %d tokens, heads %d/%d of %d: %s", n_seqs, longest, heads.n_heads,
                 heads.n_kv_heads, heads.head_dim, done ? "taken" : "refused");
    if (done) {
        assert_memory_equal(got.out, want.out, s.out.n * sizeof *got.out);
        assert_memory_equal(got.k_cache, want.k_cache, s.k_cache.n * sizeof *got.k_cache);
        assert_memory_equal(got.v_cache, want.v_cache, s.v_cache.n * sizeof *got.v_cache);
        for (size_t i = 0; i < s.out.n; i++)
            assert_true(isfinite(got.out[i]));
    }
    forget(&want);
    forget(&got);
    guarded_close(&cos_sin);
    setup_close(&s);
}

static void test_heads(void **unused)
{
    (void)unused;
    static const float sinks[20] = {0.5f, -3, 2, 0, 80, 1, -200, 5, 3, 3, 3, 1, -1, 0, 6, 2, 2, 9, 2, 1};
    const struct heads shapes[] = {
        {8, 2, 128, 0, 0, 4, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
        {8, 4, 64, 8, 4, 2, 0, 0, NULL, sinks, DTYPE_F32, 0, 0, NULL},
        {16, 1, 64, 0, 0, 16, 0, 128, NULL, sinks, DTYPE_F32, 0, 0, NULL},
        {9, 1, 128, 9, 1, 9, 0, 17, NULL, NULL, DTYPE_F32, 0, 3.0f, NULL},
        {2, 2, 128, 0, 0, 1, 0, 0, NULL, NULL, DTYPE_F32, 64, 0, NULL},
    };
    static const int n_seqs[] = {1, 7, 16, 17, MANY_SLOTS};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t n = 0; n < sizeof n_seqs / sizeof n_seqs[0]; n++)
            for (int longest = 0; longest <= (backend_is_invariant() ? SHORT : 0); longest += SHORT)
                check_both(shapes[i], n_seqs[n], true, longest);
}

/* Heads of other sizes, more query heads than an item has, KV heads without all of their query heads. */
static void test_refused(void **unused)
{
    (void)unused;
    const struct heads shapes[] = {{4, 2, 80, 0, 0, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {20, 1, 64, 0, 0, 20, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL},
                                   {3, 2, 64, 3, 1, 2, 0, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_both(shapes[i], 17, false, SHORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_refused),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
