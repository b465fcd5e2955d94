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
    const struct CMUnitTest tests[] = {cmocka_unit_test(judgement), cmocka_unit_test(heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
