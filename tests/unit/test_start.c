/* tests/unit/test_start.c - from options to an opened checkpoint: a draft model is opened as the model itself is, with
 * the order of its inputs, if it has one; a layer that predicts comes from the model's own checkpoint. */
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

#define PREDICTS "tests/parity/fixtures/glm4moe-groups"

/* A fixture whose checkpoint lacks the declared layer, as many do: then loading names the tensor. */
static void layer_that_predicts(void **state)
{
    (void)state;
    struct err e = {0};
    static struct model_config m;
    static struct draft_model d;
    struct weight_map map;
    struct shard s;
    struct instance_setup setup = {.limits.max_len = 16};
    struct run_options o = {.model = PREDICTS,
                            .speculative_config = "{\"method\": \"mtp\", \"num_speculative_tokens\": 2}"};
    assert_int_equal(model_config_read(&m, o.model, &e), 0);
    assert_int_equal(start_open_draft_model(&d, &setup, &o, &m, &e), 0);
    assert_int_equal(d.config.n_layers, 1);
    assert_int_equal(d.config.first_layer, 2);
    assert_true(d.config.drafting.predicts && d.config.layer[0].experts);
    assert_int_equal(setup.limits.draft_skip, 1);
    assert_int_equal(setup.limits.draft_len, 16);
    shard_make(&s, &d.config, 0, 1);
    assert_int_equal(weight_map_build(&map, &d.config, &s, &d.checkpoint, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "tensor \"model.layers.2.", "is missing");
    checkpoint_close(&d.checkpoint);
    e = (struct err){0};
    m.n_predicting = 0;
    assert_int_equal(start_open_draft_model(&d, &setup, &o, &m, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "glm4_moe has no layers that predict further tokens");
    e = (struct err){0};
    o.speculative_config = "{\"method\": \"mtp\", \"model\": \"x\", \"num_speculative_tokens\": 2}";
    assert_int_equal(start_open_draft_model(&d, &setup, &o, &m, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "\"model\" belongs to the methods");
    e = (struct err){0};
    o.speculative_config = "{\"method\": \"mtp\", \"num_speculative_tokens\": 2}";
    o.draft_model = "x";
    assert_int_equal(start_open_draft_model(&d, &setup, &o, &m, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "--draft-model and \"method\" \"mtp\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(draft_model_with_reordered_inputs),
                                       cmocka_unit_test(layer_that_predicts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
