/* commands/start/start.c - see start.h. */
#include "commands/start/start.h"
#include "base/json.h"
#include "base/log.h"
#include "coordinator/drafts/draft_options.h"
#include "partition/drafting.h"
#include "partition/side_tensors.h"
#include "rank/instance/quantised_inputs.h"
#include "rank/world/device.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* Prompt tokens that one step may score: one row of logits each, beside the sampled rows. */
#define SCORE_ROWS 256

#define DRAFT_ROWS 64 /* maximum drafts of a step, over all sequences: one row of logits each */

#define SERVE_LENGTH 2048 /* length of a server's sequences if the model has no limit */

/* Block tables of the sequences that a server runs at once by default: fewer of them where the model allows contexts so
 * long that the tables alone would take hundreds of MiB. */
#define TABLE_ENTRIES (1 << 22)
#define LEAST_BATCH   256

static int32_t smaller(int64_t a, int32_t b)
{
    return a < b ? (int32_t)a : b;
}

static int read_config(struct model_config *m, const char *path, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read(path, MAX_CONFIG_BYTES, &bytes, e);
    int rc = text == NULL ? -1 : model_config_parse(m, text, bytes, path, e);
    free(text);
    return rc;
}

int start_choose_inputs(const struct run_options *o, struct model_config *m, struct err *e)
{
    const char *why = quantised_inputs_refusal(m, o->load_format == LOAD_DUMMY);
    m->quantised_inputs = o->inputs != INPUTS_OFF && why == NULL;
    if (o->inputs == INPUTS_ON && why != NULL)
        return ERR(e, ERR_UNSUPPORTED, "--quantized-activations on: %s (%s)", why,
                   m->quantization.method[0] != '\0' ? m->quantization.method : "not quantised");
    return 0;
}

/* Unused with random weights. */
static int open_checkpoint(struct checkpoint *c, const struct run_options *o, const char *folder,
                           struct model_config *m, struct err *e)
{
    if (o->load_format == LOAD_DUMMY)
        return 0;
    bool tied = m->tied_head;
    if (checkpoint_open(c, folder, e) != 0 || drafting_read(c, m, e) != 0 || side_tensors_read(c, m, e) != 0)
        return -1;
    if (tied && !m->tied_head)
        log_warn("%s: the head has other numbers than the embedding, though config.json ties them: it is used",
                 checkpoint_short_path(folder));
    return 0;
}

int start_open_model(const struct run_options *o, const char *config, struct model_config *m, struct checkpoint *c,
                     struct err *e)
{
    struct guess_rules rules;
    if (device_check((enum device_choice)o->device, e) != 0 || draft_rules(&rules, o, e) != 0)
        return -1;
    if (o->max_batch_tokens < o->max_batch)
        return ERR(e, ERR_USAGE,
                   "--max-batch-tokens %lld is less than --max-batch %lld: each running sequence needs one token",
                   (long long)o->max_batch_tokens, (long long)o->max_batch);
    if ((config != NULL ? read_config(m, config, e) : model_config_read(m, o->model, e)) != 0)
        return -1;
    if (m->drafting.n_taps > 0)
        return ERR(e, ERR_USAGE,
                   "%s: a head that drafts for another model (EAGLE-3), expected a model; --draft-model takes heads",
                   config != NULL ? config : o->model);
    if (o->max_model_len > model_context(m))
        return ERR(e, ERR_USAGE, "--max-model-len %lld: the model has %d positions", (long long)o->max_model_len,
                   model_context(m));
    if (o->expert_parallel && model_hold_whole_experts(m, e) != 0)
        return -1;
    m->kv_fp8 = o->kv_dtype != KV_AUTO;
    m->weights_fp8 = o->quantise == WEIGHTS_FP8;
    m->head_fp8 = o->head_dtype == WEIGHTS_FP8;
    if (o->load_format != LOAD_DUMMY && start_choose_inputs(o, m, e) != 0)
        return -1;
    if (m->weights_fp8 && m->quantization.format != FORMAT_NONE)
        return ERR(e, ERR_USAGE,
                   "--quantization fp8: the checkpoint is quantised already (%s), expected one that is not",
                   m->quantization.method);
    if (m->kv_fp8 && m->latent.rank > 0)
        return ERR(e, ERR_UNSUPPORTED,
                   "--kv-cache-dtype fp8: the cache of %s holds latents, which are kept as they are", m->model_type);
    return open_checkpoint(c, o, o->model, m, e);
}

int start_open_folder(const struct run_options *o, const char *command, struct model_config *m, struct checkpoint *c,
                      struct err *e)
{
    if (o->model == NULL)
        return ERR(e, ERR_USAGE, "%s needs --model DIR%s", command,
                   strcmp(command, "generate") != 0 ? " or --models-dir DIR" : "");
    return start_open_model(o, NULL, m, c, e);
}

/* The length of sequences up to which it has all positions and uses its first rotation. */
static int draft_positions(const struct model_config *m)
{
    int longest = m->max_positions > 0 ? m->max_positions : INT32_MAX;
    bool changes = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED;
    return changes && m->rope.long_from < longest ? m->rope.long_from : longest;
}

/* The folder's contents must match the method; without a method they may be either. */
static int check_kind(enum draft_kind kind, const struct model_config *m, const char *folder, struct err *e)
{
    bool head = m->drafting.n_taps > 0;
    if (kind == DRAFT_HEAD && !head)
        return ERR(e, ERR_USAGE, "draft model %s: a model (%s), expected a head for the method \"eagle3\"", folder,
                   m->model_type);
    if (kind == DRAFT_MODEL && head)
        return ERR(e, ERR_USAGE, "draft model %s: a head (EAGLE-3), expected a model for the method \"draft_model\"",
                   folder);
    return 0;
}

/* The layer of the model's own checkpoint that predicts further tokens. */
static int open_predicting(struct draft_model *d, struct instance_setup *setup, const struct run_options *o,
                           const struct model_config *m, struct err *e)
{
    if (model_predicting(&d->config, m, o->model != NULL ? o->model : "the model", e) != 0)
        return -1;
    setup->limits.draft_skip = 1;
    setup->limits.draft_len = smaller(draft_positions(m), setup->limits.max_len);
    return open_checkpoint(&d->checkpoint, o, o->model, &d->config, e);
}

int start_open_draft_model(struct draft_model *d, struct instance_setup *setup, const struct run_options *o,
                           const struct model_config *m, struct err *e)
{
    enum draft_kind kind;
    char folder[DRAFT_FOLDER_BYTES];
    if (draft_folder(folder, o, e) != 0 || draft_kind(&kind, o, e) != 0 ||
        draft_ranks(&setup->limits.draft_ranks, o, e) != 0)
        return -1;
    if (kind == DRAFT_LAYER)
        return open_predicting(d, setup, o, m, e);
    if (folder[0] == '\0')
        return 0;
    if (model_config_read(&d->config, folder, e) != 0)
        return -1;
    if (check_kind(kind, &d->config, folder, e) != 0 ||
        open_checkpoint(&d->checkpoint, o, folder, &d->config, e) != 0 ||
        model_draft_for(&d->config, m, folder, e) != 0)
        return -1;
    bool head = d->config.drafting.n_taps > 0; /* its "max_position_embeddings" only reflects its training */
    if (head && setup->limits.draft_ranks > 0)
        return ERR(e, ERR_USAGE,
                   "--draft-tensor-parallel-size: %s is a head (EAGLE-3), which is on all ranks of its model", folder);
    setup->limits.draft_skip = head;
    setup->limits.draft_len = smaller(head ? INT32_MAX : draft_positions(&d->config), setup->limits.max_len);
    return 0;
}

struct instance_setup start_setup(const struct run_options *o, int n_seqs, int n_tokens, bool scores)
{
    struct instance_setup setup = {
        .limits = {.max_seqs = n_seqs,
                   .max_batch_tokens = (int32_t)o->max_batch_tokens,
                   .max_len = n_tokens,
                   .max_logit_rows = n_seqs,
                   .sum_pieces = (int32_t)o->sum_pieces},
        .tokens_chosen = o->tokens_chosen,
        .kv_bytes = o->kv_cache_bytes,
        .threads = (int32_t)o->threads,
        .replica_size = o->tensor_parallel > 0 ? (int32_t)o->tensor_parallel : 0,
        .step = (int32_t)(o->batch_invariant ? STEP_SEPARATE : o->step),
        .batch_invariant = o->batch_invariant,
        .inputs = (int32_t)o->inputs,
        .progress = (int32_t)o->progress,
        .device = (int32_t)o->device,
        .with_bus = o->verbose,
        .load = {(int32_t)o->load_way, (int32_t)o->load_threads, (int32_t)o->load_slots, o->load_piece_bytes},
        .dummy = o->load_format == LOAD_DUMMY,
        .step_timeout = o->step_timeout};
    struct limits *l = &setup.limits;
    if (scores)
        l->max_logit_rows += l->max_batch_tokens < SCORE_ROWS ? l->max_batch_tokens : SCORE_ROWS;
    struct guess_rules rules;
    struct err checked = {0}; /* in start_open_model */
    (void)draft_rules(&rules, o, &checked);
    l->max_drafts = smaller((int64_t)n_seqs * rules.most, DRAFT_ROWS);
    l->max_logit_rows += l->max_drafts;
    int64_t blocks = (int64_t)l->max_seqs * limits_blocks_per_slot(l);
    l->n_blocks = blocks < INT32_MAX ? (int32_t)blocks : INT32_MAX;
    return setup;
}

struct instance_setup start_setup_of(const struct run_options *o, const struct model_config *m, int longest, int n_seqs,
                                     bool scores)
{
    int64_t len = o->max_model_len > 0 ? o->max_model_len : longest,
            seqs = n_seqs < o->max_batch ? n_seqs : o->max_batch;
    if (m->positions_end && len > m->max_positions)
        len = m->max_positions;
    return start_setup(o, seqs > 0 ? (int)seqs : 1, len > 0 ? (int)len : 1, scores);
}

static int64_t batch_of_length(int64_t usual, int64_t longest)
{
    int64_t fitting = TABLE_ENTRIES / ((longest + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    fitting = fitting > LEAST_BATCH ? fitting : LEAST_BATCH;
    return usual < fitting ? usual : fitting;
}

struct instance_setup start_service_setup(const struct run_options *o, const struct model_config *m)
{
    struct run_options mine = *o;
    int longest = m->max_positions > 0 ? m->max_positions : SERVE_LENGTH;
    if (mine.max_batch < 0)
        mine.max_batch = batch_of_length(o->usual_batch, o->max_model_len > 0 ? o->max_model_len : longest);
    return start_setup_of(&mine, m, longest, INT32_MAX, true);
}
