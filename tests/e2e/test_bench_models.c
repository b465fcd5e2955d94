/* tests/e2e/test_bench_models.c - `lockstep bench` of all kinds of models: loaded from files of every family and form,
 * quantised, and exchanged for each other. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The text output reports the loading, too. */
static void tells_loading(const char *dir)
{
    const struct process_setup setup = {.ranks = 2};
    struct process p;
    process_run(&p, &setup, LIST("bench", "--model", dir, "--n-prompt", "0", "--n-gen", "1"));
    case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], "\nload 0.00 GB in ") != NULL &&
                   strstr(p.text[PROCESS_OUT], " of host memory per rank\n") != NULL,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    process_free(&p);
}

/* Checkpoints of scripts/make-dummy-checkpoint.py have the names and shapes that the family requires; loading alone can
 * be measured. */
static void loads(const char *family, const char *options, const char *config, double bytes)
{
    char dir[256], made[300], command[900];
    bool plain = strcmp(family, "llama") == 0 && options[0] == '\0';
    struct process_setup setup = {.ranks = 2};
    struct process p;
    files_make_dir(dir);
    (void)snprintf(made, sizeof made, "%s/made", dir);
    files_write(dir, "config.json", config, strlen(config));
    (void)snprintf(command, sizeof command,
                   "python3 scripts/make-dummy-checkpoint.py '%s/config.json' '%s' %s --shard-bytes "
                   "100000 --jobs 2 >/dev/null",
                   dir, made, options);
    case_begin("loading of a generated %s checkpoint %s", family, options);
    if (case_check(system(command) == 0, "%s failed", command)) {
        process_run(&p, &setup,
                    (const char *[]){"bench", "--model", made, "--n-prompt", "0", "--n-gen", plain ? "0" : "1",
                                     "--json", "--load-threads", "2", "--load-slots", "5", "--load-piece-bytes", "8K",
                                     NULL});
        json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL), *l = json_object_get(o, "load");
        double read = json_number_value(json_object_get(l, "bytes_read"));
        case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        case_check(read >= bytes && read < 1.01 * bytes, "%.0f bytes are read, expected %.0f", read, bytes);
        const json_t *parts = json_object_get(l, "mean_seconds_of_a_rank");
        double sum = 0, whole = json_number_value(json_object_get(l, "seconds"));
        static const char *const part[] = {"window", "reading", "device", "ranks", "placing"};
        for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
            sum += json_number_value(json_object_get(parts, part[i]));
        case_check(json_object_size(parts) == 5 && sum > 0 && sum < 1.01 * whole, "the parts sum to %g of %g s", sum,
                   whole);
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
        if (plain)
            tells_loading(made);
        json_decref(o);
        process_free(&p);
    }
    case_end();
    files_remove_dir(made);
    files_remove_dir(dir);
}

/* Random weights of every format, and the names of these formats. */
static void quantised(void)
{
    static const char *const formats[][2] = {{"fp8", "FP8 of 8 bits (noise)"},
                                             {"fp8-block", "FP8 of 8 bits in blocks of 128 x 128 (noise)"},
                                             {"int8", "INT8 of 8 bits (noise)"},
                                             {"int4", "packed integers of 4 bits in groups of 128 (noise)"},
                                             {"int4-zeros", "packed integers of 4 bits in groups of 128 (noise)"},
                                             {"nvfp4", "NVFP4 of 4 bits in groups of 16 (noise)"},
                                             {"mxfp4", "MXFP4 of 4 bits in groups of 32 (noise)"}};
    char dense[400], experts[300], dir[256];
    models_fixture(dir, "gptoss-5");
    (void)snprintf(dense, sizeof dense, "%s/config.json", models_demo());
    (void)snprintf(experts, sizeof experts, "%s/config.json", dir);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const char *config = strcmp(formats[i][0], "mxfp4") == 0 ? experts : dense;
        struct process_setup setup = {.ranks = 2};
        struct process p;
        case_begin("bench of random weights as %s", formats[i][0]);
        process_run(&p, &setup,
                    (const char *[]){"bench", "--config", config, "--load-format", "dummy", "--quantization",
                                     formats[i][0], "--n-prompt", "9", "--n-gen", "3", "--repetitions", "1", NULL});
        case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], formats[i][1]) != NULL, "status %d: %s", p.status,
                   p.text[PROCESS_OUT]);
        case_end();
        process_free(&p);
    }
    files_remove_dir(dir);
}

/* Two models in turn: every part of each switch is reported, and its median lies between the lowest and the highest. */
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
        case_check(json_object_size(parts) == 11, "%zu parts", json_object_size(parts));
        json_object_foreach(parts, key, part)
        {
            double median = json_number_value(json_array_get(part, 0)),
                   least = json_number_value(json_array_get(part, 1)),
                   most = json_number_value(json_array_get(part, 2));
            sum += median;
            case_check(least >= 0 && least <= median && median <= most && most <= all[2], "%s: %g [%g .. %g] of %g ms",
                       key, median, least, most, all[2]);
        }
        case_check(sum > 0, "no part took any time");
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
        case_check(n >= 1, "%s: %lld steps", part[i], (long long)n);
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
    /* Bytes: 2 x (embedding + head + layers x (attention + MLP + norms) + norm). */
    const char *llama =
        "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 160, "
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"max_position_embeddings\": 64, \"torch_dtype\": \"bfloat16\"}";
    loads("llama", "", llama, 2.0 * (2 * 300 * 64 + 3 * (64 * 64 * 3 + 3 * 160 * 64 + 2 * 64) + 64));
    /* One byte per element of a matrix, and one float for each of a layer's 10 blocks. */
    loads("llama", "--fp8", llama, 2.0 * (2 * 300 * 64 + 3 * 2 * 64 + 64) + 3 * (64 * 64 * 3 + 3 * 160 * 64 + 10 * 4));
    loads("gptj", "",
          "{\"model_type\": \"gptj\", \"vocab_size\": 300, \"n_positions\": 64, \"n_embd\": 64, \"n_layer\": 2, "
          "\"n_head\": 4, \"rotary_dim\": 8, \"tie_word_embeddings\": false, \"torch_dtype\": \"float16\"}",
          2.0 * (2 * 300 * 64 + 300 + 2 * (4 * 64 * 64 + 2 * 256 * 64 + 256 + 64 + 2 * 64) + 2 * 64));
    loads("opt", "",
          "{\"model_type\": \"opt\", \"vocab_size\": 300, \"hidden_size\": 64, \"word_embed_proj_dim\": 64, "
          "\"num_hidden_layers\": 2, \"ffn_dim\": 256, \"num_attention_heads\": 4, \"max_position_embeddings\": 64, "
          "\"do_layer_norm_before\": true, \"torch_dtype\": \"float16\"}",
          2.0 * (300 * 64 + 66 * 64 + 2 * (4 * (64 * 64 + 64) + 2 * 256 * 64 + 256 + 64 + 4 * 64) + 2 * 64));
    loads("gemma3_text", "",
          "{\"model_type\": \"gemma3_text\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 160, "
          "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
          "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}",
          2.0 * (300 * 64 + 2 * (64 * 64 * 3 + 3 * 160 * 64 + 4 * 64 + 2 * 16) + 64));
    return cases_done();
}
