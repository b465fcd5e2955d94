/* tests/e2e/test_bench_refusals.c - `lockstep bench` refuses what it cannot measure, each with one line. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <string.h>

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

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

/* A text may end before all of its tokens came: then the measurement would mean something else. */
static void early_end(void)
{
    char dir[256], form[300];
    const char *demo = models_demo();
    files_make_dir(dir);
    files_write_text(dir, "short.json", "{\"type\":\"boolean\"}");
    (void)snprintf(form, sizeof form, "%s/short.json", dir);
    refused_with(ERR_INPUT, "a form that ends early",
                 LIST("bench", "--model", demo, "--n-prompt", "0", "--n-gen", "0", "--throughput", "5:30",
                      "--num-prompts", "4", "--tokenizer", demo, "--json-schema", form));
    files_remove_dir(dir);
}

/* The refusal comes with the numbers, before anything is allocated: some 8 TB of weights. */
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

static void pieces_of_one_rank(void)
{
    struct process_setup setup = {.ranks = 1};
    struct process p;
    case_begin("bench refuses sums of one rank in pieces");
    process_run(&p, &setup, LIST("bench", "--model", models_demo(), "--sum-pieces", "2"));
    const char *line = p.text[PROCESS_ERR];
    case_check(p.status == ERR_USAGE && process_count_lines(line) == 1 && p.bytes[PROCESS_OUT] == 0, "status %d: %s",
               p.status, line);
    case_check(strstr(line, "--sum-pieces 2: one rank has nothing to sum") != NULL, "another reason: %s", line);
    case_end();
    process_free(&p);
}

int main(void)
{
    refused("--config without random weights", LIST("bench", "--config", "scripts/configs/llama-1b.json"));
    refused("no model", LIST("bench"));
    refused("a switch without a model", LIST("bench", "--model-switch", models_demo()));
    refused("a switch beside a model", LIST("bench", "--model-switch", "a,b", "--model", models_demo()));
    refused("a further model without a switch", LIST("bench", "--model", models_demo(), "--beside", models_demo()));
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
    refused("simulated drafts with --speculative auto", LIST("bench", "--model", models_demo(), "--throughput", "5:6",
                                                             "--num-speculative-tokens", "2", "--speculative", "auto"));
    refused("simulated drafts of a form", LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--tokenizer",
                                               models_demo(), "--json-schema", "x", "--num-speculative-tokens", "2"));
    refused("--shared-prefix without --throughput", LIST("bench", "--model", models_demo(), "--shared-prefix", "5"));
    refused("--max-step-ms without --throughput", LIST("bench", "--model", models_demo(), "--max-step-ms", "5"));
    refused("a step limit of 0", LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--max-step-ms", "0"));
    refused("a shared prefix of whole prompts",
            LIST("bench", "--model", models_demo(), "--throughput", "5:6", "--shared-prefix", "5"));
    refused("step times without steps",
            LIST("bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "0", "--step-times"));
    refused("--max-batch without --throughput", LIST("bench", "--model", models_demo(), "--max-batch", "5"));
    refused("--batch without a test that uses it",
            LIST("bench", "--model", models_demo(), "--n-gen", "0", "--batch", "5"));
    refused("--n-depth without decode", LIST("bench", "--model", models_demo(), "--n-gen", "0", "--n-depth", "5"));
    refused_with(ERR_UNSUPPORTED, "a persistent step on CPUs",
                 LIST("bench", "--model", models_demo(), "--device", "cpu", "--step", "persistent"));
    refused("a window without loading",
            LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format", "dummy", "--load-slots", "8"));
    refused("a way to load without loading", LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format",
                                                  "dummy", "--load-way", "alone"));
    refused("an unknown quantisation", LIST("bench", "--config", "scripts/configs/llama-1b.json", "--load-format",
                                            "dummy", "--quantization", "fp3"));
    refused("a quantisation of experts, without experts",
            LIST("bench", "--model", models_demo(), "--load-format", "dummy", "--quantization", "mxfp4"));
    refused("a quantisation of a loaded model", LIST("bench", "--model", models_demo(), "--quantization", "fp8"));
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
    pieces_of_one_rank();
    early_end();
    too_large();
    return cases_done();
}
