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

/* {median, lowest, highest}, all above 0 and in order. */
static void check_rates(const json_t *o, const char *key)
{
    const json_t *r = json_object_get(o, key);
    double median = json_number_value(json_array_get(r, 0));
    double lowest = json_number_value(json_array_get(r, 1)), highest = json_number_value(json_array_get(r, 2));
    case_check(json_array_size(r) == 3 && lowest > 0 && lowest <= median && median <= highest, "%s: %g, %g .. %g", key,
               median, lowest, highest);
}

static void check_json(const struct process *p, int ranks, bool dummy)
{
    json_t *o = json_loads(p->text[PROCESS_OUT], 0, NULL), *l = json_object_get(o, "latency");
    case_check(p->status == 0 && o != NULL, "status %d: %s%s", p->status, p->text[PROCESS_OUT], p->text[PROCESS_ERR]);
    check_rates(o, "prefill_tokens_per_second");
    check_rates(o, "decode_tokens_per_second");
    check_rates(l, "milliseconds");
    case_check(json_integer_value(json_object_get(o, "ranks")) == ranks, "ranks: %s", p->text[PROCESS_OUT]);
    case_check(json_integer_value(json_object_get(l, "input")) == 4 &&
                   json_integer_value(json_object_get(l, "output")) == 3 &&
                   json_integer_value(json_object_get(l, "batch")) == 2,
               "latency: %s", p->text[PROCESS_OUT]);
    const json_t *load = json_object_get(o, "load");
    case_check(dummy ? json_is_null(load) : json_number_value(json_object_get(load, "bytes_read")) > 5e6, "load: %s",
               p->text[PROCESS_OUT]);
    double share = json_number_value(json_object_get(o, "decode_share_of_read_limit"));
    case_check(share > 0 && json_number_value(json_object_get(o, "read_bytes_per_second")) > 1e8, "share %g", share);
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
                                 "--repetitions",
                                 "3",
                                 "--json",
                                 NULL});
    check_json(&p, ranks, dummy);
    case_end();
    process_free(&p);
}

/* Checkpoints that scripts/make-dummy-checkpoint.py writes: the names and shapes that the family wants, and loading alone is
 * something to measure. */
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
                    (const char *[]){"bench", "--model", made, "--n-prompt", "0", "--n-gen", "0", "--json", NULL});
        json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL), *l = json_object_get(o, "load");
        double read = json_number_value(json_object_get(l, "bytes_read"));
        case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        case_check(read >= bytes && read < 1.01 * bytes, "%.0f bytes are read, expected %.0f", read, bytes);
        case_check(json_number_value(json_object_get(l, "bytes_held")) >= bytes &&
                       json_number_value(json_object_get(l, "seconds")) > 0 &&
                       json_number_value(json_object_get(l, "slowest_device_bytes_per_second")) > 0 &&
                       json_number_value(json_object_get(l, "peak_host_bytes_per_rank")) > 1e6 &&
                       json_is_null(json_object_get(l, "host_to_device_bytes_per_second")),
                   "load: %s", p.text[PROCESS_OUT]);
        process_free(&p);
        process_run(&p, &setup, (const char *[]){"bench", "--model", made, "--n-prompt", "0", "--n-gen", "1", NULL});
        case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], "\nload 0.00 GB in ") != NULL &&
                       strstr(p.text[PROCESS_OUT], " of host memory a rank\n") != NULL,
                   "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
        json_decref(o);
        process_free(&p);
    }
    case_end();
    files_remove_dir(made);
    files_remove_dir(dir);
}

static void table(void)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench as a table, decode alone");
    process_run(&p, &setup,
                (const char *[]){"bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "3", NULL});
    case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], "tg3 @ 1 x 1") != NULL &&
                   strstr(p.text[PROCESS_OUT], "of the read limit") != NULL &&
                   strstr(p.text[PROCESS_OUT], "pp") == NULL,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

static void refused(const char *what, const char *const *arguments)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench refuses %s", what);
    process_run(&p, &setup, arguments);
    case_check(p.status == ERR_USAGE && process_count_lines(p.text[PROCESS_ERR]) == 1 && p.bytes[PROCESS_OUT] == 0,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
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
    case_check(p.seconds < 5 || process_sanitized(), "%.1f s", p.seconds);
    case_end();
    process_free(&p);
    files_remove_dir(dir);
}

int main(void)
{
    measures(1, false);
    measures(3, false);
    measures(2, true);
    table();
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
    refused("--config without noise", (const char *[]){"bench", "--config", "scripts/configs/llama-1b.json", NULL});
    refused("no model", (const char *[]){"bench", NULL});
    refused("half a latency", (const char *[]){"bench", "--model", models_demo(), "--latency", "5:x", NULL});
    refused("nothing to do", (const char *[]){"bench", "--config", "scripts/configs/llama-1b.json", "--load-format",
                                              "dummy", "--n-prompt", "0", "--n-gen", "0", NULL});
    char dir[256];
    models_fixture(dir, "gpt2-3h");
    refused("more tokens than positions", (const char *[]){"bench", "--model", dir, "--n-prompt", "20000", NULL});
    files_remove_dir(dir);
    too_large();
    return cases_done();
}
