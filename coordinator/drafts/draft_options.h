/* coordinator/drafts/draft_options.h - how drafts are made, by the options: vLLM's --speculative-config and short ones
 * beside it. */
#ifndef DRAFTS_DRAFT_OPTIONS_H
#define DRAFTS_DRAFT_OPTIONS_H

#include "base/run_options.h"
#include "coordinator/drafts/guesses.h"

/* The longest name of a draft model's folder, its end included. */
#define DRAFT_FOLDER_BYTES 4096

/* The folder of the draft model, "" where none is asked for. ERR_USAGE as draft_rules. */
int draft_folder(char folder[DRAFT_FOLDER_BYTES], const struct run_options *o, struct err *e);

/* The drafter, as "method" says where it is given: the contents of the folder, or a layer of the model's own
 * checkpoint, without a folder. */
enum draft_kind { DRAFT_ANY, DRAFT_MODEL, DRAFT_HEAD, DRAFT_LAYER };
int draft_kind(enum draft_kind *kind, const struct run_options *o, struct err *e);

/* rules->most is 0 where no drafts are asked for. ERR_USAGE: what is asked for is not there, by its name. */
int draft_rules(struct guess_rules *rules, const struct run_options *o, struct err *e);

#endif
