/* base/opt.h - the command line: one table names every option, its default, range and help. */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include "base/err.h"
#include "base/progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPT_MAX_STOP  16
#define OPT_MAX_INPUT 256

enum command {
    COMMAND_HELP = 0,
    COMMAND_GENERATE = 1,
    COMMAND_INSPECT = 2,
    COMMAND_BENCH = 4,
    COMMAND_VERSION = 8,
    COMMAND_SERVE = 16,
    COMMAND_BATCH = 32,
    COMMAND_PREFLIGHT = 64
};
enum device_choice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum step_choice { STEP_AUTO, STEP_SEPARATE, STEP_PERSISTENT }; /* how decode steps run on a GPU */
enum resume_choice { RESUME_AUTO, RESUME_ALWAYS, RESUME_NEVER };
/* Who reads a checkpoint: a node's ranks each byte once, for all of them; or each rank what it holds. */
enum load_way { LOAD_WAY_AUTO, LOAD_TOGETHER, LOAD_ALONE };
enum load_format { LOAD_AUTO, LOAD_SAFETENSORS, LOAD_DUMMY };

/* Strings are borrowed from argv or the environment. Numbers that may come from generation_config.json instead are NAN or
 * -1 when they were not given. */
struct options {
    enum command command;
    enum command help_for; /* with COMMAND_HELP: the subcommand, or COMMAND_HELP for the overview */

    const char *model, *config;
    const char *prompt, *prompts, *prompt_ids, *output;
    const char *stop[OPT_MAX_STOP], *stop_token_ids, *logit_bias;
    int64_t n_stop;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t max_tokens, min_tokens, top_k, seed, logprobs, prompt_logprobs;
    bool ignore_eos, include_stop, no_echo, json, no_special, plain_text, keep_special, verbose;
    bool no_prefix_caching;

    int64_t max_batch, max_batch_tokens, max_model_len, kv_cache_bytes, threads, device, step, progress, load_format;
    double step_timeout;
    int64_t ranks;
    int64_t tensor_parallel; /* ranks that share a model; -1: all */
    int64_t n_prompt, n_gen, n_depth, batch;
    int64_t repetitions, warmup, num_prompts, bench_max_batch; /* -1: not given */
    const char *latency, *throughput;
    bool profile;

    int64_t load_way, load_threads, load_slots, load_piece_bytes; /* 0: not given */

    /* preflight; negative: not given */
    bool preflight, accept_throttling;
    double min_read_share, max_broadcast_us, preflight_timeout;
    int64_t min_file_rate;

    /* serve */
    const char *endpoint, *curve_clients, *rendezvous, *served_name, *chat_template, *metrics_file, *access_log;
    int64_t serve_max_batch, max_connections, max_queue, max_queue_per_client, max_priority, max_reply_bytes,
        max_message_bytes, max_client_backlog, drain_seconds, end_seconds, metrics_names;
    bool insecure, curve, access_log_prompts;

    /* batch */
    const char *input[OPT_MAX_INPUT]; /* [n_input] */
    int64_t n_input, resume, max_inflight;
    double sync_seconds; /* negative: not given */
    bool plain, ordered, force, retry_failed;
    /* and how it ends, and what it shows */
    const char *max_walltime, *shard, *status_file, *log_dir;
    int64_t batch_drain_seconds, array_shard, max_restarts; /* -1: not given */
    double walltime_reserve, status_seconds;                /* negative: not given */
    bool requeue_self, slurm_comment;
};

/* Options of argv[1..], then LOCKSTEP_<OPTION> of the environment, then defaults. On failure *e says which option, what
 * was found and what is expected. */
int options_parse(struct options *o, int argc, char **argv, struct err *e);

/* Of n_ranks, how many share a model. */
/* On rank 0: variables LOCKSTEP_* that name no option. */
void options_warn_unknown(void);

int options_group_size(const struct options *o, int n_ranks);

/* Do the options cut so many ranks into whole groups, for a command that can use them? */
int options_check_groups(const struct options *o, int n_ranks, struct err *e);

/* Do options of loading go together? */
int options_check_loading(const struct options *o, struct err *e);

/* Unless the environment says how OpenMP threads wait, have them spin for some ten microseconds only: libgomp's default of
 * milliseconds takes the cores from the neighbours (measured: 20 tokens/s instead of 500 on two busy cores). libgomp reads
 * this when it is loaded, so the program is executed once more, with the same arguments. Returns if that fails. */
void options_settle_openmp(char **argv);

/* A variable that steers a library below us (CUDA_VISIBLE_DEVICES, NCCL_P2P_DISABLE): to go along with it and to name it
 * in messages. NULL: not set. */
const char *options_environment(const char *name);

/* What the model is called: --served-model-name, else the last part of the folder's path. Cut to fit. */
void options_model_name(const struct options *o, char *name, size_t bytes);

/* Print the overview (COMMAND_HELP) or one subcommand's page to standard output. */
void options_help(enum command command);

struct opt_book;
/* What man pages and completions are made from. */
void options_book(struct opt_book *b);

/* What there is after SIGTERM or SIGINT, in seconds: --end-seconds, else 20 under srun, since Slurm's KillWait is 30 unless the
 * site says otherwise, and 0 under mpirun, which kills a second later. */
double options_end_seconds(const struct options *o);

const char *command_name(enum command command);

#endif
