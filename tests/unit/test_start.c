/* tests/unit/test_start.c - from options to an opened checkpoint: a draft model is opened as the model itself is, with
 * the order of its inputs, where it has one. */
#include "base/run_options.h"
#include "commands/start/start.h"
#include "tests/unit/unit.h"

#define REORDERED "tests/parity/fixtures/q-gptq-order-v1"

static void draft_model_with_reordered_inputs(void **state)
{
    (void)state;
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits.max_len = 16};
    static struct draft_model d;
    const struct run_options o = {.model = REORDERED, .draft_model = REORDERED, .num_speculative_tokens = 2};
    assert_int_equal(model_config_read(&m, o.model, &e), 0);
    assert_int_equal(checkpoint_open(&c, o.model, &e), 0);
    assert_int_equal(start_open_draft_model(&d, &setup, &o, &m, &e), 0);
    assert_int_equal(d.checkpoint.n_tensors, c.n_tensors);
    assert_true(d.checkpoint.n_orders > 0);
    checkpoint_close(&d.checkpoint);
    checkpoint_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(draft_model_with_reordered_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
