/* base/run_options.c - see run_options.h. */
#include "base/run_options.h"
#include "base/opt_rows.h"
#include "base/repository.h"

#define AT(member) offsetof(struct run_options, member)

#define INVARIANT_TOKENS 65536

static const struct opt model_rows[] = {
    TEXT("model", "DIR", model,
         "Hugging Face folder: config.json, *.safetensors, tokenizer.json; or OWNER/NAME, a repository in the Hub's "
         "local cache (HF_HUB_CACHE, HF_HOME), as hf download leaves it"),
    TEXT("revision", "NAME", revision, "with --model OWNER/NAME: this branch, tag or commit (default main)"),
    INTEGER("tensor-parallel", tensor_parallel, 1, 65536, -1,
            "ranks that share one model (default: all). A smaller number makes replicas, each a whole model, for "
            "`batch` and `serve`: rank 0 dispatches the requests, and limits apply to each replica. It must divide the "
            "number of ranks"),
    INTEGER("tensor-parallel-size", tensor_parallel, 1, 65536, -1, "the same under vLLM's name"),
    FLAG("expert-parallel", expert_parallel,
         "mixtures of experts: each rank holds some experts whole instead of columns of every expert. Ranks then read "
         "different amounts, depending on the experts that a step chooses (default: columns of every expert, so all "
         "ranks read the same amount)"),
    FLAG("enable-expert-parallel", expert_parallel, "the same under vLLM's name"),
};
const struct opt_rows run_model_rows = OPT_ROWS(model_rows);

static const struct opt device_rows[] = {
    CHOICE("device", device, "auto|cpu|cuda",
           "where to compute (default auto: GPUs if this build has them and every rank sees one; inspect: cpu)"),
};
const struct opt_rows run_device_rows = OPT_ROWS(device_rows);

static const struct opt kv_rows[] = {
    CHOICE("kv-cache-dtype", kv_dtype, "auto|fp8|fp8_e4m3",
           "the type of keys and values: fp8 (E4M3; fp8_e4m3 is the same) takes half the memory of 16 bits, with the "
           "checkpoint's scales, or with 1 if it has none; results change (default auto: the type of activations)"),
};
const struct opt_rows run_kv_rows = OPT_ROWS(kv_rows);

static const struct opt fp8_rows[] = {
    CHOICE("quantization", quantise, "none|fp8",
           "fp8: convert 16-bit and 32-bit weights to FP8 at load, with a scale for each row, except the head and the "
           "embedding; results change (default none: the checkpoint's types)"),
    CHOICE("head-dtype", head_dtype, "auto|fp8",
           "fp8: the same for the head alone (default auto: the checkpoint's type)"),
};
const struct opt_rows run_fp8_rows = OPT_ROWS(fp8_rows);

static const struct opt inputs_rows[] = {
    CHOICE("quantized-activations", inputs, "off|auto|on",
           "quantise activations before products of quantised weights; auto: where the checkpoint declares it and "
           "Lockstep implements it (FP8 and INT8 on CPUs, FP8 on Hopper GPUs); on: fail where that is impossible; "
           "results change (default off: more accurate)"),
};
const struct opt_rows run_inputs_rows = OPT_ROWS(inputs_rows);

static const struct opt json_rows[] = {
    FLAG("json", json, "print one JSON object instead of a table"),
};
const struct opt_rows run_json_rows = OPT_ROWS(json_rows);

static const struct opt host_rows[] = {
    REAL("min-read-share", min_read_share, 0, 1, -1,
         "preflight: refuse a rank whose memory reads slower than this share of the fastest rank's (default 0.85)"),
    REAL("max-broadcast-us", max_broadcast_us, 0, 1e9, -1,
         "preflight: refuse if a broadcast of 4 KiB takes longer (median of 50) until rank 0 has an answer from every "
         "rank; 0: no limit (default 1000)"),
    {"min-file-rate", "BYTES", OPT_BYTES, AT(min_file_rate), 0, 1e15, -1, NULL,
     "preflight: refuse a host that reads fewer bytes of --model per second; K, M, G, T are accepted (default 0: no "
     "limit)",
     NULL},
    REAL("preflight-timeout", preflight_timeout, 1, 86400, -1,
         "preflight: end the job if a measurement takes longer, with a line that names the rank that is behind "
         "(default 60)"),
    FLAG("accept-throttling", accept_throttling,
         "preflight: only report GPUs whose clocks are slowed by heat or their power supply"),
    INTEGER("threads", threads, 1, 1024, -1, "CPU threads of a rank (default: its share of the cores that it may use)"),
    FLAG("verbose", verbose, "report on standard error what was loaded, how fast, and how memory is used"),
};
const struct opt_rows run_host_rows = OPT_ROWS(host_rows);

static const struct opt load_rows[] = {
    CHOICE("load-way", load_way, "auto|together|alone",
           "together: the ranks of a node read each byte of the checkpoint once, in large requests; alone: each rank "
           "reads its own slices (default auto: alone on GPUs, if the files are in memory and there are no replicas)"),
    INTEGER("load-threads", load_threads, 1, 64, 0,
            "threads of a rank that read the checkpoint (default: 1 on CPUs, otherwise all but one of --threads, at "
            "most 15)"),
    INTEGER("load-slots", load_slots, 4, 64, 0,
            "blocks in a rank's window; some are read while others are copied (default 4 of 8 MiB on CPUs, otherwise 8 "
            "of 4 MiB; for ranks that read alone 2 per thread, or 4 for the only rank of a node)"),
    {"load-piece-bytes", "BYTES", OPT_BYTES, AT(load_piece_bytes), 4096, 1 << 30, 0, NULL,
     "with --load-threads 2 or more, or --load-way alone: bytes that a thread reads at a time (default 512K; a single "
     "thread reads whole blocks; for ranks that read alone, with any number of threads, 1M, at most 256M in all slots)",
     NULL},
    INTEGER(
        "max-batch-tokens", max_batch_tokens, 1, 1 << 20, -1,
        "tokens of one step, prefill and decode together; longer prompts are fed in chunks (default 512 on CPUs; on "
        "GPUs 4096, less where memory is short, 2048 with several models)"),
    INTEGER("max-num-batched-tokens", max_batch_tokens, 1, 1 << 20, -1, "the same under vLLM's name"),
    {"kv-cache-memory-bytes", "BYTES", OPT_BYTES, AT(kv_cache_bytes), 1 << 10, 1e18, -1, NULL,
     "memory of a rank for keys and values (with --models-dir, of all models together); K, M, G, T are accepted "
     "(default: as much as needed, up to half of the free memory, on GPUs seven eighths; with --models-dir half of "
     "--model-memory)",
     NULL},
    FLAG("preflight", preflight,
         "first check every rank's memory, sums, messages and files for a few seconds, and end with status 9 if a node "
         "is unhealthy: see lockstep preflight --help"),
    CHOICE("step", step, "auto|separate|persistent",
           "how GPUs run decode steps: separate operations, or one persistent kernel for up to 16 sequences on one "
           "host (default auto: the faster one, measured at start; persistent: refused where it does not work)"),
    INTEGER(
        "sum-pieces", sum_pieces, 1, 4, 0,
        "2 to 4 GPUs of one host: cut the rows of steps of 2048 tokens and more into at most this many pieces, so "
        "that the sum over the ranks of one piece runs beside the products of others; it takes 128 MiB of a GPU for "
        "each other rank; 1: sums follow products (default on two GPUs 2, on more 1; CPUs: 4, one after the "
        "other)"),
    FLAG("batch-invariant", batch_invariant,
         "GPUs: a token's logits are the same bits whatever else is in its steps: alone or in any batch, in chunks of "
         "any size, from the prefix cache, after a preemption, with and without drafts. Decode steps run as "
         "separate operations, with slower products (default: only for batches of up to 16 tokens; CPUs: always)"),
    REAL("step-timeout", step_timeout, 0, 86400, 300,
         "end the job if a step makes no progress for this many seconds because a rank is stopped, dead or stuck; 0: "
         "no limit, except about 6 minutes within a persistent step on GPUs (default 300)"),
    CHOICE("progress", progress, "auto|always|never",
           "progress bars on standard error and streamed text (default auto: on a terminal)"),
};
const struct opt_rows run_load_rows = OPT_ROWS(load_rows);

/* The opposite of the flag --no-enable-prefix-caching; if both are given, the last one counts. */
static int enable_prefix_caching(void *record, const struct opt *row, const char *text, struct err *e)
{
    (void)row;
    (void)text;
    (void)e;
    ((struct run_options *)record)->no_prefix_caching = false;
    return 0;
}

static const struct opt prefix_rows[] = {
    FLAG("no-enable-prefix-caching", no_prefix_caching,
         "do not keep keys and values of prompts and outputs for sequences that begin with the same tokens"),
    {"enable-prefix-caching", NULL, OPT_CALL, 0, 0, 0, 0, NULL, "keep them (default)", enable_prefix_caching},
};
const struct opt_rows run_prefix_rows = OPT_ROWS(prefix_rows);

static const struct opt draft_rows[] = {
    TEXT("speculative-config", "JSON", speculative_config,
         "drafts, in vLLM's form: {\"method\": \"ngram\", \"num_speculative_tokens\": 5, \"prompt_lookup_max\": 4, "
         "\"prompt_lookup_min\": 2}, or {\"method\": \"draft_model\", \"model\": \"DIR\", \"num_speculative_tokens\": "
         "5}, the same with \"eagle3\", or {\"method\": \"mtp\", \"num_speculative_tokens\": 1} if the model's "
         "checkpoint "
         "has layers that predict further tokens. A step verifies the tokens that followed the same tokens before, in "
         "prompt or output (method suffix: also in other answers of the job; not for serve), or those of the draft "
         "model; the text stays the same. Other methods are refused"),
    TEXT("draft-model", "DIR", draft_model,
         "a small model of the same vocabulary, or a head for the model (EAGLE-3), that makes the drafts; it runs with "
         "its checkpoint's types: options for weights, activations, keys and experts apply to the "
         "main model only"),
    INTEGER("draft-tensor-parallel-size", draft_ranks, 1, 65536, -1,
            "the draft model is on this many ranks of each replica, the first ones (default: on all; a head always "
            "is)"),
    INTEGER("num-speculative-tokens", num_speculative_tokens, 1, 15, -1,
            "drafts per sequence and step at most, by --draft-model; without it, as --speculative-config with method "
            "ngram"),
    INTEGER("prompt-lookup-max", prompt_lookup_max, 1, 64, -1,
            "compare at most this many of the last tokens with earlier ones (default 5)"),
    INTEGER("prompt-lookup-min", prompt_lookup_min, 1, 64, -1,
            "at least this many of them must match (default: as --prompt-lookup-max)"),
    CHOICE("speculative", speculative, "auto|always|off",
           "auto: the number of drafts, or none, that gives most tokens per second, judged by measured step times and "
           "recent acceptance; always: all that are found; off: none (default auto)"),
};
const struct opt_rows run_draft_rows = OPT_ROWS(draft_rows);

static const struct opt bound_rows[] = {
    REAL("max-step-ms", max_step_ms, 0.1, 1e6, -1,
         "longest step, in milliseconds, while sequences wait for their next token: prompts are fed in smaller chunks, "
         "by measured step times, but at least 32 tokens per step (default: as much as --max-batch-tokens allows)"),
};
const struct opt_rows run_bound_rows = OPT_ROWS(bound_rows);

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int run_find_model(struct run_options *o, struct err *e)
{
    static struct repository found;
    if (o->model == NULL && o->revision == NULL)
        return 0;
    int rc = o->model != NULL ? repository_find(&found, o->model, o->revision, e) : 0;
    if (rc == 0 && o->revision != NULL)
        return ERR(e, ERR_USAGE,
                   "--revision belongs to --model OWNER/NAME, a repository in the Hub's cache; found %s%s",
                   o->model != NULL ? "the folder " : "no --model", o->model != NULL ? o->model : "");
    if (rc != 1)
        return rc;
    o->model = found.folder;
    o->model_name = found.name;
    return 0;
}

/* On one H200 these limits are within 2 % of the highest tokens/s for Llama-3-8B, with steps half as long as those of
 * the fastest limits (docs/performance.md). With many models each one has its own working memory, so steps are smaller.
 * CPUs are as fast with small steps, which delay other sequences less. */
void run_choose_limits(struct run_options *o, bool on_gpus, bool many)
{
    int64_t tokens = !on_gpus ? 512 : many ? 2048 : 4096;
    o->tokens_chosen = o->max_batch_tokens < 0;
    if (o->tokens_chosen)
        o->max_batch_tokens = tokens;
    o->usual_batch = smaller(on_gpus && !many ? 1024 : 256, o->max_batch_tokens);
}

double run_max_step(const struct run_options *o)
{
    return o->max_step_ms > 0 ? 1e-3 * o->max_step_ms : 0;
}

int run_replica_size(const struct run_options *o, int n_ranks)
{
    return o->tensor_parallel > 0 ? (int)o->tensor_parallel : n_ranks;
}

int run_check_invariance(const struct run_options *o, struct err *e)
{
    if (o->batch_invariant && o->step == STEP_PERSISTENT)
        return ERR(e, ERR_USAGE,
                   "--batch-invariant with --step persistent: a persistent step rounds differently, expected auto or "
                   "separate");
    if (o->batch_invariant && o->max_batch_tokens > INVARIANT_TOKENS) /* more take another kernel of attention */
        return ERR(e, ERR_USAGE, "--batch-invariant with --max-batch-tokens %lld, expected at most %d",
                   (long long)o->max_batch_tokens, INVARIANT_TOKENS);
    return 0;
}

int run_check_loading(const struct run_options *o, struct err *e)
{
    if (o->load_piece_bytes > 0 && o->load_threads < 2 && o->load_way != LOAD_ALONE)
        return ERR(
            e, ERR_USAGE,
            "--load-piece-bytes needs --load-threads of 2 or more, or --load-way alone: one thread reads whole blocks");
    return 0;
}

int run_check_replicas(const struct run_options *o, int n_ranks, const char *alone, struct err *e)
{
    int size = run_replica_size(o, n_ranks);
    if (size > n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %d: there are only %d rank%s", size, n_ranks,
                   n_ranks == 1 ? "" : "s");
    if (n_ranks % size != 0)
        return ERR(
            e, ERR_USAGE,
            "--tensor-parallel %d: %d ranks do not make whole replicas of %d: %d would be left over; start %d or "
            "%d ranks",
            size, n_ranks, size, n_ranks % size, n_ranks - n_ranks % size, n_ranks - n_ranks % size + size);
    if (size < n_ranks && alone != NULL)
        return ERR(e, ERR_USAGE,
                   "--tensor-parallel %d: %s runs one model on all %d ranks, expected %d or nothing; replicas are for "
                   "batch and serve",
                   size, alone, n_ranks, n_ranks);
    return 0;
}
