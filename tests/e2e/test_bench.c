/* tests/e2e/test_bench.c - `lockstep bench` measures exactly what was asked, and reports it as a table and as JSON. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* Checks {median, lowest, highest}: all above 0 and in order. */
static void check_rates(const json_t *o, const char *key)
{
    const json_t *r = json_object_get(o, key);
    double median = json_number_value(json_array_get(r, 0));
    double lowest = json_number_value(json_array_get(r, 1)), highest = json_number_value(json_array_get(r, 2));
    case_check(json_array_size(r) == 3 && lowest > 0 && lowest <= median && median <= highest, "%s: %g, %g .. %g", key,
               median, lowest, highest);
}

/* Checks {mean, deviation} of the rates {median, lowest, highest}. */
static void check_mean(const json_t *o, const char *key, const char *rates)
{
    const json_t *m = json_object_get(o, key), *r = json_object_get(o, rates);
    double mean = json_number_value(json_array_get(m, 0)), deviation = json_number_value(json_array_get(m, 1));
    double lowest = json_number_value(json_array_get(r, 1)), highest = json_number_value(json_array_get(r, 2));
    case_check(mean > 0.999 * lowest && mean < 1.001 * highest && deviation >= 0 && deviation <= highest - lowest,
               "%s: %g +- %g of %g .. %g", key, mean, deviation, lowest, highest);
}

static void check_share(const json_t *o, const char *key)
{
    case_check(number(o, key) > 0 && number(o, key) < 100, "%s: %g", key, number(o, key));
}

static void check_latency(const json_t *l)
{
    check_rates(l, "milliseconds");
    check_rates(l, "decode_milliseconds_per_step");
    check_share(l, "decode_share_of_read_limit");
    case_check(number(l, "input") == 4 && number(l, "output") == 3 && number(l, "batch") == 2,
               "parameters of the latency test");
    case_check(number(l, "mean_milliseconds") > 0, "no mean");
    double total = json_number_value(json_array_get(json_object_get(l, "milliseconds"), 0));
    double step = json_number_value(json_array_get(json_object_get(l, "decode_milliseconds_per_step"), 0));
    case_check(2 * step < total, "2 steps of %g ms in %g ms", step, total);
    check_rates(l, "prompts_milliseconds");
}

/* Checks percentiles of n times: in order, the mean within them. */
static void check_times(const json_t *t, double n)
{
    double median = number(t, "median"), p99 = number(t, "p99"), highest = number(t, "highest");
    case_check(number(t, "n") == n && median > 0 && median <= number(t, "p90") && number(t, "p90") <= p99 &&
                   p99 <= highest && number(t, "mean") > 0 && number(t, "mean") <= highest,
               "times: n %g of %g, median %g, p99 %g, highest %g", number(t, "n"), n, median, p99, highest);
}

/* 5 requests of 6 + 4 tokens, 2 at once, 9 tokens a step: each token costs at most one step. */
static void check_throughput(const json_t *t)
{
    check_rates(t, "seconds");
    check_rates(t, "requests_per_second");
    check_rates(t, "output_tokens_per_second");
    check_rates(t, "total_tokens_per_second");
    check_share(t, "share_of_read_limit");
    case_check(number(t, "requests") == 5 && number(t, "input") == 6 && number(t, "output") == 4 &&
                   number(t, "max_batch") == 2 && number(t, "most_at_once") == 2,
               "parameters of the throughput test");
    case_check(number(t, "steps") >= 10 && number(t, "steps") <= 5 * 5, "%g steps", number(t, "steps"));
    const json_t *requests = json_object_get(t, "requests_per_second"),
                 *all = json_object_get(t, "total_tokens_per_second");
    double ratio = json_number_value(json_array_get(all, 0)) / json_number_value(json_array_get(requests, 0));
    case_check(ratio > 9.999 && ratio < 10.001, "%g tokens a request", ratio);
    check_times(json_object_get(t, "time_to_first_token_milliseconds"), 3 * 5);
    check_times(json_object_get(t, "time_between_tokens_milliseconds"), 3 * 5 * 3);
}

/* Every phase that exists on this many ranks took time, and their sum is close to the wall time: that of rank 0, which
 * may be ahead of the others when a run ends. */
static void check_phases(const json_t *parts, const char *part, int ranks)
{
    json_t *p = json_object_get(parts, part), *value;
    const char *key;
    double wall = number(p, "wall"), gap = number(p, "host gap"), sum = gap;
    int phases = 0;
    json_object_foreach(p, key, value) if (json_is_array(value))
    {
        bool alone = ranks == 1 && strncmp(key, "all-", 4) == 0;
        double mean = json_number_value(json_array_get(value, 0));
        case_check((mean > 0) != alone, "%s of %s: %g us", key, part, mean);
        sum += mean;
        phases++;
    }
    case_check(phases == 6 && gap > -0.5 * wall && gap < wall && sum > 0.999 * wall && sum < 1.001 * wall,
               "%s: %d phases, gap %g, sum %g of %g us", part, phases, gap, sum, wall);
}

static void check_profile(const json_t *p, int ranks)
{
    check_phases(json_object_get(p, "pp"), "prompts", ranks);
    check_phases(json_object_get(p, "tg"), "decode_step", ranks);
    check_phases(json_object_get(p, "latency"), "prompts", ranks);
    check_phases(json_object_get(p, "latency"), "decode_step", ranks);
    check_phases(json_object_get(p, "throughput"), "step", ranks);
}

static void check_json(const struct process *p, int ranks, bool dummy)
{
    json_t *o = json_loads(p->text[PROCESS_OUT], 0, NULL);
    case_check(p->status == 0 && o != NULL, "status %d: %s%s", p->status, p->text[PROCESS_OUT], p->text[PROCESS_ERR]);
    check_rates(o, "prefill_tokens_per_second");
    check_rates(o, "decode_tokens_per_second");
    check_rates(o, "decode_milliseconds_per_step");
    check_mean(o, "prefill_mean_and_deviation", "prefill_tokens_per_second");
    check_mean(o, "decode_mean_and_deviation", "decode_tokens_per_second");
    check_share(o, "decode_share_of_read_limit");
    case_check(number(o, "ranks") == ranks && number(o, "repetitions") == 3 && number(o, "warmup") == 2, "ranks: %s",
               p->text[PROCESS_OUT]);
    case_check(number(o, "read_bytes_per_second") > 1e8, "read limit");
    /* Only GPUs record decode steps. */
    const json_t *steps = json_object_get(o, "decode_step"), *device = json_object_get(o, "device");
    bool cpu = json_is_string(device) && strcmp(json_string_value(device), "cpu") == 0;
    case_check(json_is_array(steps) && (json_array_size(steps) == 0) == cpu, "decode_step: %s", p->text[PROCESS_OUT]);
    /* of this process, whose life includes mpirun's start */
    case_check(number(o, "ready_seconds") > 0 && number(o, "ready_seconds") < p->seconds, "ready after %g of %g s",
               number(o, "ready_seconds"), p->seconds);
    check_latency(json_object_get(o, "latency"));
    check_throughput(json_object_get(o, "throughput"));
    check_profile(json_object_get(o, "profile_microseconds"), ranks);
    const json_t *times = json_object_get(o, "step_milliseconds");
    check_times(json_object_get(json_object_get(times, "tg"), "decode"), 3 * 5);
    check_times(json_object_get(json_object_get(times, "pp"), "with_prompts"), 3 * 3);
    case_check(json_is_null(json_object_get(json_object_get(times, "pp"), "decode")), "the prompt test decodes");
    const json_t *load = json_object_get(o, "load");
    case_check(dummy ? load == NULL : number(load, "bytes_read") > 5e6, "load: %s", p->text[PROCESS_OUT]);
    json_decref(o);
}

static void measures(int ranks, bool dummy)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    char config[400];
    (void)snprintf(config, sizeof config, "%s/config.json", models_demo());
    case_begin("bench of %s on %d rank(s)", dummy ? "a config with random weights" : "the demo", ranks);
    process_run(&p, &setup,
                (const char *[]){"bench",
                                 dummy ? "--config" : "--model",
                                 dummy ? config : models_demo(),
                                 "--load-format",
                                 dummy ? "dummy" : "auto",
                                 "--n-prompt",
                                 "20",
                                 "--n-gen",
                                 "5",
                                 "--n-depth",
                                 "7",
                                 "--batch",
                                 "2",
                                 "--max-batch-tokens",
                                 "9",
                                 "--latency",
                                 "4:3",
                                 "--throughput",
                                 "6:4",
                                 "--num-prompts",
                                 "5",
                                 "--max-batch",
                                 "2",
                                 "--repetitions",
                                 "3",
                                 "--warmup",
                                 "2",
                                 "--profile",
                                 "--step-times",
                                 "--json",
                                 NULL});
    check_json(&p, ranks, dummy);
    case_end();
    process_free(&p);
}

/* Checks texts that the output must have, and texts that it must not have. `wanted` and `unwanted` end with NULL. */
static void table(const char *what, const char *const *arguments, const char *const *wanted,
                  const char *const *unwanted)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench as a table, %s", what);
    process_run(&p, &setup, arguments);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    for (; *wanted != NULL; wanted++)
        case_check(strstr(p.text[PROCESS_OUT], *wanted) != NULL, "no \"%s\": %s", *wanted, p.text[PROCESS_OUT]);
    for (; *unwanted != NULL; unwanted++)
        case_check(strstr(p.text[PROCESS_OUT], *unwanted) == NULL, "\"%s\": %s", *unwanted, p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void tables(void)
{
    const char *demo = models_demo();
    table("decode alone", LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "3"),
          LIST("tg3 @ 0 x 1", "of the read limit", "read limit", "median of 5 after 1"),
          LIST("pp", "latency", "throughput", "profile", "host gap"));
    table("latency as in vLLM",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--latency", "8:4", "--batch", "8",
               "--warmup", "10", "--repetitions", "30"),
          LIST("latency 8:4 x 8: ", "median of 30 after 10", "p10 ", "p99 ", " ms per step"),
          LIST("pp", "tg", "profile"));
    table("too few repetitions for percentiles",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--latency", "8:1", "--repetitions", "9",
               "--warmup", "0"),
          LIST("latency 8:1 x 1: ", "median of 9 after 0"), LIST("p10", "p99", "a step"));
    table("loading alone", LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0"),
          LIST("\nload 0.01 GB in ", "read limit"), LIST("tokens/s", "median", "pp", "tg", "latency", "throughput"));
    table("throughput alone with a profile",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "5:3", "--num-prompts", "4",
               "--profile"),
          LIST("throughput 5:3 x 4: ", "up to 4 at once", "requests/s", "output tokens/s", "% of the read limit",
               "profile of throughput 5:3 x 4, a step", "matrix products", "all-reduce", "sampling", "host gap"),
          LIST("pp", "tg", "latency"));
    table("more requests than the KV cache holds at once",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "20:12", "--num-prompts",
               "6", "--kv-cache-memory-bytes", "300K", "--repetitions", "1"),
          LIST("throughput 20:12 x 6: ", "at once", "time to first token  ", "time between tokens  "),
          LIST("up to 6 at once", "prefix cache", "decode steps", "steps with prompts"));
    table("requests that share a prefix, and the times of steps",
          LIST("bench", "--model", demo, "--n-prompt", "9", "--n-gen", "4", "--throughput", "40:3", "--num-prompts",
               "4", "--shared-prefix", "33", "--max-batch-tokens", "40", "--repetitions", "2", "--step-times",
               "--max-step-ms", "1000"),
          LIST("  33 of 40 tokens shared: 60.0 % of all prompts' tokens came from the prefix cache",
               "steps with prompts ", "decode steps "),
          LIST("profile"));
}

/* Requests with a form run on for all of their tokens. */
static void forms(void)
{
    char dir[256], endless[300];
    const char *demo = models_demo();
    files_make_dir(dir);
    files_write_text(dir, "endless.json",
                     "{\"type\":\"array\",\"minItems\":99,\"items\":{\"type\":\"string\",\"maxLength\":9}}");
    (void)snprintf(endless, sizeof endless, "%s/endless.json", dir);
    table("throughput with a form",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "5:30", "--num-prompts",
               "4", "--tokenizer", demo, "--json-schema", endless, "--repetitions", "2"),
          LIST("throughput 5:30 x 4: ", "output tokens/s"), LIST("latency"));
    files_remove_dir(dir);
}

int main(void)
{
    measures(1, false);
    measures(3, false);
    measures(2, true);
    tables();
    forms();
    return cases_done();
}
