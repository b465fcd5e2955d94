/* commands/start/start.h - from options to a model that can be opened: what rank 0 checks before anything large is
 * read, and what it tells every rank. */
#ifndef START_START_H
#define START_START_H

#include "base/run_options.h"
#include "rank/instance/instance.h"

/* Whether activations are quantised, by the option and by what *m declares. start_open_model does it for checkpoints, a
 * caller with random weights by itself. Rank 0. */
int start_choose_inputs(const struct run_options *o, struct model_config *m, struct err *e);

/* Read the model's config, that of --model or else the file `config`, check what the options ask of it, and open the
 * checkpoint unless its weights are random. max_batch that is not positive is not checked. Rank 0. */
int start_open_model(const struct run_options *o, const char *config, struct model_config *m, struct checkpoint *c,
                     struct err *e);

/* The same for a command that needs a whole model folder. */
int start_open_folder(const struct run_options *o, const char *command, struct model_config *m, struct checkpoint *c,
                      struct err *e);

/* Open the draft model that the options ask for, if any, beside one of config m, and note in the setup how long the
 * sequences are that it takes. ERR_USAGE where their vocabularies differ. Rank 0. */
int start_open_draft_model(struct draft_model *d, struct instance_setup *setup, const struct run_options *o,
                           const struct model_config *m, struct err *e);

/* Sequences that run at once if no option says it. */
int64_t start_usual_batch(const struct run_options *o, const struct model_config *m);

/* The setup of every rank, for at most n_seqs sequences of n_tokens at once. scores: prompts may be scored. Rank 0. */
struct instance_setup start_setup(const struct run_options *o, int n_seqs, int n_tokens, bool scores);

/* The same with sequences and their length as far as options and the model allow them: at most n_seqs, of `longest`
 * tokens if the options do not say it. */
struct instance_setup start_setup_of(const struct run_options *o, const struct model_config *m, int longest, int n_seqs,
                                     bool scores);

/* The same for requests that have not come yet. */
struct instance_setup start_service_setup(const struct run_options *o, const struct model_config *m);

#endif
