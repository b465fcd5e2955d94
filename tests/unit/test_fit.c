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
    assert_non_null(strstr(e.text, "79.00 GiB are free: use more nodes"));
    e = (struct err){0};
    f.limit = "ulimit -v";
    assert_int_equal(fit_judge(&f, true, &e), -1);
    assert_non_null(strstr(e.text, "79.00 GiB are free within ulimit -v: use more nodes"));
    e = (struct err){0};
    f.available = 0; /* not known */
    assert_int_equal(fit_judge(&f, false, &e), 0);
}

/* Weights that become FP8 need more room until they are converted. */
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

/* Two matrices and a norm, in BF16; the head is the embedding, or a matrix of its own. */
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
    assert_int_equal(most, wide + qkv); /* the first one, beside all the others in the checkpoint's type */
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

/* 24 layers like gpt-oss: every second one has a window of 128. */
static void kinds_of_blocks(void **state)
{
    (void)state;
    struct model_config m = {.n_layers = 24};
    struct limits l = {.max_seqs = 64, .max_batch_tokens = 2048, .max_len = 131072, .n_blocks = 64 * 8192};
    fit_kinds(&l, &m);
    assert_int_equal(l.n_window_blocks + l.window, 0);
    for (int i = 0; i < m.n_layers; i += 2)
        m.layer[i].window = 128;
    fit_kinds(&l, &m);
    assert_int_equal(l.window, 128);
    assert_int_equal(limits_window_blocks(128), 10); /* 127 keys before 16 tokens, at any offset */
    assert_int_equal(l.n_window_blocks, 2 * (64 * 10 + 128));
    l.max_len = 128; /* everything is visible */
    fit_kinds(&l, &m);
    assert_int_equal(l.n_window_blocks + l.window, 0);
    l = (struct limits){.max_seqs = 4, .max_batch_tokens = 2048, .max_len = 256, .n_blocks = 64};
    fit_kinds(&l, &m); /* two kinds would take more */
    assert_int_equal(l.n_window_blocks + l.window, 0);
    for (int i = 1; i < m.n_layers; i += 2)
        m.layer[i].chunk = 100;
    fit_kinds(&l, &m);
    assert_int_equal(l.n_window_blocks, 0);
    assert_int_equal(l.window, 128);
}

static enum dtype keep_type(enum dtype weights)
{
    return weights;
}

/* The same 24 layers in an arena of 128 units of 1 MiB, with 8 KV heads of 64 elements in bf16: a block of 12 layers
 * takes 384 KiB, of all layers 768 KiB. */
static void share_of_an_arena(void **state)
{
    (void)state;
    struct err e = {0};
    struct model_config m;
    struct ops device = ops_cpu;
    struct kv_share share[KV_KINDS];
    const struct limits wanted = {.max_seqs = 4, .max_batch_tokens = 256, .max_len = 4096, .n_blocks = 4 * 256};
    struct limits l = wanted;
    const size_t arena = (size_t)128 << 20;
    assert_int_equal(model_config_read(&m, "demo/lockstep-stories", &e), 0);
    m.n_layers = 24;
    m.n_heads = m.n_kv_heads = 8;
    m.head_dim = 64;
    m.dtype = DTYPE_BF16;
    device.act_type = keep_type;
    assert_int_equal(fit_share(&m, NULL, &l, 1, &device, arena, share, &e), 0);
    assert_true(l.max_len == 64 * KV_BLOCK_TOKENS && l.n_window_blocks == 0); /* 64 MiB hold one block per unit */
    assert_true(share[KV_MAIN].per_unit == 1 && share[KV_MAIN].least == 64 && share[KV_MAIN].most == 128);
    assert_int_equal(share[KV_WINDOWED].per_unit + share[KV_WINDOWED].least + share[KV_WINDOWED].most, 0);
    for (int i = 0; i < m.n_layers; i += 2)
        m.layer[i].window = 128;
    l = wanted;
    assert_int_equal(fit_share(&m, NULL, &l, 1, &device, arena, share, &e), 0);
    assert_int_equal(l.window, 128);
    assert_true(share[KV_MAIN].per_unit == 2 && share[KV_WINDOWED].per_unit == 2);
    assert_true(share[KV_WINDOWED].least == 5 && share[KV_WINDOWED].most == 4 * 10 + 16); /* windows of 10 blocks */
    assert_int_equal(l.max_len, (64 - 5) * 2 * KV_BLOCK_TOKENS);
    assert_true(share[KV_MAIN].least == 59 && share[KV_MAIN].most == 128);
    assert_true(l.n_blocks == 256 && l.n_window_blocks == 112);
    for (int i = 1; i < m.n_layers; i += 2) /* all of them: no length is too long */
        m.layer[i].window = 100;
    l = wanted;
    assert_int_equal(fit_share(&m, NULL, &l, 1, &device, arena, share, &e), 0);
    assert_true(l.max_len == 4096 && l.window == 128 && l.n_window_blocks == 0);
    assert_true(share[KV_MAIN].least == 10 && share[KV_MAIN].per_unit == 1);
    for (int i = 0; i < m.n_layers; i++) /* windows that leave no room for the last layer's keys */
        m.layer[i].window = i < 23 ? 1500 : 0;
    l = wanted;
    assert_int_equal(fit_share(&m, NULL, &l, 1, &device, arena, share, &e), 0);
    assert_true(l.n_window_blocks == 0 && l.max_len == 64 * KV_BLOCK_TOKENS);
    expect_none(&e);
}

static void divided_memory(void **state)
{
    (void)state;
    const size_t block[KV_KINDS] = {1000, 5000};
    const struct limits wanted = {.n_blocks = 10000, .n_window_blocks = 400, .window = 128};
    struct limits l = wanted;
    fit_divide(&l, block, 12000000); /* all of it, to the byte */
    assert_true(l.n_blocks == 10000 && l.n_window_blocks == 400);
    fit_divide(&l, block, 11999999); /* windows are a small part */
    assert_true(l.n_blocks == 9999 && l.n_window_blocks == 400);
    l = wanted;
    fit_divide(&l, block, 2000000); /* half of it is less than all windows need */
    assert_true(l.n_blocks == 1000 && l.n_window_blocks == 200);
    l = (struct limits){.n_blocks = 1000, .n_window_blocks = 400, .window = 128};
    fit_divide(&l, block, 1500000); /* half of everything requested, windows two thirds of that */
    assert_true(l.n_blocks == 500 && l.n_window_blocks == 200);
    l = wanted;
    fit_divide(&l, block, 66000); /* one window, as long as it takes no more than the rest */
    assert_true(l.n_blocks == 16 && l.n_window_blocks == 10);
    l = wanted;
    fit_divide(&l, block, 30000);
    assert_true(l.n_blocks == 5 && l.n_window_blocks == 5);
    l = wanted;
    fit_divide(&l, block, 5999);
    assert_true(l.n_window_blocks == 0 || l.n_blocks == 0);
    l = (struct limits){.n_blocks = 1000};
    fit_divide(&l, (const size_t[KV_KINDS]){1000, 0}, 700500);
    assert_true(l.n_blocks == 700 && l.n_window_blocks == 0);
    fit_divide(&l, (const size_t[KV_KINDS]){0, 0}, 0); /* a rank without heads */
    assert_int_equal(l.n_blocks, 700);
}

/* Half of a host's memory; of a device's all but an eighth, minus room for uncounted memory. */
static void part_for_keys_and_values(void **state)
{
    (void)state;
    assert_true(fit_kv_part(10 * GIB, GIB, true) == 5 * GIB);
    assert_true(fit_kv_part(10 * GIB, 7 * GIB, true) == 3 * GIB);
    assert_true(fit_kv_part(81 * GIB, GIB, false) == 70 * GIB);
    assert_true(fit_kv_part(3 * GIB, GIB, false) == 2 * GIB - GIB / 2);
    assert_true(fit_kv_part(GIB, GIB / 2, false) == GIB / 4);
    assert_true(fit_kv_part(GIB, GIB, false) == 0 && fit_kv_part(GIB, 2 * GIB, true) == 0);
}

/* A step has fewer tokens on a smaller device, but at least 512 and at least one per sequence. */
static void tokens_of_a_step(void **state)
{
    (void)state;
    struct model_config m = {0};
    struct shard shard;
    struct err e = {0};
    assert_int_equal(model_config_read(&m, "demo/lockstep-stories", &e), 0);
    shard_make(&shard, &m, 0, 1);
    struct fit_part part = {&m, &shard, NULL, {.max_seqs = 8, .max_batch_tokens = 4096, .max_len = 64}, DTYPE_F32};
    part.limits.max_logit_rows = 8;
    assert_int_equal(fit_step(&part, 1, &ops_cpu, 0, &e), 4096); /* unknown */
    assert_int_equal(fit_step(&part, 1, &ops_cpu, 100 * GIB, &e), 4096);
    assert_int_equal(fit_step(&part, 1, &ops_cpu, 1, &e), 512);
    int before = 512, sizes = 1;
    for (size_t bytes = 8 << 20; bytes < 8 * GIB; bytes *= 2) {
        int tokens = fit_step(&part, 1, &ops_cpu, bytes, &e);
        assert_true(tokens == before || tokens == 2 * before || tokens == 4 * before);
        sizes += tokens > before;
        before = tokens;
    }
    assert_true(before == 4096 && sizes >= 3);
    /* A second model's weights and working memory count, too, and its steps have the same limit. */
    const struct fit_part both[FIT_PARTS] = {part, part};
    size_t enough = 8 << 20;
    while (fit_step(&part, 1, &ops_cpu, enough, &e) < 4096)
        enough += 1 << 20;
    int shorter = fit_step(both, 2, &ops_cpu, enough, &e);
    assert_true(shorter == 2048 || shorter == 1024);
    assert_int_equal(fit_step(both, 2, &ops_cpu, 2 * enough, &e), 4096);
    part.limits.max_seqs = 1500;
    assert_int_equal(fit_step(&part, 1, &ops_cpu, 1, &e), 2048);
    part.limits.max_batch_tokens = 300;
    assert_int_equal(fit_step(&part, 1, &ops_cpu, 1, &e), 300);
    expect_none(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judgement),       cmocka_unit_test(heads),
                                       cmocka_unit_test(loading),         cmocka_unit_test(fp8_at_load),
                                       cmocka_unit_test(kinds_of_blocks), cmocka_unit_test(share_of_an_arena),
                                       cmocka_unit_test(divided_memory),  cmocka_unit_test(part_for_keys_and_values),
                                       cmocka_unit_test(tokens_of_a_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
