/* tests/unit/test_fit.c - the refusals of rank/instance/fit.c. tests/spmd/test_engine.c tests that working memory is
 * counted as it is allocated. */
#include "tests/unit/unit.h"

#include "rank/instance/fit.h"

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

/* Weights that become FP8 need more room before they are it. */
static void loading(void **state)
{
    (void)state;
    struct err e = {0};
    struct fit f = {.weights = 8 * GIB, .kv_least = GIB, .kv_wanted = GIB, .loading = 16 * GIB, .available = 16 * GIB};
    assert_int_equal(fit_judge(&f, false, &e), 0);
    f.available--;
    assert_int_equal(fit_judge(&f, false, &e), -1);
    expect_text(&e, ERR_MEMORY,
                "needed on this device while weights become FP8: 16.00 GiB, 9.00 afterwards; 16.00 GiB are free: use "
                "more ranks, or a checkpoint that is quantised");
}

/* Two matrices and a norm, in BF16; the head is the embedding, or one of its own. */
static void fp8_at_load(void **state)
{
    (void)state;
    struct weight_slot slot[] = {{.id = WEIGHT_EMBED, .layer = -1, .type = DTYPE_BF16, .rows = 100, .cols = 64},
                                 {.id = WEIGHT_ATTN_NORM, .layer = 0, .type = DTYPE_BF16, .rows = 1, .cols = 64},
                                 {.id = WEIGHT_QKV, .layer = 0, .type = DTYPE_BF16, .rows = 192, .cols = 64},
                                 {.id = WEIGHT_MLP_OUT, .layer = 0, .type = DTYPE_BF16, .rows = 64, .cols = 128}};
    const struct weight_map map = {.n_slots = 4, .slot = slot};
    struct model_config m = {.tied_head = true};
    size_t most, wide = 2 * (100 * 64 + 64 + 192 * 64 + 64 * 128);
    size_t qkv = 192 * 64 + 192 * 4, out = 64 * 128 + 64 * 4, head = 6400 + 512; /* codes, scales */
    assert_int_equal(weight_map_fp8_bytes(&map, &m, &most), wide);
    assert_int_equal(most, wide);
    m.weights_fp8 = true;
    assert_int_equal(weight_map_fp8_bytes(&map, &m, &most), 2 * (6400 + 64) + qkv + out);
    assert_int_equal(most, wide + qkv); /* the first one, beside all as the checkpoint has it */
    m.head_fp8 = true;
    assert_int_equal(weight_map_fp8_bytes(&map, &m, &most), 2 * (6400 + 64) + qkv + out + head);
    m.weights_fp8 = false;
    assert_int_equal(weight_map_fp8_bytes(&map, &m, &most), wide + head);
    assert_int_equal(most, wide + head);
}

static void heads(void **state)
{
    (void)state;
    struct err e = {0};
    struct model_config m = {.head_dim = 256};
    struct ops device = {.name = "cuda", .max_head_dim = 256};
    assert_int_equal(fit_heads(&m, &device, &e), 0);
    m.head_dim = 257;
    assert_int_equal(fit_heads(&m, &device, &e), -1);
    expect_text(&e, ERR_UNSUPPORTED,
                "head_dim 257: attention on cuda takes up to 256 elements a head (--device cpu: any)");
    e = (struct err){0};
    device.max_head_dim = 0;
    assert_int_equal(fit_heads(&m, &device, &e), 0);
    expect_none(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judgement), cmocka_unit_test(heads), cmocka_unit_test(loading),
                                       cmocka_unit_test(fp8_at_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
