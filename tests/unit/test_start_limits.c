/* tests/unit/test_start_limits.c - the default limits of a server, by the model's context length. */
#include "base/run_options.h"
#include "commands/start/start.h"
#include "tests/unit/unit.h"

/* Block tables limit the default number of sequences, not a requested one. */
static void sequences_of_long_contexts(void **state)
{
    (void)state;
    const struct {
        int positions, experts;
        int64_t max_batch, max_model_len;
        int seqs;
        bool quantised_inputs;
    } known[] = {
        {8192, 0, -1, -1, 512, false},     {131072, 0, -1, -1, 512, false},     {163840, 0, -1, -1, 409, false},
        {10000000, 0, -1, -1, 256, false}, {10000000, 0, -1, 4096, 512, false}, {10000000, 0, 700, -1, 700, false},
        {40960, 8, -1, -1, 1024, false},   {131072, 8, -1, -1, 512, false},     {8192, 0, -1, -1, 1024, true}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct model_config m = {.max_positions = known[i].positions,
                                       .experts.routing.n_experts = known[i].experts,
                                       .quantised_inputs = known[i].quantised_inputs};
        struct run_options o = {.max_batch = known[i].max_batch,
                                .max_model_len = known[i].max_model_len,
                                .max_batch_tokens = -1,
                                .num_speculative_tokens = -1,
                                .prompt_lookup_max = -1,
                                .prompt_lookup_min = -1};
        run_choose_limits(&o, true, false);
        struct instance_setup setup = start_service_setup(&o, &m);
        assert_int_equal(setup.limits.max_seqs, known[i].seqs);
        assert_int_equal(setup.limits.max_batch_tokens, 4096);
        assert_true(setup.tokens_chosen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sequences_of_long_contexts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
