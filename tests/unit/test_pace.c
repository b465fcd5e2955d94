/* tests/unit/test_pace.c - the number of whole experts that the busiest rank reads, compared with all possible choices;
 * and the fastest number of ranks. */
#include "tests/unit/unit.h"

#include "partition/pace.h"
#include "partition/shard.h"

#include <math.h>
#include <string.h>

/* Returns the mean, over all subsets of n_chosen of n_experts <= 12, of the largest count on a rank. */
static double counted(int n_experts, int n_chosen, int n_ranks)
{
    double sum = 0;
    int n_sets = 0;
    for (unsigned set = 0; set < 1u << n_experts; set++) {
        int most = 0;
        if (__builtin_popcount(set) != n_chosen)
            continue;
        for (int r = 0; r < n_ranks; r++) {
            struct range mine = shard_units(n_experts, r, n_ranks);
            int n = 0;
            for (int e = mine.begin; e < mine.end; e++)
                n += (int)(set >> e & 1);
            most = n > most ? n : most;
        }
        sum += most;
        n_sets++;
    }
    return sum / n_sets;
}

static void most_experts(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 12; n++)
        for (int k = 1; k <= n; k++)
            for (int ranks = 1; ranks <= 14; ranks++)
                assert_true(fabs(pace_most_experts(n, k, ranks) - counted(n, k, ranks)) < 1e-9);
    /* Simulated elsewhere, as multiples of the mean. */
    assert_true(fabs(pace_most_experts(128, 8, 4) / 2 - 1.742) < 0.005);
    assert_true(fabs(pace_most_experts(128, 8, 8) - 2.526) < 0.01);
    assert_true(fabs(pace_most_experts(1024, 40, 1) - 40) < 1e-9);
}

static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"num_hidden_layers\":3,\"hidden_size\":64,\"num_attention_heads\":8,"
    "\"num_key_value_heads\":4,\"intermediate_size\":96,\"vocab_size\":100,\"num_local_experts\":8,"
    "\"num_experts_per_tok\":2,\"torch_dtype\":\"bfloat16\"}";

static void choices(void **unused)
{
    (void)unused;
    static struct model_config m;
    struct err e = {0};
    struct rank_pace p[PACE_MAX_CHOICES];
    struct pace_costs costs = {.bytes_per_second = 1e9, .sum_seconds = 1, .measured = true};
    char line[400];
    assert_int_equal(model_config_parse(&m, mixtral, strlen(mixtral), "config.json", &e), 0);
    assert_int_equal(pace_choices(p, &m, 6, &costs, &e), 4);
    assert_true(p[0].n_ranks == 1 && p[1].n_ranks == 2 && p[2].n_ranks == 3 && p[3].n_ranks == 6);
    assert_true(p[0].n_sums == 0 && p[3].n_sums == 7);
    assert_true(p[0].bytes > p[1].bytes && p[1].bytes > p[2].bytes && p[2].bytes > p[3].bytes);
    assert_int_equal(pace_fastest(p, 4), 0);
    pace_describe(p, 4, 6, &costs, line, sizeof line);
    assert_non_null(strstr(line, "with --tensor-parallel 6: "));
    assert_non_null(strstr(line, "us a sum (measured); --tensor-parallel 1 would be faster"));
    assert_true(pace_advise(p, 4, 6, line, sizeof line));
    assert_non_null(strstr(line, "would decode faster with --tensor-parallel 1, "));
    assert_false(pace_advise(p, 4, 1, line, sizeof line));
    costs.sum_seconds = 0;
    double columns = p[3].bytes;
    m.whole_experts = true;
    assert_int_equal(pace_choices(p, &m, 6, &costs, &e), 4);
    assert_int_equal(pace_fastest(p, 4), 3);
    pace_describe(p, 4, 6, &costs, line, sizeof line);
    assert_non_null(strstr(line, "no smaller or larger number is faster"));
    p[1].seconds = 1.1 * p[3].seconds;
    assert_false(pace_advise(p, 4, 2, line, sizeof line)); /* not clearly */
    assert_true(p[3].bytes > columns); /* two experts of 8 on one of 6 ranks: it reads at least one */
    double expert = 3.0 * 3 * 64 * 96 * 2;
    assert_true(fabs(p[3].bytes - columns - expert * (pace_most_experts(8, 2, 6) - 2.0 * 16 / 96)) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(most_experts), cmocka_unit_test(choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
