/* commands/start/start.h - from options to a model that can be opened: rank 0's checks before anything large is read,
 * and the setup that it broadcasts. */
#ifndef START_START_H
#define START_START_H

#include "base/run_options.h"
#include "rank/instance/instance.h"

/* Decides whether activations are quantised, by the option and by *m's declaration. start_open_model calls it for
 * checkpoints; a caller with random weights must call it. Rank 0. */
int start_choose_inputs(const struct run_options *o, struct model_config *m, struct err *e);

/* Reads the model's config, that of --model or else the file `config`, checks the options against it, and opens the
 * checkpoint unless its weights are random. max_batch is checked if positive. Rank 0. */
int start_open_model(const struct run_options *o, const char *config, struct model_config *m, struct checkpoint *c,
                     struct err *e);

/* The same for a command that needs a whole model folder. */
int start_open_folder(const struct run_options *o, const char *command, struct model_config *m, struct checkpoint *c,
                      struct err *e);

/* Opens the draft model of the options, if any, beside one of config m, and notes its maximum sequence length in the
 * setup. ERR_USAGE if their vocabularies differ. Rank 0. */
int start_open_draft_model(struct draft_model *d, struct instance_setup *setup, const struct run_options *o,
                           const struct model_config *m, struct err *e);

/* The setup of every rank, for at most n_seqs sequences of n_tokens at once. scores: prompts may be scored. Rank 0. */
struct instance_setup start_setup(const struct run_options *o, int n_seqs, int n_tokens, bool scores);

/* The same with as many and as long sequences as options and model allow: at most n_seqs, of `longest` tokens if the
 * options do not set it. */
struct instance_setup start_setup_of(const struct run_options *o, const struct model_config *m, int longest, int n_seqs,
                                     bool scores);

/* The same for future requests. */
struct instance_setup start_service_setup(const struct run_options *o, const struct model_config *m);

#endif
