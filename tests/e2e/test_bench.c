/* tests/e2e/test_bench.c - `lockstep bench` measures what it was asked for, and says so as a table and as JSON. */
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

/* {median, lowest, highest}, all above 0 and in order. */
static void check_rates(const json_t *o, const char *key)
{
    const json_t *r = json_object_get(o, key);
    double median = json_number_value(json_array_get(r, 0));
    double lowest = json_number_value(json_array_get(r, 1)), highest = json_number_value(json_array_get(r, 2));
    case_check(json_array_size(r) == 3 && lowest > 0 && lowest <= median && median <= highest, "%s: %g, %g .. %g", key,
               median, lowest, highest);
}

/* {mean, deviation} of the rates {median, lowest, highest}. */
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
    case_check(number(l, "input") == 4 && number(l, "output") == 3 && number(l, "batch") == 2, "latency's shape");
    case_check(number(l, "mean_milliseconds") > 0, "no mean");
    double total = json_number_value(json_array_get(json_object_get(l, "milliseconds"), 0));
    double step = json_number_value(json_array_get(json_object_get(l, "decode_milliseconds_per_step"), 0));
    case_check(2 * step < total, "2 steps of %g ms in %g ms", step, total);
    check_rates(l, "prompts_milliseconds");
}

/* Percentiles of n times in order, the mean within them. */
static void check_times(const json_t *t, double n)
{
    double median = number(t, "median"), p99 = number(t, "p99"), highest = number(t, "highest");
    case_check(number(t, "n") == n && median > 0 && median <= number(t, "p90") && number(t, "p90") <= p99 &&
                   p99 <= highest && number(t, "mean") > 0 && number(t, "mean") <= highest,
               "times: n %g of %g, median %g, p99 %g, highest %g", number(t, "n"), n, median, p99, highest);
}

/* 5 requests of 6 + 4 tokens, 2 at once, 9 tokens a step: a token costs at most one step. */
static void check_throughput(const json_t *t)
{
    check_rates(t, "seconds");
    check_rates(t, "requests_per_second");
    check_rates(t, "output_tokens_per_second");
    check_rates(t, "total_tokens_per_second");
    check_share(t, "share_of_read_limit");
    case_check(number(t, "requests") == 5 && number(t, "input") == 6 && number(t, "output") == 4 &&
                   number(t, "max_batch") == 2 && number(t, "most_at_once") == 2,
               "throughput's shape");
    case_check(number(t, "steps") >= 10 && number(t, "steps") <= 5 * 5, "%g steps", number(t, "steps"));
    const json_t *requests = json_object_get(t, "requests_per_second"),
                 *all = json_object_get(t, "total_tokens_per_second");
    double ratio = json_number_value(json_array_get(all, 0)) / json_number_value(json_array_get(requests, 0));
    case_check(ratio > 9.999 && ratio < 10.001, "%g tokens a request", ratio);
    check_times(json_object_get(t, "time_to_first_token_milliseconds"), 3 * 5);
    check_times(json_object_get(t, "time_between_tokens_milliseconds"), 3 * 5 * 3);
}

/* Every phase that there is on this many ranks took time, and they are not far from the wall time together: rank 0's,
 * which may be ahead of the others when a run ends. */
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
    /* of this process, in whose life mpirun's start lies too */
    case_check(number(o, "ready_seconds") > 0 && number(o, "ready_seconds") < p->seconds, "ready after %g of %g s",
               number(o, "ready_seconds"), p->seconds);
    check_latency(json_object_get(o, "latency"));
    check_throughput(json_object_get(o, "throughput"));
    check_profile(json_object_get(o, "profile_microseconds"), ranks);
    const json_t *times = json_object_get(o, "step_milliseconds");
    check_times(json_object_get(json_object_get(times, "tg"), "decode"), 3 * 5);
    check_times(json_object_get(json_object_get(times, "pp"), "with_prompts"), 3 * 3);
    case_check(json_is_null(json_object_get(json_object_get(times, "pp"), "decode")), "pp decodes");
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
    case_begin("bench of %s on %d rank(s)", dummy ? "a config with noise" : "the demo", ranks);
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

/* Checkpoints that scripts/make-dummy-checkpoint.py writes: the names and shapes that the family wants, and loading
 * alone is something to measure. */
static void loads(const char *family, const char *config, double bytes)
{
    char dir[256], made[300], command[900];
    struct process_setup setup = {.ranks = 2};
    struct process p;
    files_make_dir(dir);
    (void)snprintf(made, sizeof made, "%s/made", dir);
    files_write(dir, "config.json", config, strlen(config));
    (void)snprintf(command, sizeof command,
                   "python3 scripts/make-dummy-checkpoint.py '%s/config.json' '%s' --shard-bytes "
                   "100000 --jobs 2 >/dev/null",
                   dir, made);
    case_begin("loading of a made %s checkpoint", family);
    if (case_check(system(command) == 0, "%s failed", command)) {
        process_run(&p, &setup,
                    (const char *[]){"bench", "--model", made, "--n-prompt", "0", "--n-gen", "0", "--json",
                                     "--load-threads", "2", "--load-slots", "5", "--load-piece-bytes", "8K", NULL});
        json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL), *l = json_object_get(o, "load");
        double read = json_number_value(json_object_get(l, "bytes_read"));
        case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        case_check(read >= bytes && read < 1.01 * bytes, "%.0f bytes are read, expected %.0f", read, bytes);
        const json_t *parts = json_object_get(l, "mean_seconds_of_a_rank");
        double sum = 0, whole = json_number_value(json_object_get(l, "seconds"));
        static const char *const part[] = {"window", "reading", "device", "ranks", "placing"};
        for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
            sum += json_number_value(json_object_get(parts, part[i]));
        case_check(json_object_size(parts) == 5 && sum > 0 && sum < 1.01 * whole, "%g of %g s have a part", sum, whole);
        case_check(json_integer_value(json_object_get(l, "threads")) == 2 &&
                       json_integer_value(json_object_get(l, "slots")) == 5 &&
                       json_integer_value(json_object_get(l, "piece_bytes")) == 8192 &&
                       strcmp(json_string_value(json_object_get(l, "way")), "together") == 0,
                   "load: %s", p.text[PROCESS_OUT]);
        case_check(json_number_value(json_object_get(l, "bytes_held")) >= bytes &&
                       json_number_value(json_object_get(l, "seconds")) > 0 &&
                       json_number_value(json_object_get(l, "slowest_device_bytes_per_second")) > 0 &&
                       json_number_value(json_object_get(l, "peak_host_bytes_per_rank")) > 1e6 &&
                       json_object_get(l, "host_to_device_bytes_per_second") == NULL,
                   "load: %s", p.text[PROCESS_OUT]);
        process_free(&p);
        process_run(&p, &setup, (const char *[]){"bench", "--model", made, "--n-prompt", "0", "--n-gen", "1", NULL});
        case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], "\nload 0.00 GB in ") != NULL &&
                       strstr(p.text[PROCESS_OUT], " of host memory per rank\n") != NULL,
                   "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
        json_decref(o);
        process_free(&p);
    }
    case_end();
    files_remove_dir(made);
    files_remove_dir(dir);
}

/* Texts that the output has, and texts that it must not have. `wanted` and `unwanted` end with NULL. */
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
    table("latency as vLLM has it",
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

static void refused_with(enum err_code status, const char *what, const char *const *arguments)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench refuses %s", what);
    process_run(&p, &setup, arguments);
    case_check(p.status == (int)status && process_count_lines(p.text[PROCESS_ERR]) == 1 && p.bytes[PROCESS_OUT] == 0,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

static void refused(const char *what, const char *const *arguments)
{
    refused_with(ERR_USAGE, what, arguments);
}

/* Requests whose text has a form: they go on for all of their tokens, or the measurement would be of something else. */
static void forms(void)
{
    char dir[256], endless[300], short_one[300];
    const char *demo = models_demo();
    files_make_dir(dir);
    files_write_text(dir, "endless.json",
                     "{\"type\":\"array\",\"minItems\":99,\"items\":{\"type\":\"string\",\"maxLength\":9}}");
    files_write_text(dir, "short.json", "{\"type\":\"boolean\"}");
    (void)snprintf(endless, sizeof endless, "%s/endless.json", dir);
    (void)snprintf(short_one, sizeof short_one, "%s/short.json", dir);
    table("throughput of a form",
          LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "5:30", "--num-prompts",
               "4", "--tokenizer", demo, "--json-schema", endless, "--repetitions", "2"),
          LIST("throughput 5:30 x 4: ", "output tokens/s"), LIST("latency"));
    refused_with(ERR_INPUT, "a form that ends early",
                 LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "5:30",
                      "--num-prompts", "4", "--tokenizer", demo, "--json-schema", short_one));
    files_remove_dir(dir);
}

/* Said with the numbers, before anything is taken: some 8 TB of weights. */
static void too_large(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 1000, \"hidden_size\": 16384, \"intermediate_size\": 65536, "
        "\"num_hidden_layers\": 1000, \"num_attention_heads\": 128, \"max_position_embeddings\": 64, \"torch_dtype\": "
        "\"bfloat16\"}";
    char dir[256], path[300];
    struct process_setup setup = {.ranks = 2};
    struct process p;
    files_make_dir(dir);
    files_write(dir, "config.json", config, strlen(config));
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    case_begin("bench refuses a model that does not fit");
    process_run(&p, &setup, (const char *[]){"bench", "--config", path, "--load-format", "dummy", NULL});
    const char *line = p.text[PROCESS_ERR];
    case_check(p.status == ERR_MEMORY && process_count_lines(line) == 1 && p.bytes[PROCESS_OUT] == 0, "status %d: %s",
               p.status, line);
    case_check(strstr(line, "needed on this host: ") != NULL && strstr(line, " of weights + ") != NULL &&
                   strstr(line, " of working memory + ") != NULL && strstr(line, " for keys and values (") != NULL &&
                   strstr(line, " GiB are free") != NULL,
               "the numbers are not in: %s", line);
    case_check(process_in_time(p.seconds, 5), "%.1f s", p.seconds);
    case_end();
    process_free(&p);
    files_remove_dir(dir);
}

/* Random weights of every format that there is, and what they are called. */
static void quantised(void)
{
    static const char *const formats[][2] = {{"fp8", "FP8 of 8 bits (noise)"},
                                             {"fp8-block", "FP8 of 8 bits in blocks of 128 x 128 (noise)"},
                                             {"int8", "INT8 of 8 bits (noise)"},
                                             {"int4-zeros", "packed integers of 4 bits in groups of 128 (noise)"}};
    char config[400];
    (void)snprintf(config, sizeof config, "%s/config.json", models_demo());
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct process_setup setup = {.ranks = 2};
        struct process p;
        case_begin("bench of noise as %s", formats[i][0]);
        process_run(&p, &setup,
                    (const char *[]){"bench", "--config", config, "--load-format", "dummy", "--quantization",
                                     formats[i][0], "--n-prompt", "9", "--n-gen", "3", "--repetitions", "1", NULL});
        case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], formats[i][1]) != NULL, "status %d: %s", p.status,
                   p.text[PROCESS_OUT]);
        case_end();
        process_free(&p);
    }
}

/* Two models in turn: every part of each switch is told, and lies between its lowest and its highest. */
static void switches(int ranks)
{
    const struct process_setup setup = {.ranks = ranks};
    struct process p;
    char dir[256], both[800];
    models_fixture(dir, "gpt2-3h");
    (void)snprintf(both, sizeof both, "%s,%s", models_demo(), dir);
    case_begin("bench of switches between two models on %d rank(s)", ranks);
    process_run(&p, &setup, LIST("bench", "--model-switch", both, "--n-prompt", "5", "--repetitions", "3", "--json"));
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    const json_t *list = json_object_get(o, "model_switch");
    case_check(p.status == 0 && json_array_size(list) == 2, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *part;
        json_t *parts = json_object_get(one, "parts_milliseconds");
        const char *name = json_string_value(json_object_get(one, "model")), *key;
        double all[3] = {0}, sum = 0;
        for (size_t k = 0; k < 3; k++)
            all[k] = json_number_value(json_array_get(json_object_get(one, "milliseconds"), k));
        case_check(name != NULL && strstr(i == 0 ? models_demo() : dir, name) != NULL, "switch %zu: to %s", i, name);
        case_check(all[1] > 0 && all[1] <= all[0] && all[0] <= all[2], "%g [%g .. %g] ms", all[0], all[1], all[2]);
        case_check(json_object_size(parts) == 10, "%zu parts", json_object_size(parts));
        json_object_foreach(parts, key, part)
        {
            double median = json_number_value(json_array_get(part, 0)),
                   least = json_number_value(json_array_get(part, 1)),
                   most = json_number_value(json_array_get(part, 2));
            sum += median;
            case_check(least >= 0 && least <= median && median <= most && most <= all[2], "%s: %g [%g .. %g] of %g ms",
                       key, median, least, most, all[2]);
        }
        case_check(sum > 0, "all parts took no time");
    }
    json_decref(o);
    process_free(&p);
    files_remove_dir(dir);
    case_end();
}

/* A third model runs meanwhile: it has steps alone, and steps beside each part of a switch. */
static void switches_beside(int ranks)
{
    static const char *const part[] = {"alone", "exchange", "unload", "begin", "commit"};
    const struct process_setup setup = {.ranks = ranks};
    struct process p;
    char dir[256], third[256], both[800];
    models_fixture(dir, "gpt2-3h");
    models_fixture(third, "llama-mha");
    (void)snprintf(both, sizeof both, "%s,%s", models_demo(), dir);
    case_begin("bench of switches beside a model that runs, on %d rank(s)", ranks);
    process_run(&p, &setup,
                LIST("bench", "--model-switch", both, "--beside", third, "--batch", "3", "--n-prompt", "5",
                     "--repetitions", "2", "--json"));
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    const json_t *beside = json_object_get(o, "beside");
    case_check(p.status == 0 && json_array_size(json_object_get(o, "model_switch")) == 2, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    case_check(json_integer_value(json_object_get(beside, "batch")) == 3, "the batch");
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const json_t *one = json_object_get(beside, part[i]);
        double median = json_number_value(json_object_get(one, "median_milliseconds"));
        double longest = json_number_value(json_object_get(one, "longest_milliseconds"));
        json_int_t n = json_integer_value(json_object_get(one, "steps"));
        case_check(n >= 4 || (n >= 1 && i < 2), "%s: %lld steps", part[i], (long long)n);
        case_check(median > 0 && median <= longest, "%s: %g of %g ms", part[i], median, longest);
        case_check(json_number_value(json_object_get(one, "tokens_per_second")) > 0, "%s: no tokens", part[i]);
    }
    json_decref(o);
    process_free(&p);
    files_remove_dir(dir);
    files_remove_dir(third);
    case_end();
}

int main(void)
{
    quantised();
    switches(1);
    switches(2);
    switches_beside(1);
    switches_beside(2);
    measures(1, false);
    measures(3, false);
    measures(2, true);
    tables();
    /* Bytes: 2 x (embedding + head + layers x (attention + MLP + norms) + norm). */
    loads("llama",
          "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 160, "
          "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
          "\"max_position_embeddings\": 64, \"torch_dtype\": \"bfloat16\"}",
          2.0 * (2 * 300 * 64 + 3 * (64 * 64 * 3 + 3 * 160 * 64 + 2 * 64) + 64));
    loads("gptj",
          "{\"model_type\": \"gptj\", \"vocab_size\": 300, \"n_positions\": 64, \"n_embd\": 64, \"n_layer\": 2, "
          "\"n_head\": 4, \"rotary_dim\": 8, \"tie_word_embeddings\": false, \"torch_dtype\": \"float16\"}",
          2.0 * (2 * 300 * 64 + 300 + 2 * (4 * 64 * 64 + 2 * 256 * 64 + 256 + 64 + 2 * 64) + 2 * 64));
    loads("opt",
          "{\"model_type\": \"opt\", \"vocab_size\": 300, \"hidden_size\": 64, \"word_embed_proj_dim\": 64, "
          "\"num_hidden_layers\": 2, \"ffn_dim\": 256, \"num_attention_heads\": 4, \"max_position_embeddings\": 64, "
          "\"do_layer_norm_before\": true, \"torch_dtype\": \"float16\"}",
          2.0 * (300 * 64 + 66 * 64 + 2 * (4 * (64 * 64 + 64) + 2 * 256 * 64 + 256 + 64 + 4 * 64) + 2 * 64));
    loads("gemma3_text",
          "{\"model_type\": \"gemma3_text\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 160, "
          "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
          "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}",
          2.0 * (300 * 64 + 2 * (64 * 64 * 3 + 3 * 160 * 64 + 4 * 64 + 2 * 16) + 64));
    refused("--config without noise", LIST("bench", "--config", "scripts/configs/llama-1b.json"));
    refused("no model", LIST("bench"));
    refused("a switch to nothing", LIST("bench", "--model-switch", models_demo()));
    refused("a switch beside a model", LIST("bench", "--model-switch", "a,b", "--model", models_demo()));
    refused("a model beside no switch", LIST("bench", "--model", models_demo(), "--beside", models_demo()));
    refused("a switch with a draft model", LIST("bench", "--model-switch", "a,b", "--draft-model", models_demo()));
    refused("a switch on other ranks", LIST("bench", "--model-switch", "a,b", "--tensor-parallel", "1"));
    refused("a switch of weights made FP8", LIST("bench", "--model-switch", "a,b", "--quantization", "fp8"));
    refused("a switch beside decode steps", LIST("bench", "--model-switch", "a,b", "--n-gen", "7"));
    refused("half a latency", LIST("bench", "--model", models_demo(), "--latency", "5:x"));
    refused("a latency with a tail", LIST("bench", "--model", models_demo(), "--latency", "5:6 "));
    refused("a throughput of nothing", LIST("bench", "--model", models_demo(), "--throughput", "5:0"));
    refused("a throughput without output", LIST("bench", "--model", models_demo(), "--throughput", "5"));
    refused("a huge throughput", LIST("bench", "--model", models_demo(), "--throughput", "5:99999999999999999999"));
    refused("a signed throughput", LIST("bench", "--model", models_demo(), "--throughput", "+5:6"));
    refused("more at once than a step has tokens", LIST("bench", "--model", models_demo(), "--throughput", "5:6",
                                                        "--max-batch", "9", "--max-batch-tokens", "8"));
    refused("--num-prompts without --throughput", LIST("bench", "--model", models_demo(), "--num-prompts", "5"));
    refused("--tokenizer without --throughput", LIST("bench", "--model", models_demo(), "--tokenizer", models_demo()));
    refused("--json-schema without --tokenizer",
            LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--json-schema", "x"));
    refused("drafts without a model that rest", LIST("bench", "--model", models_demo(), "--throughput", "5:6",
                                                     "--num-speculative-tokens", "2", "--speculative", "auto"));
    refused("simulated drafts of a form", LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--tokenizer",
                                               models_demo(), "--json-schema", "x", "--num-speculative-tokens", "2"));
    refused("--shared-prefix without --throughput", LIST("bench", "--model", models_demo(), "--shared-prefix", "5"));
    refused("--max-step-ms without --throughput", LIST("bench", "--model", models_demo(), "--max-step-ms", "5"));
    refused("steps of no time", LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--max-step-ms", "0"));
    refused("a shared prefix of whole prompts",
            LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--shared-prefix", "5"));
    refused("times of no steps",
            LIST("bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "0", "--step-times"));
    refused("--max-batch without --throughput", LIST("bench", "--model", models_demo(), "--max-batch", "5"));
    refused("--batch without what has one", LIST("bench", "--model", models_demo(), "--n-gen", "0", "--batch", "5"));
    refused("--n-depth without decode", LIST("bench", "--model", models_demo(), "--n-gen", "0", "--n-depth", "5"));
    refused_with(ERR_UNSUPPORTED, "a persistent step on CPUs",
                 LIST("bench", "--model", models_demo(), "--device", "cpu", "--step", "persistent"));
    refused("a window for what is not loaded",
            LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format", "dummy", "--load-slots", "8"));
    refused("a way to load what is not loaded", LIST("bench", "--config", "scripts/configs/llama-1b.json",
                                                     "--load-format", "dummy", "--load-way", "alone"));
    refused("an unknown quantisation", LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format",
                                            "dummy", "--quantization", "fp3"));
    refused("a quantisation of what is loaded", LIST("bench", "--model", models_demo(), "--quantization", "fp8"));
    refused("--warmup below 0", LIST("bench", "--model", models_demo(), "--warmup", "-1"));
    refused("nothing to do", LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format", "dummy",
                                  "--n-prompt", "0", "--n-gen", "0"));
    refused("a profile of loading alone",
            LIST("bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "0", "--profile"));
    char dir[256];
    models_fixture(dir, "gpt2-3h");
    refused("more tokens than positions", LIST("bench", "--model", dir, "--n-prompt", "20000"));
    refused("requests of more tokens than positions", LIST("bench", "--model", dir, "--throughput", "2000:2000"));
    files_remove_dir(dir);
    forms();
    too_large();
    return cases_done();
}
