/* tests/unit/test_client_load.c - the requests of a bench: lengths, ids, arrivals; datasets, valid and invalid. */
#include "client/bench_load.h"
#include "tests/support/files.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct client_bench_options options(int64_t n)
{
    return (struct client_bench_options){
        .num_prompts = n, .input_len = 20, .output_len = 6, .request_rate = INFINITY, .seed = 3};
}

static void random_prompts(void **state)
{
    struct client_bench_options o = options(50);
    struct bench_load a, b;
    struct err e = {0};
    (void)state;
    assert_int_equal(bench_load_open(&a, &o, 11, &e), 0);
    assert_int_equal(bench_load_open(&b, &o, 11, &e), 0);
    assert_true(a.exact);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(json_array_size(a.wish[i].prompt), 20);
        assert_int_equal(a.wish[i].n_output, 6);
        assert_true(a.wish[i].at == 0);
        assert_true(json_equal(a.wish[i].prompt, b.wish[i].prompt));
        assert_true(i == 0 || !json_equal(a.wish[i].prompt, a.wish[i - 1].prompt));
        for (size_t k = 0; k < 20; k++) {
            json_int_t id = json_integer_value(json_array_get(a.wish[i].prompt, k));
            assert_true(id >= 0 && id < 11);
        }
    }
    bench_load_close(&a);
    bench_load_close(&b);
}

static void lengths_in_a_range(void **state)
{
    struct client_bench_options o = options(500);
    struct bench_load l;
    struct err e = {0};
    size_t least = 1000, most = 0;
    o.range_ratio = 0.5;
    (void)state;
    assert_int_equal(bench_load_open(&l, &o, 11, &e), 0);
    for (int i = 0; i < 500; i++) {
        size_t n = json_array_size(l.wish[i].prompt);
        least = n < least ? n : least;
        most = n > most ? n : most;
        assert_in_range(l.wish[i].n_output, 3, 9);
    }
    assert_int_equal(least, 10);
    assert_int_equal(most, 30);
    bench_load_close(&l);
}

/* Arrivals are ascending, end when the rate implies, and are irregular as in a Poisson process: the gaps' deviation is
 * about their mean. */
static void arrivals(void **state)
{
    struct client_bench_options o = options(4000);
    struct bench_load l;
    struct err e = {0};
    double squares = 0;
    o.request_rate = 8;
    o.input_len = 1;
    (void)state;
    assert_int_equal(bench_load_open(&l, &o, 11, &e), 0);
    for (int i = 0; i < 4000; i++) {
        double gap = l.wish[i].at - (i > 0 ? l.wish[i - 1].at : 0);
        assert_true(gap >= 0);
        squares += (gap - 0.125) * (gap - 0.125) / 4000;
    }
    assert_true(fabs(l.wish[3999].at - 500) < 1e-6);
    assert_true(sqrt(squares) > 0.115 && sqrt(squares) < 0.135);
    bench_load_close(&l);
}

static void dataset(const char *text, struct bench_load *l, struct err *e)
{
    char folder[256], path[300];
    struct client_bench_options o = options(5);
    files_make_dir(folder);
    files_write(folder, "set.jsonl", text, strlen(text));
    (void)snprintf(path, sizeof path, "%s/set.jsonl", folder);
    o.dataset = path;
    (void)bench_load_open(l, &o, 11, e);
    files_remove_dir(folder);
}

static void datasets(void **state)
{
    struct bench_load l;
    struct err e = {0};
    (void)state;
    dataset("{\"prompt\": \"one\", \"output_len\": 2}\n \n{\"prompt\": [4, 5], \"output_len\": 3}", &l, &e);
    assert_int_equal(e.code, ERR_NONE);
    assert_false(l.exact);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(l.wish[i].n_output, 2 + i % 2);
        assert_true(i % 2 == 0 ? json_is_string(l.wish[i].prompt) : json_array_size(l.wish[i].prompt) == 2);
    }
    bench_load_close(&l);
}

static void bad_datasets(void **state)
{
    static const struct {
        const char *text, *words;
    } table[] = {
        {"", "no prompt, expected one JSON object per line"},
        {"{\"prompt\": \"a\", \"output_len\": 2}\n{", "set.jsonl: line 2: not valid JSON"},
        {"{\"prompt\": 3, \"output_len\": 2}", "line 1: \"prompt\" is an integer"},
        {"{\"prompt\": \"a\"}", "line 1: \"output_len\" is missing"},
        {"{\"prompt\": \"a\", \"output_len\": 0}", "\"output_len\" is 0, expected an integer in [1, "},
        {"[]", "\"prompt\" is nothing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct bench_load l;
        struct err e = {0};
        dataset(table[i].text, &l, &e);
        assert_int_equal(e.code, ERR_INPUT);
        if (strstr(e.text, table[i].words) == NULL)
            fail_msg("\"%s\" does not hold \"%s\"", e.text, table[i].words);
        bench_load_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_prompts), cmocka_unit_test(lengths_in_a_range), cmocka_unit_test(arrivals),
        cmocka_unit_test(datasets),       cmocka_unit_test(bad_datasets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
