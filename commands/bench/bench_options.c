/* commands/bench/bench_options.c - see bench_options.h. */
#include "commands/bench/bench_options.h"
#include "base/opt_rows.h"

#define AT(member) offsetof(struct bench_options, member)

static const struct opt rows[] = {
    TEXT("config", "FILE", config,
         "the config.json of a model that is given random weights; needs --load-format dummy"),
    CHOICE("load-format", run.load_format, "auto|safetensors|dummy",
           "dummy: random weights, no checkpoint is read (default auto: safetensors)"),
    TEXT("quantization", "FORMAT", quantization,
         "format of the random weights: none, fp8 (a scale for each row), fp8-block (128 x 128), int8, int4 (groups of "
         "128), int4-zeros, nvfp4, mxfp4 (experts)"),
    INTEGER("n-prompt", n_prompt, 0, 1 << 24, 512, "tokens of the prefill measurement (default 512; 0: none)"),
    INTEGER("n-gen", n_gen, 0, 1 << 24, 128, "tokens of the decode measurement (default 128; 0: none)"),
    INTEGER("n-depth", n_depth, 0, 1 << 24, 0,
            "tokens of context before the decode measurement, not timed (default 0: empty context)"),
    INTEGER("batch", batch, 1, 4096, 1,
            "sequences at once in the decode and latency measurements, and of the model of --beside (default 1)"),
    TEXT("latency", "IN:OUT", latency,
         "also measure a whole batch of prompts of IN tokens that get OUT tokens each, sampled at temperature 1; "
         "vLLM's `bench latency` is --latency 32:128 --batch 8 --warmup 10 --repetitions 30"),
    TEXT("throughput", "IN:OUT", throughput,
         "also measure requests of IN tokens that get OUT tokens each, all queued at once, as vLLM's `bench "
         "throughput` and trtllm-bench do"),
    INTEGER("num-prompts", num_prompts, 1, 100000, -1, "requests of --throughput (default 200)"),
    INTEGER("max-batch", max_batch, 1, 4096, -1,
            "requests of --throughput that run at once, if the KV cache has room (default 1024 on GPUs, 256 on CPUs; "
            "at most --max-batch-tokens)"),
    INTEGER("max-num-seqs", max_batch, 1, 4096, -1, "the same under vLLM's name"),
    INTEGER(
        "shared-prefix", shared_prefix, 1, 1 << 24, -1,
        "the first N of --throughput's IN tokens are the same in all requests of a run, and the prefix cache is on: "
        "the first request feeds them, the others find them (default: no two prompts begin alike, no cache)"),
    INTEGER(
        "num-speculative-tokens", run.num_speculative_tokens, 1, 15, -1,
        "drafts per sequence and step in --throughput: arbitrary tokens, or those of --draft-model; verified as usual "
        "(default: none)"),
    TEXT("draft-model", "DIR", run.draft_model,
         "the model that makes these drafts; with --load-format dummy its weights are random"),
    INTEGER("draft-tensor-parallel-size", run.draft_ranks, 1, 65536, -1,
            "the draft model is on this many ranks, the first ones (default: on all)"),
    REAL("draft-acceptance", draft_acceptance, 0, 1, -1,
         "the simulated outcome of these drafts: the probability that one is accepted if the one before it was "
         "(default 0; drafts of --draft-model count as they are unless it is given)"),
    CHOICE("speculative", drafts_rest, "always|auto",
           "always: as many drafts of --draft-model as --num-speculative-tokens says; auto: the number, or none, that "
           "gives most tokens per second (default always)"),
    TEXT("tokenizer", "FOLDER", tokenizer,
         "turn --throughput's tokens into text, as a server does, with this folder's tokenizer (default: no text)"),
    TEXT("json-schema", "FILE", json_schema,
         "constrain --throughput's answers to this JSON schema, which must allow answers that fill all their tokens, "
         "such as an array with a large minItems; needs --tokenizer"),
    TEXT(
        "model-switch", "A,B", model_switch,
        "measure only the switch between two folders of models, in turn: the time from a request for the one that is "
        "not loaded to its first token, unloading of the other included; --n-prompt, --repetitions and --warmup apply"),
    TEXT("beside", "C", beside,
         "a third folder: its model generates during --model-switch, --batch sequences at once, and the times between "
         "its tokens are shown, with and without a switch going on"),
    INTEGER("repetitions", repetitions, 1, 1000, -1, "measurements of each kind (default 5)"),
    INTEGER("warmup", warmup, 0, 1000, -1, "runs of each kind before its measurements (default 1)"),
    {"read-limit-bytes", "BYTES", OPT_BYTES, AT(read_limit_bytes), 1 << 20, 1e15, -1, NULL,
     "memory of a rank that is read to measure the read limit: more than the caches hold; K, M, G, T are accepted "
     "(default 512M; GPUs: 8G, or half of the free memory)",
     NULL},
    FLAG("step-times", step_times,
         "also show the percentiles of the steps' times, of those that only decode and those that feed prompts"),
    FLAG("profile", profile,
         "afterwards run each kind again with timers between its phases: matrix products, attention, sums over the "
         "ranks, sampling, the rest, and the host's share"),
};

const struct opt_rows bench_rows = OPT_ROWS(rows);
