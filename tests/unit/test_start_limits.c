/* tests/unit/test_start_limits.c - the default limits of a server, by the model's context length. */
#include "base/run_options.h"
#include "commands/start/start.h"
#include "tests/unit/unit.h"

/* Block tables limit the default number of sequences, not a requested one. */
static void sequences_of_long_contexts(void **state)
{
    (void)state;
    const struct {
        int positions;
        int64_t max_batch, max_model_len;
        int seqs;
    } known[] = {{8192, -1, -1, 1024},    {65536, -1, -1, 1024},      {131072, -1, -1, 512},   {163840, -1, -1, 409},
                 {10000000, -1, -1, 256}, {10000000, -1, 4096, 1024}, {10000000, 700, -1, 700}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct model_config m = {.max_positions = known[i].positions};
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
