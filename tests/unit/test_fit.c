/* tests/unit/test_fit.c - rank/fit.c's judgement, and that the engine's working memory is counted as it is taken. */
#include "tests/unit/unit.h"

#include "rank/engine.h"
#include "rank/fit.h"

#include <stdlib.h>

#define GIB ((size_t)1 << 30)

static void judgement(void **state)
{
    (void)state;
    struct err e = {0};
    struct fit f = {
        .weights = 131 * GIB, .working = GIB / 2, .kv_least = GIB / 4, .kv_wanted = 3 * GIB, .available = 139 * GIB};
    assert_int_equal(fit_judge(&f, false, &e), 0);
    f.available = f.weights + f.working + f.kv_least; /* to the byte */
    assert_int_equal(fit_judge(&f, false, &e), 0);
    expect_none(&e);
    f.available = 79 * GIB;
    assert_int_equal(fit_judge(&f, false, &e), -1);
    expect_text(&e, ERR_MEMORY,
                "needed on this device: 131.75 GiB = 131.00 of weights + 0.50 of working memory + 0.25 for keys and "
                "values (3.00 wanted); 79.00 GiB are free: use more ranks, a smaller model, or a smaller "
                "--max-batch-tokens");
    e = (struct err){0};
    assert_int_equal(fit_judge(&f, true, &e), -1);
    assert_non_null(strstr(e.text, "needed on this host: 131.75 GiB"));
    assert_non_null(strstr(e.text, "use more nodes"));
    e = (struct err){0};
    f.available = 0; /* not known */
    assert_int_equal(fit_judge(&f, false, &e), 0);
}

static size_t taken;

static void *count(struct queue *q, size_t bytes)
{
    taken += (bytes + 511) / 512 * 512;
    return ops_cpu.alloc(q, bytes);
}

/* What engine_open takes from a device is what was foretold, on one rank and on one of three. */
static void working_memory(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 96, \"intermediate_size\": 200, "
                                 "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, "
                                 "\"vocab_size\": 333, \"max_position_embeddings\": 64}";
    const struct limits limits = {3, 20, 50, 3, 12};
    struct err e = {0};
    struct network *n = calloc(1, sizeof *n);
    struct engine g;
    struct world w = {.n_ranks = 1, .n_node_ranks = 1, .n_threads = 1};
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    struct ops counting = ops_cpu;
    counting.alloc = count;
    assert_int_equal(model_config_parse(&n->config, config, sizeof config - 1, "config", &e), 0);
    shard_make(&n->shard, &n->config, 0, 1);
    size_t foretold = engine_bytes(n, &limits, 1, &ops_cpu, q.act, &e);
    taken = 0;
    assert_int_equal(engine_open(&g, &w, n, &limits, &counting, &q, &e), 0);
    assert_int_equal(foretold, taken);
    assert_true(foretold > 20 * (3 * 96 + 200) * sizeof(float));
    engine_close(&g);
    struct shard third;
    shard_make(&third, &n->config, 0, 3);
    n->shard = third;
    size_t share = engine_bytes(n, &limits, 3, &ops_cpu, q.act, &e);
    size_t half = engine_bytes(n, &limits, 3, &ops_cpu, DTYPE_BF16, &e);
    assert_true(share > 20 * 3 * 96 * sizeof(float) && half < share);
    expect_none(&e);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judgement), cmocka_unit_test(working_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
