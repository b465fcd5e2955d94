/* tests/unit/test_graphs.c - reports on recorded decode steps, as text and in bench's JSON. The steps are simulated,
 * since recording needs a device. */
#include "tests/unit/unit.h"

#include "commands/bench/report.h"
#include "rank/step/graphs.h"

static const struct decode_graph steps[] = {
    {.n_tokens = 1, .persistent = true, .separate_seconds = 2e-3, .persistent_seconds = 1.5e-3},
    {.n_tokens = 2, .persistent = true, .separate_seconds = 2e-3, .persistent_seconds = 1.75e-3},
    {.n_tokens = 4, .separate_seconds = 2e-3, .persistent_seconds = 2.5e-3},
    {.n_tokens = 8},
};

static void in_words(void **unused)
{
    (void)unused;
    static const struct {
        int first, n;
        const char *words;
    } cases[] = {
        {0, 4, "one persistent operation for 1 to 2, separate operations for 3 to 8 sequences"},
        {0, 2, "one persistent operation for 1 to 2 sequences"},
        {0, 1, "one persistent operation for 1 sequence"},
        {2, 2, "separate operations for 1 to 8 sequences"},
        {1, 2, "one persistent operation for 1 to 2, separate operations for 3 to 4 sequences"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200], want[200];
        (void)snprintf(want, sizeof want, "decode steps: %s", cases[i].words);
        graphs_summary(text, sizeof text, steps + cases[i].first, cases[i].n);
        assert_string_equal(text, want);
    }
    char tight[30], guard[4] = "abc"; /* truncated, not written past its end */
    graphs_summary(tight, sizeof tight, steps, 4);
    assert_int_equal(strlen(tight), sizeof tight - 1);
    assert_string_equal(guard, "abc");
}

static void in_json(void **unused)
{
    (void)unused;
    json_t *list = report_decode_steps(steps, 4);
    json_t *want =
        json_loads("[{\"sequences\": 1, \"way\": \"persistent\", \"separate_ms\": 2.0, \"persistent_ms\": 1.5},"
                   " {\"sequences\": 2, \"way\": \"persistent\", \"separate_ms\": 2.0, \"persistent_ms\": 1.75},"
                   " {\"sequences\": 4, \"way\": \"separate\", \"separate_ms\": 2.0, \"persistent_ms\": 2.5},"
                   " {\"sequences\": 8, \"way\": \"separate\", \"separate_ms\": null, \"persistent_ms\": null}]",
                   0, NULL);
    assert_non_null(want);
    if (!json_equal(list, want))
        fail_msg("%s", json_dumps(list, 0));
    json_decref(list);
    json_decref(want);
    list = report_decode_steps(NULL, 0);
    assert_true(json_is_array(list) && json_array_size(list) == 0);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_words),
        cmocka_unit_test(in_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
