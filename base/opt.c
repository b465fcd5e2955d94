/* base/opt.c - see opt.h. */
#include "base/opt.h"
#include "base/nearest.h"
#include "base/opt_rows.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATE  COMMAND_GENERATE
#define INSPECT   COMMAND_INSPECT
#define BENCH     COMMAND_BENCH
#define SERVE     COMMAND_SERVE
#define BATCH     COMMAND_BATCH
#define PREFLIGHT COMMAND_PREFLIGHT
#define STARTS    (GENERATE | BENCH | SERVE | BATCH) /* commands that load a model on all ranks */
#define ALL       (GENERATE | INSPECT | BENCH | SERVE | BATCH)

#define SRUN_END_SECONDS 20

#define AT(member) offsetof(struct options, member)
static int add_stop(void *record, const struct opt *row, const char *text, struct err *e)
{
    struct options *o = record;
    if (o->n_stop == OPT_MAX_STOP || *text == '\0')
        return ERR(e, ERR_USAGE, "--%s: expected up to %d texts, none empty", row->name, OPT_MAX_STOP);
    o->stop[o->n_stop++] = text;
    return 0;
}

static int add_input(void *record, const struct opt *row, const char *text, struct err *e)
{
    struct options *o = record;
    if (o->n_input == OPT_MAX_INPUT || *text == '\0')
        return ERR(e, ERR_USAGE, "--%s: expected up to %d names or patterns, none empty", row->name, OPT_MAX_INPUT);
    o->input[o->n_input++] = text;
    return 0;
}

/* The opposite of the flag --no-enable-prefix-caching: of two that are given the last one counts. */
static int enable_prefix_caching(void *record, const struct opt *row, const char *text, struct err *e)
{
    (void)row;
    (void)text;
    (void)e;
    ((struct options *)record)->no_prefix_caching = false;
    return 0;
}

static const struct opt table[] = {
    TEXT("model", "DIR", model, ALL, "Hugging Face folder: config.json, *.safetensors, tokenizer.json"),
    TEXT("model", "DIR", model, PREFLIGHT, "Hugging Face folder, whose weights' files are read at many places"),
    {"input", "FILE", OPT_CALL, 0, BATCH, 0, 0, 0, NULL,
     "JSON lines, one request each: a file, a quoted pattern (\"part-*.jsonl\"), or - for standard input; may be given "
     "several times",
     add_input},
    TEXT("output", "FILE", output, BATCH,
         "append each result as a line as soon as it is there, and go on where an earlier run ended; - is standard "
         "output, which cannot be resumed"),
    FLAG("plain", plain, BATCH, "compact result lines instead of those of the OpenAI batch API"),
    FLAG("ordered", ordered, BATCH, "once all is done, rewrite the output in the order of the input"),
    CHOICE("resume", resume, BATCH, "auto|always|never",
           "what if --output exists: go on with it (default auto); always: it must exist; never: it must not"),
    FLAG("retry-failed", retry_failed, BATCH,
         "errors that an earlier run has left in the output are taken out of it at the start, and their lines run "
         "again"),
    FLAG("force", force, BATCH,
         "go on with an output that another model, checkpoint, other sampling defaults or inputs have begun"),
    REAL("sync-seconds", sync_seconds, BATCH, 0, 3600, -1,
         "results are safe on disk after so many seconds; 0: at once (default 5); --output must be a file"),
    INTEGER("max-inflight", max_inflight, BATCH, 1, 1 << 20, -1,
            "lines under way at once, those that wait included (default: 4 for each sequence that runs at once)"),
    INTEGER("max-tokens", max_tokens, BATCH, 1, 1 << 24, -1,
            "of lines that do not say: tokens to generate at most (default 16, in chats what fits, as OpenAI has it)"),
    INTEGER("min-tokens", min_tokens, BATCH, 0, 1 << 24, -1,
            "of lines that do not say: forbid the end before this many tokens (default 0)"),
    REAL("temperature", temperature, BATCH, 0, 100, NAN, "of lines that do not say; 0 is greedy (default 1)"),
    INTEGER("top-k", top_k, BATCH, -1, 1 << 24, -2, "of lines that do not say; 0 or -1: all (default 0)"),
    REAL("top-p", top_p, BATCH, 0, 1, NAN, "of lines that do not say (default 1)"),
    REAL("min-p", min_p, BATCH, 0, 1, NAN, "of lines that do not say (default 0)"),
    REAL("repetition-penalty", repetition_penalty, BATCH, 0.01, 100, NAN, "of lines that do not say (default 1)"),
    REAL("presence-penalty", presence_penalty, BATCH, -2, 2, NAN, "of lines that do not say (default 0)"),
    REAL("frequency-penalty", frequency_penalty, BATCH, -2, 2, NAN, "of lines that do not say (default 0)"),
    FLAG("ignore-eos", ignore_eos, BATCH, "of lines that do not say: go on after end-of-text tokens"),
    INTEGER("seed", seed, BATCH, 0, 9007199254740992.0, 0,
            "of lines without a seed: theirs follows from this and their id, whatever runs beside them (default 0)"),
    TEXT("max-walltime", "TIME", max_walltime, BATCH,
         "be over so long after the program's start: seconds, MM:SS, HH:MM:SS or D-HH:MM:SS; what does not fit is left "
         "to the next run, exit status 75 (default: until SLURM_JOB_END_TIME, if it is set; the sooner one counts)"),
    REAL("walltime-reserve", walltime_reserve, BATCH, 0, 86400, -1,
         "seconds of the walltime for ending: syncing, giving memory back (default 3, and twice the slowest sync and "
         "step so far)"),
    INTEGER(
        "drain-seconds", batch_drain_seconds, BATCH, 0, 1 << 20, -1,
        "after SIGUSR1: time for what has begun to finish (default: what the walltime allows; 60 where none is known)"),
    TEXT("shard", "K/N", shard, BATCH, "of every N lines do the one with number K, from 0 to N - 1"),
    CHOICE("array-shard", array_shard, BATCH, "auto|on|off",
           "whether tasks of a Slurm job array share the input by lines (default auto: if --output has {task} or %a, "
           "which becomes the task's number; without it one has to say)"),
    FLAG("requeue-self", requeue_self, BATCH,
         "at exit status 75 have Slurm queue this job again, if this run has added results and nobody told it to end "
         "(SIGTERM, SIGINT: scancel means it)"),
    INTEGER("max-restarts", max_restarts, BATCH, 0, 1 << 20, -1,
            "with --requeue-self: do so until the job was queued again so many times (default 20)"),
    REAL("status-seconds", status_seconds, BATCH, 0, 86400, -1,
         "where no bar is shown, say so often how far the batch is; 0: never (default 60)"),
    TEXT("status-file", "FILE", status_file, BATCH,
         "replace this file every 5 s with the same as JSON (default: OUTPUT.status.json where that is a file)"),
    FLAG("slurm-comment", slurm_comment, BATCH, "show it once a minute as the Slurm job's comment (squeue -o %k)"),
    TEXT("log-dir", "DIR", log_dir, BATCH | SERVE,
         "every rank also writes what it has to say, as with --verbose, to DIR/rank-R.log, with time, host and rank"),
    TEXT("prompt", "TEXT", prompt, GENERATE, "the prompt"),
    TEXT("prompts", "FILE", prompts, GENERATE,
         "many prompts: a text file with a prompt a line, or JSON lines with \"prompt\" (a string or a list of token "
         "ids), empty lines passed over; - reads standard input"),
    TEXT("prompt-ids", "IDS", prompt_ids, GENERATE, "the prompt as token ids: 1,2,3"),
    INTEGER("max-tokens", max_tokens, GENERATE, 1, 1 << 24, -1,
            "tokens to generate at most (default: max_new_tokens of generation_config.json, else 128)"),
    INTEGER("min-tokens", min_tokens, GENERATE, 0, 1 << 24, -1,
            "forbid the end-of-text tokens and ignore stop strings before this many (default 0)"),
    REAL("temperature", temperature, GENERATE, 0, 100, NAN,
         "0 is greedy (default: generation_config.json if it samples, else 0)"),
    INTEGER("top-k", top_k, GENERATE, -1, 1 << 24, -2, "keep the K likeliest tokens; 0 or -1: all (default 0)"),
    REAL("top-p", top_p, GENERATE, 0, 1, NAN, "keep the smallest set with this probability (default 1)"),
    REAL("min-p", min_p, GENERATE, 0, 1, NAN, "drop tokens below this share of the likeliest one (default 0)"),
    REAL("repetition-penalty", repetition_penalty, GENERATE, 0.01, 100, NAN,
         "divide positive and multiply negative logits of tokens seen before (default 1)"),
    REAL("presence-penalty", presence_penalty, GENERATE, -100, 100, NAN,
         "subtract from logits of tokens generated before (default 0)"),
    REAL("frequency-penalty", frequency_penalty, GENERATE, -100, 100, NAN,
         "the same for every time that they were generated (default 0)"),
    TEXT("logit-bias", "ID:BIAS,...", logit_bias, GENERATE, "add to the logits of these tokens, e.g. 50256:-100"),
    INTEGER("seed", seed, GENERATE, 0, 9007199254740992.0, 0,
            "the same seed gives the same text at every rank count and in every batch (default 0)"),
    {"stop", "TEXT", OPT_CALL, 0, GENERATE, 0, 0, 0, NULL, "end before this text; may be given up to 16 times",
     add_stop},
    TEXT("stop-token-ids", "IDS", stop_token_ids, GENERATE, "end after any of these tokens: 1,2,3"),
    FLAG("include-stop-str-in-output", include_stop, GENERATE, "keep the stop text in the output"),
    FLAG("ignore-eos", ignore_eos, GENERATE, "go on after end-of-text tokens, up to --max-tokens"),
    INTEGER("logprobs", logprobs, GENERATE, 0, 20, -1,
            "with --json: log-probabilities of every token and of the K likeliest"),
    INTEGER("prompt-logprobs", prompt_logprobs, GENERATE, 0, 20, -1,
            "with --json: the same of every token of the prompt but the first, given those before it"),
    TEXT("output", "FILE", output, GENERATE,
         "write the results here instead of to standard output; a full disk then ends the run with status 5, while "
         "mpirun swallows what it cannot write"),
    FLAG("json", json, GENERATE, "print JSON: one object a prompt and line, in input order"),
    FLAG("json", json, INSPECT | BENCH | PREFLIGHT, "print one JSON object instead of a table"),
    FLAG("no-echo", no_echo, GENERATE, "print the generated text without its prompt"),
    FLAG("no-add-special-tokens", no_special, GENERATE, "do not put the tokenizer's begin-of-text token in front"),
    FLAG("plain-text", plain_text, GENERATE, "special tokens written out in a prompt are ordinary text"),
    FLAG("keep-special-tokens", keep_special, GENERATE, "show special tokens in the text"),
    INTEGER("ranks", ranks, INSPECT, 1, 65536, 1, "number of ranks to split for, all groups together (default 1)"),
    INTEGER("tensor-parallel", tensor_parallel, ALL, 1, 65536, -1,
            "ranks that share one model (default: all). Fewer make several groups, each with a whole model of its own, "
            "for `batch` and `serve`: rank 0 hands out the work, limits are those of a group. It must divide the "
            "number of ranks"),
    INTEGER("tensor-parallel-size", tensor_parallel, ALL, 1, 65536, -1, "the same, by vLLM's name"),
    TEXT("config", "FILE", config, BENCH, "a config.json to build with random weights (--load-format dummy)"),
    CHOICE("load-format", load_format, BENCH, "auto|safetensors|dummy",
           "dummy: random weights, no checkpoint is read (default auto: safetensors)"),
    CHOICE("load-way", load_way, STARTS, "auto|together|alone",
           "together: the ranks of a node read each byte of the checkpoint once, in large requests, for all of them; "
           "alone: each rank reads what it holds (default auto: alone where several GPUs that share a model load files "
           "that lie in memory)"),
    INTEGER("load-threads", load_threads, STARTS, 1, 64, 0,
            "threads of a rank that read the checkpoint (default: one where CPUs compute, else all but one of "
            "--threads, 15 at most)"),
    INTEGER(
        "load-slots", load_slots, STARTS, 4, 64, 0,
        "blocks in a rank's window, of which some are copied from while the others are read (default 4 of 8 MiB where "
        "CPUs compute, else 8 of 4 MiB; where ranks read alone 2 for each thread)"),
    {"load-piece-bytes", "BYTES", OPT_BYTES, AT(load_piece_bytes), STARTS, 4096, 1 << 30, 0, NULL,
     "with --load-threads 2 or more, or --load-way alone: what one of them reads at a time (default 512K; one alone "
     "reads whole blocks; "
     "where ranks read alone, by any number of threads, default 1M, all slots together 256M at most)",
     NULL},
    INTEGER("n-prompt", n_prompt, BENCH, 0, 1 << 24, 512, "tokens of the prefill measurement (default 512; 0: none)"),
    INTEGER("n-gen", n_gen, BENCH, 0, 1 << 24, 128, "tokens of the decode measurement (default 128; 0: none)"),
    INTEGER("n-depth", n_depth, BENCH, 0, 1 << 24, 0,
            "tokens of context before the decode measurement, not timed (default 0: it begins from nothing)"),
    INTEGER("batch", batch, BENCH, 1, 4096, 1, "sequences at once in the decode and latency measurements (default 1)"),
    TEXT("latency", "IN:OUT", latency, BENCH,
         "also measure a whole batch of prompts of IN tokens that get OUT tokens each, sampled at temperature 1; "
         "vLLM's `bench latency` is --latency 32:128 --batch 8 --warmup 10 --repetitions 30"),
    TEXT("throughput", "IN:OUT", throughput, BENCH,
         "also measure requests of IN tokens that get OUT tokens each, all queued at once, as vLLM's `bench "
         "throughput` and trtllm-bench do"),
    INTEGER("num-prompts", num_prompts, BENCH, 1, 100000, -1, "requests of --throughput (default 200)"),
    INTEGER("max-batch", bench_max_batch, BENCH, 1, 4096, -1,
            "requests of --throughput that run at once, if the KV cache holds them (default 256, at most "
            "--max-batch-tokens)"),
    INTEGER("repetitions", repetitions, BENCH, 1, 1000, -1, "measurements of each kind (default 5)"),
    INTEGER("warmup", warmup, BENCH, 0, 1000, -1, "runs of each kind before its measurements (default 1)"),
    FLAG("profile", profile, BENCH,
         "then run each kind again with clocks between its phases: matrix products, attention, sums over the ranks, "
         "sampling, the rest, and what the host adds"),
    INTEGER("max-batch", max_batch, GENERATE, 1, 4096, 16, "sequences that run at once (default 16)"),
    INTEGER("max-batch-tokens", max_batch_tokens, GENERATE | BENCH | SERVE | BATCH, 1, 1 << 20, -1,
            "tokens of one step, prefill and decode together; longer prompts go in chunks (default 2048 on GPUs, 512 "
            "on CPUs)"),
    FLAG("no-enable-prefix-caching", no_prefix_caching, GENERATE | SERVE | BATCH,
         "do not keep keys and values of prompts and outputs for sequences that begin with the same tokens"),
    {"enable-prefix-caching", NULL, OPT_CALL, 0, GENERATE | SERVE | BATCH, 0, 0, 0, NULL, "keep them (default)",
     enable_prefix_caching},
    INTEGER("max-model-len", max_model_len, GENERATE, 1, 1 << 28, -1,
            "tokens of one sequence, prompt and output (default: what the prompts need)"),
    INTEGER("max-model-len", max_model_len, SERVE | BATCH, 1, 1 << 28, -1,
            "tokens of one sequence, prompt and output (default: max_position_embeddings of the model, else 2048)"),
    INTEGER("max-batch", serve_max_batch, SERVE | BATCH, 1, 4096, -1,
            "sequences that run at once, if the KV cache holds them (default 256, at most --max-batch-tokens)"),
    {"kv-cache-memory-bytes", "BYTES", OPT_BYTES, AT(kv_cache_bytes), GENERATE | BENCH | SERVE | BATCH, 1 << 10, 1e18,
     -1, NULL,
     "memory of a rank for keys and values; K, M, G, T are accepted (default: what is needed, up to half of what is "
     "free)",
     NULL},
    TEXT("endpoint", "ADDRESS", endpoint, SERVE,
         "where clients connect: tcp://127.0.0.1:PORT, tcp://127.0.0.1:* (a free port, see --rendezvous), or "
         "ipc://PATH, a Unix socket of mode 0600 (default tcp://127.0.0.1:5555)"),
    FLAG("insecure", insecure, SERVE, "let --endpoint be one that others can reach without --curve: whoever can, may"),
    FLAG("curve", curve, SERVE,
         "encrypt, and let only known clients in: makes a key pair for the job and one for its clients, which is "
         "written to FILE.client (mode 0600) of --rendezvous FILE"),
    TEXT("curve-clients", "FILE", curve_clients, SERVE, "with --curve: more clients' public keys (Z85), one a line"),
    TEXT("rendezvous", "FILE", rendezvous, SERVE,
         "once ready, write endpoint, public key, model and process id here as JSON; removed at the end"),
    TEXT("served-model-name", "NAME", served_name, SERVE | BATCH,
         "the model's name to clients (default: the folder's)"),
    TEXT("chat-template", "NAME", chat_template, SERVE | BATCH,
         "how chats are written for the model, instead of what its own template is recognised as; docs/protocol.md has "
         "the names"),
    {"max-message-bytes", "BYTES", OPT_BYTES, AT(max_message_bytes), SERVE, 1 << 10, 1 << 30, 16 << 20, NULL,
     "largest message; a connection that sends more is cut off (default 16M)", NULL},
    {"max-client-backlog", "BYTES", OPT_BYTES, AT(max_client_backlog), SERVE, 1 << 10, 1 << 30, 4 << 20, NULL,
     "replies that may wait for a client that does not read; beyond, its streams are cancelled and other replies "
     "become short errors, beyond twice that it is disconnected (default 4M)",
     NULL},
    INTEGER(
        "max-connections", max_connections, SERVE, 0, 1 << 20, 0,
        "connections at once; further ones are closed at once, and counted (default 0: the limit of open files less "
        "64, beyond which clients wait)"),
    INTEGER("max-queue", max_queue, SERVE, 0, 1 << 20, 2048,
            "sequences that may wait beside those that run; beyond, requests are refused with 429, those of the client "
            "that has the most first (default 2048)"),
    INTEGER("max-queue-per-client", max_queue_per_client, SERVE, 0, 1 << 20, 0,
            "the same of one connection (default 0: as many as others leave)"),
    INTEGER("max-priority", max_priority, SERVE, INT32_MIN, INT32_MAX, 0,
            "the most urgent \"priority\" that a request may have; lower is more urgent (default 0: nobody goes before "
            "others)"),
    {"max-reply-bytes", "BYTES", OPT_BYTES, AT(max_reply_bytes), SERVE | BATCH, 1 << 16, (int64_t)1 << 34, 32 << 20,
     NULL,
     "largest reply that a request may bring, reckoned from its tokens and log-probabilities before anything is "
     "computed; beyond, 413 (default 32M)",
     NULL},
    INTEGER("drain-seconds", drain_seconds, SERVE, 0, 1 << 20, 30,
            "after SIGUSR1 or a drain message: time for open requests to finish (default 30)"),
    INTEGER("end-seconds", end_seconds, SERVE | BATCH, 0, 1 << 20, -1,
            "the same after SIGTERM and SIGINT (default 0, since mpirun kills a second later; under srun 20)"),
    CHOICE("metrics-names", metrics_names, SERVE, "lockstep|vllm",
           "lockstep_NAME, or vllm:NAME of what vLLM has, too, for dashboards made for it (default lockstep)"),
    TEXT("metrics-file", "FILE", metrics_file, SERVE | BATCH,
         "replace this file every 5 s with the metrics, for node_exporter's textfile collector"),
    TEXT("access-log", "FILE", access_log, SERVE, "append one JSON line a message; - is standard output"),
    FLAG("access-log-prompts", access_log_prompts, SERVE, "with the prompts' texts in it; the file then has mode 0600"),
    FLAG("preflight", preflight, STARTS,
         "first measure every rank's memory, sums, messages and files, in some seconds, and end with status 9 in the "
         "name of a node that is not fit: see lockstep preflight --help"),
    REAL("min-read-share", min_read_share, PREFLIGHT | STARTS, 0, 1, -1,
         "preflight: refuse a rank whose memory is read at less than this share of the fastest rank's (default 0.85)"),
    REAL("max-broadcast-us", max_broadcast_us, PREFLIGHT | STARTS, 0, 1e9, -1,
         "preflight: refuse when a broadcast of 4 KiB takes longer, median of 50, until rank 0 has heard from all; 0: "
         "no limit (default 1000)"),
    {"min-file-rate", "BYTES", OPT_BYTES, AT(min_file_rate), PREFLIGHT | STARTS, 0, 1e15, -1, NULL,
     "preflight: refuse a host that reads less of --model a second; K, M, G, T are accepted (default 0: no limit)",
     NULL},
    REAL("preflight-timeout", preflight_timeout, PREFLIGHT | STARTS, 1, 86400, -1,
         "preflight: end the job when a part of it takes longer, in the name of the rank that does not come along "
         "(default 60)"),
    FLAG("accept-throttling", accept_throttling, PREFLIGHT | STARTS,
         "preflight: only tell of GPUs whose clocks are slowed by heat or their power supply"),
    INTEGER("threads", threads, STARTS | PREFLIGHT, 1, 1024, -1,
            "CPU threads of a rank (default: its share of the cores that it may use)"),
    CHOICE("device", device, ALL | PREFLIGHT, "auto|cpu|cuda",
           "where to compute (default auto: GPUs if this build has them and every rank sees one; inspect: cpu)"),
    CHOICE("step", step, GENERATE | BENCH | SERVE | BATCH, "auto|separate|persistent",
           "how GPUs run decode steps: separate operations, or one persistent kernel for up to 16 sequences on one "
           "host (default auto: the faster one, measured at start; persistent: refused where it does not work)"),
    REAL("step-timeout", step_timeout, GENERATE | BENCH | SERVE | BATCH, 0, 86400, 300,
         "end the job when a step comes no further for so many seconds, since a rank is stopped, dead or stuck; 0: "
         "wait for ever, but a GPU within a persistent step gives up after some 6 minutes (default 300)"),
    FLAG("verbose", verbose, STARTS | PREFLIGHT,
         "say on standard error what was loaded, how fast, and where memory goes"),
    CHOICE("progress", progress, GENERATE | BENCH | SERVE | BATCH, "auto|always|never",
           "bars on standard error and text as it comes (default auto: on a terminal)"),
};

/* Those of llama.cpp, and of its llama-bench, where they mean the same; -n of mpirun. */
static const struct opt_letter letters[] = {
    {'m', "model", ALL | PREFLIGHT},
    {'p', "prompt", GENERATE},
    {'n', "max-tokens", GENERATE | BATCH},
    {'p', "n-prompt", BENCH},
    {'n', "n-gen", BENCH},
    {'n', "ranks", INSPECT},
    {'t', "threads", STARTS | PREFLIGHT},
    {'i', "input", BATCH},
    {'o', "output", GENERATE | BATCH},
    {'v', "verbose", STARTS | PREFLIGHT},
};

static const struct opt_table options_table = {
    "lockstep", "LOCKSTEP_", table, sizeof table / sizeof table[0], letters, sizeof letters / sizeof letters[0]};

static const struct opt_command commands[] = {
    {COMMAND_GENERATE, "generate", "mpirun -n N lockstep generate --model DIR --prompt TEXT [options]",
     "Generate text for one prompt or a file of prompts, all ranks working on every token."},
    {COMMAND_SERVE, "serve", "mpirun -n N lockstep serve --model DIR [--endpoint ADDRESS] [options]",
     "Answer requests over ZeroMQ until told to end: docs/protocol.md says how to ask, docs/serve.md how to run it."},
    {COMMAND_BATCH, "batch", "mpirun -n N lockstep batch --model DIR --input FILE --output FILE [options]",
     "Run files of requests, nothing lost and nothing twice: what was finished stays when a job ends early, the next "
     "one goes on. docs/batch.md says what lines look like."},
    {COMMAND_INSPECT, "inspect", "lockstep inspect --model DIR --ranks N [--json]",
     "Show what every rank would hold: the shard table, bytes per rank, KV bytes per token. Reads headers only; runs "
     "without mpirun."},
    {COMMAND_BENCH, "bench", "mpirun -n N lockstep bench --model DIR | --config FILE --load-format dummy [options]",
     "Measure prefill, decode, latency and throughput, next to the machine's read bandwidth in the same run."},
    {COMMAND_PREFLIGHT, "preflight", "mpirun -n N lockstep preflight [--model DIR] [--json] [options]",
     "Is every node fit? In some seconds: who computes where, P2P, sums over the ranks, memory, files, clocks and "
     "memory errors of GPUs, messages. A node that is not ends it with status 9, in its name. docs/preflight.md "
     "explains all of it."},
    {COMMAND_VERSION, "version", "lockstep version", "Print the version."},
    {COMMAND_HELP, "help", "lockstep help [COMMAND]", "Print this, or a command's options."},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])
#define SUMMARY    "tensor-parallel text generation, one MPI rank per device"

const char *command_name(enum command command)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == (int)command)
            return commands[i].name;
    return "?";
}

void options_settle_openmp(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL)
        return;
    char path[4096]; /* not /proc/self/exe itself: the process would be called "exe" */
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", "10000", 1) != 0)
        return;
    path[n] = '\0';
    (void)execv(path, argv);
}

const char *options_environment(const char *name)
{
    return getenv(name);
}

double options_end_seconds(const struct options *o)
{
    if (o->end_seconds >= 0)
        return (double)o->end_seconds;
    /* Open MPI's launcher sets the second variable, and only that. */
    bool srun = getenv("SLURM_STEP_ID") != NULL && getenv("OMPI_COMM_WORLD_RANK") == NULL;
    return srun ? SRUN_END_SECONDS : 0;
}

void options_model_name(const struct options *o, char *name, size_t bytes)
{
    const char *end = o->model + strlen(o->model);
    while (end > o->model + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > o->model && begin[-1] != '/')
        begin--;
    if (o->served_name != NULL)
        (void)snprintf(name, bytes, "%s", o->served_name);
    else
        (void)snprintf(name, bytes, "%.*s", (int)(end - begin), begin);
}

/* N_COMMANDS: there is none of this name. */
static size_t find_command(const char *word)
{
    size_t i = 0;
    while (i < N_COMMANDS && strcmp(commands[i].name, word) != 0)
        i++;
    return i;
}

static int no_such_command(const char *word, struct err *e)
{
    const char *best = NULL;
    int least = nearest_limit(word) + 1;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int changes = nearest_distance(word, commands[i].name);
        if (changes < least) {
            least = changes;
            best = commands[i].name;
        }
    }
    if (best != NULL)
        return ERR(e, ERR_USAGE, "no command \"%.80s\": did you mean %s? (see: lockstep --help)", word, best);
    return ERR(e, ERR_USAGE,
               "no command \"%.80s\": expected generate, batch, serve, inspect, bench, preflight, version or help",
               word);
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    bool given[OPT_MAX_ROWS] = {false}, help = false;
    struct opt_words words = {0};
    *o = (struct options){0};
    opt_defaults(&options_table, o);
    const char *word = argc > 1 ? argv[1] : "help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    size_t i = find_command(word);
    if (i == N_COMMANDS)
        return no_such_command(word, e);
    o->command = (enum command)commands[i].command;
    if (o->command == COMMAND_HELP) {
        size_t k = argc > 2 ? find_command(argv[2]) : 0;
        if (k == N_COMMANDS)
            return no_such_command(argv[2], e);
        o->help_for = argc > 2 ? (enum command)commands[k].command : COMMAND_HELP;
        return 0;
    }
    if (opt_arguments(&options_table, o, (int)o->command, command_name(o->command), argc - 2, argv + 2, &words, given,
                      &help, e) != 0)
        return -1;
    if (help) {
        o->help_for = o->command;
        o->command = COMMAND_HELP;
        return 0;
    }
    return opt_environment(&options_table, o, (int)o->command, given, e);
}

void options_warn_unknown(void)
{
    opt_warn_unknown(&options_table, "LOCKSTEP_CLIENT_");
}

int options_group_size(const struct options *o, int n_ranks)
{
    return o->tensor_parallel > 0 ? (int)o->tensor_parallel : n_ranks;
}

int options_check_loading(const struct options *o, struct err *e)
{
    if (o->load_piece_bytes > 0 && o->load_threads < 2 && o->load_way != LOAD_ALONE)
        return ERR(
            e, ERR_USAGE,
            "--load-piece-bytes needs --load-threads of 2 or more, or --load-way alone: one thread reads whole blocks");
    return 0;
}

int options_check_groups(const struct options *o, int n_ranks, struct err *e)
{
    int size = options_group_size(o, n_ranks);
    if (size > n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %d: there are only %d rank%s", size, n_ranks,
                   n_ranks == 1 ? "" : "s");
    if (n_ranks % size != 0)
        return ERR(e, ERR_USAGE,
                   "--tensor-parallel %d: %d ranks do not make whole groups of %d: %d would be left over; start %d or "
                   "%d ranks",
                   size, n_ranks, size, n_ranks % size, n_ranks - n_ranks % size, n_ranks - n_ranks % size + size);
    if (size < n_ranks && (o->command & (COMMAND_SERVE | COMMAND_BATCH | COMMAND_INSPECT)) == 0)
        return ERR(e, ERR_USAGE,
                   "--tensor-parallel %d: %s runs one model on all %d ranks, expected %d or nothing; groups are for "
                   "batch and serve",
                   size, command_name(o->command), n_ranks, n_ranks);
    return 0;
}

static const struct opt_status statuses[] = {
    {ERR_NONE, "all done"},
    {ERR_REQUEST, "finished, but some prompts or requests failed"},
    {ERR_USAGE, "an option is unknown, missing or out of range"},
    {ERR_INPUT, "a file or a prompt is malformed or contradicts another"},
    {ERR_UNSUPPORTED, "well formed, but not implemented"},
    {ERR_IO, "cannot open, read or write"},
    {ERR_MEMORY, "too little memory"},
    {ERR_DEVICE, "a device failed, or logits are not numbers"},
    {ERR_COMM, "MPI failed"},
    {ERR_PREFLIGHT, "a preflight found a node that is not fit"},
    {ERR_RESUME, "told to end before all was done: start it again and it goes on"},
    {ERR_INTERNAL, "a mistake of ours: please report it"},
};

#define N_STATUSES (sizeof statuses / sizeof statuses[0])

static void print_overview(void)
{
    printf("lockstep %s - " SUMMARY "\n\nCommands:\n", LOCKSTEP_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        printf("  %s\n      ", commands[i].usage);
        opt_print_wrapped(commands[i].help, 6, 100);
    }
    printf("\n`lockstep COMMAND --help` lists a command's options. Each option may also come from the environment:\n"
           "--max-tokens from LOCKSTEP_MAX_TOKENS. `mpirun -q` leaves out mpirun's own words on a failure.\n\n"
           "Exit status, the same on every rank:\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        printf("  %3d  %s\n", statuses[i].code, statuses[i].meaning);
}

void options_help(enum command command)
{
    if (command == COMMAND_HELP) {
        print_overview();
        return;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == (int)command) {
            printf("Usage: %s\n\n", commands[i].usage);
            opt_print_wrapped(commands[i].help, 0, 100);
        }
    opt_print(&options_table, (int)command);
}

void options_book(struct opt_book *b)
{
    *b = (struct opt_book){.table = &options_table,
                           .summary = SUMMARY,
                           .n_commands = N_COMMANDS,
                           .status = statuses,
                           .n_statuses = N_STATUSES};
    memcpy(b->command, commands, sizeof commands);
}
