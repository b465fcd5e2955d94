/* tests/ops/test_guard.c - the shell that all tests of operations go through (tests/support/backend.h): operations with
 * one mistake each, made from correct ones, and the shell's reports of them. */
#include "tests/ops/check.h"

enum { ROWS = 3, COLS = 21, N = ROWS * COLS };

static enum mistake { NONE, BEFORE, BEHIND, UNWRITTEN, INPUT, WEIGHT } mistake;

/* Changes one byte of the backend's memory. */
static void spoil(struct queue *q, void *at)
{
    unsigned char byte;
    backend_real_ops()->download(q, &byte, at, 1);
    backend_real_ops()->wait(q);
    byte ^= 0x10;
    backend_real_ops()->upload(q, at, 1, &byte, 1, 1, 1);
    backend_real_ops()->wait(q);
}

static void bad_matmul(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       int n_tokens, bool accumulate)
{
    size_t bytes = dtype_bytes(backend_act()), rows = (size_t)w->rows;
    backend_real_ops()->matmul(q, out, x, w, bias, mistake == UNWRITTEN ? n_tokens - 1 : n_tokens, accumulate);
    if (mistake == BEFORE)
        spoil(q, (char *)out - 1);
    if (mistake == BEHIND)
        spoil(q, (char *)out + (size_t)n_tokens * rows * bytes);
    if (mistake == INPUT)
        spoil(q, (char *)x + 5 * bytes);
    if (mistake == WEIGHT)
        spoil(q, (char *)w->data + rows * (size_t)w->cols * dtype_bytes(w->type) - 1);
}

static void bad_feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                     const struct sampler *s, int n_tokens)
{
    backend_real_ops()->feed(q, token, planned, slot, pos, s, n_tokens);
    if (mistake != NONE)
        spoil(q, s->history + 3);
}

static void bad_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                      const struct batch *b, const struct rope *rope, const float *cos_sin,
                      const struct head_norms *norms)
{
    backend_real_ops()->qkv_store(q, qkv, k_cache, v_cache, heads, b, rope, cos_sin, norms);
    if (mistake != NONE) /* the row of the position after the stored one */
        spoil(q, (char *)v_cache + (size_t)(3 * heads->head_dim) * dtype_bytes(backend_act()));
}

static void bad_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                       const int32_t *row_len, const struct sampler *s, int n_rows)
{
    backend_real_ops()->sample(q, out, logits, row_slot, row_len, s, n_rows);
    if (mistake != NONE)
        spoil(q, s->last_token + 1);
}

static const char *try_matmul(enum mistake what)
{
    uint64_t state = 5;
    struct weight w = random_weight(DTYPE_F32, COLS, COLS, &state, 1);
    float x[N], out[N];
    struct queue q = test_queue(1);
    random_fill(x, N, &state, 1);
    mistake = what;
    ops->matmul(&q, out, x, &w, NULL, ROWS, false);
    assert_int_equal(q.err.code, ERR_NONE);
    free(w.data);
    return backend_fault();
}

static const char *try_feed(enum mistake what)
{
    int32_t history[8] = {0}, last[2] = {6, 7}, token[2];
    struct sampler s = {.n_slots = 2, .max_len = 4, .vocab = 9, .history = history, .last_token = last};
    struct queue q = test_queue(1);
    mistake = what;
    ops->feed(&q, token, (int32_t[]){5, -1}, (int32_t[]){0, 1}, (int32_t[]){2, 0}, &s, 2);
    return backend_fault();
}

static const char *try_store(enum mistake what)
{
    enum { DIM = 8 };
    struct heads heads = {1, 1, DIM, 0, 0, 1, 1, 0, NULL, NULL, DTYPE_F32, 0, 0, NULL};
    struct batch b = {.n_tokens = 1,
                      .slot = (int32_t[]){0},
                      .pos = (int32_t[]){2},
                      .rope_len = (int32_t[]){3},
                      .block_table = (int32_t[]){0},
                      .blocks_per_slot = 1};
    float qkv[3 * DIM] = {1}, k[KV_BLOCK_TOKENS * DIM] = {0}, v[KV_BLOCK_TOKENS * DIM] = {0};
    struct queue q = test_queue(1);
    backend_n_blocks = backend_n_slots = 1;
    mistake = what;
    ops->qkv_store(&q, qkv, k, v, &heads, &b, NULL, NULL, &(struct head_norms){0});
    return backend_fault();
}

static const char *try_sample(enum mistake what)
{
    int32_t history[8] = {0}, last[2] = {6, 7};
    struct sampling params[2] = {{.top_p = 1, .repetition_penalty = 1}, {.top_p = 1, .repetition_penalty = 1}};
    void *scratch = zeroed(1, ops->sample_scratch_bytes(5));
    struct sampler s = {2, 4, 5, history, last, params, 0, NULL, scratch};
    struct sampled out;
    struct queue q = test_queue(1);
    mistake = what;
    ops->sample(&q, &out, (float[]){0, 1, 2, 3, 4}, &(int32_t){0}, &(int32_t){1}, &s, 1);
    assert_int_equal(q.err.code, ERR_NONE);
    assert_int_equal(out.token, 4);
    free(scratch);
    return backend_fault();
}

static void expect(const char *said, const char *argument, const char *what)
{
    if (strncmp(said, argument, strlen(argument)) != 0 || strstr(said, what) == NULL)
        fail_msg("\"%s\", expected \"%s ... %s\"", said, argument, what);
}

static void test_mistakes(void **unused)
{
    (void)unused;
    struct ops bad = *backend_real_ops();
    bad.matmul = bad_matmul;
    bad.feed = bad_feed;
    bad.qkv_store = bad_store;
    bad.sample = bad_sample;
    backend_try(&bad);
    assert_string_equal(try_matmul(NONE), "");
    expect(try_matmul(BEFORE), "result", "written before it, distance in bytes 1");
    expect(try_matmul(BEHIND), "result", "written behind it, distance in bytes 0");
    expect(try_matmul(UNWRITTEN), "result", "nobody wrote element 42"); /* the first of the last row */
    expect(try_matmul(INPUT), "x", "no business with element 5");
    expect(try_matmul(WEIGHT), "weights", "no business with element 440");
    assert_string_equal(try_feed(NONE), "");
    expect(try_feed(INPUT), "history", "no business with element 3");
    assert_string_equal(try_store(NONE), "");
    expect(try_store(INPUT), "v cache", "no business with element 24");
    assert_string_equal(try_sample(NONE), "");
    expect(try_sample(INPUT), "last tokens", "no business with element 1");
    assert_string_equal(try_matmul(NONE), ""); /* the mistakes leave no trace */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes)};
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
