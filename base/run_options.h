/* base/run_options.h - options that several commands share, since they say where and how a model runs. Each command's
 * record holds this one. */
#ifndef BASE_RUN_OPTIONS_H
#define BASE_RUN_OPTIONS_H

#include "base/choices.h"
#include "base/err.h"
#include "base/opt_table.h"

#include <stdbool.h>
#include <stdint.h>

enum speculative_choice { SPECULATIVE_AUTO, SPECULATIVE_ALWAYS, SPECULATIVE_OFF };

/* Strings are borrowed from argv or the environment. Numbers that were not given are negative unless said. */
struct run_options {
    const char *model;       /* the folder, after run_find_model */
    const char *revision;    /* of a repository in the Hub's cache; NULL: main */
    const char *model_name;  /* of such a repository; NULL: the folder's name */
    int64_t tensor_parallel; /* ranks that share a model; -1: all */
    bool expert_parallel;    /* ranks hold whole experts */
    int64_t device, threads;
    bool json, verbose;

    int64_t max_batch, max_batch_tokens, max_model_len, kv_cache_bytes, kv_dtype, quantise, head_dtype, inputs, step,
        progress, sum_pieces;
    double step_timeout;
    double max_step_ms;
    bool batch_invariant; /* results do not depend on what else is in a step */
    bool tokens_chosen;   /* max_batch_tokens was not given: see run_choose_limits */
    int64_t usual_batch;  /* the default max_batch of serve, batch and bench --throughput */
    bool no_prefix_caching;

    const char *speculative_config; /* NULL: not given */
    const char *draft_model;        /* NULL: not given */
    int64_t speculative;            /* enum speculative_choice */
    int64_t num_speculative_tokens, prompt_lookup_max, prompt_lookup_min;
    int64_t draft_ranks; /* --draft-tensor-parallel-size */

    int64_t load_format, load_way, load_threads, load_slots, load_piece_bytes; /* 0: not given */

    bool preflight, accept_throttling;
    double min_read_share, max_broadcast_us, preflight_timeout;
    int64_t min_file_rate;
};

/* Options that several commands share. */
extern const struct opt_rows run_model_rows;  /* --model, --tensor-parallel, --expert-parallel */
extern const struct opt_rows run_device_rows; /* --device */
extern const struct opt_rows run_kv_rows;     /* --kv-cache-dtype */
extern const struct opt_rows run_fp8_rows;    /* --quantization, --head-dtype: weights at load */
extern const struct opt_rows run_inputs_rows; /* --quantized-activations */
extern const struct opt_rows run_json_rows;   /* --json, instead of a table */
extern const struct opt_rows run_host_rows;   /* threads, and what a preflight accepts */
extern const struct opt_rows run_load_rows;   /* commands that load a model on all ranks */
extern const struct opt_rows run_prefix_rows; /* those that keep prefixes */
extern const struct opt_rows run_draft_rows;  /* those that may verify several tokens of a sequence in one step */
extern const struct opt_rows run_bound_rows;  /* --max-step-ms */

/* Make o->model a folder, if it names a repository in the Hub's cache (base/repository.h), and set o->model_name. One
 * model a process. */
int run_find_model(struct run_options *o, struct err *e);

/* Set the usual batches and, if it was not given, max_batch_tokens. many: models share the device's memory. */
void run_choose_limits(struct run_options *o, bool on_gpus, bool many);

/* The longest step in seconds; 0: there is no bound. */
double run_max_step(const struct run_options *o);

/* The number of ranks that share a model, of n_ranks. */
int run_replica_size(const struct run_options *o, int n_ranks);

/* Whether the options divide this number of ranks into whole replicas. alone: the name of a command that runs one
 * model on all ranks; NULL: it can use replicas. */
int run_check_replicas(const struct run_options *o, int n_ranks, const char *alone, struct err *e);

/* Checks that the options of loading go together. */
int run_check_loading(const struct run_options *o, struct err *e);

/* Checks that --batch-invariant goes with the other options. */
int run_check_invariance(const struct run_options *o, struct err *e);

#endif
