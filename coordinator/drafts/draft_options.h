/* coordinator/drafts/draft_options.h - reads the options for drafts: vLLM's --speculative-config and short options
 * beside it. */
#ifndef DRAFTS_DRAFT_OPTIONS_H
#define DRAFTS_DRAFT_OPTIONS_H

#include "base/run_options.h"
#include "coordinator/drafts/guesses.h"

/* The longest path of a draft model's folder, with its NUL. */
#define DRAFT_FOLDER_BYTES 4096

/* The folder of the draft model, also of one in the Hub's cache (base/repository.h); "" if none is requested. ERR_USAGE
 * as draft_rules. */
int draft_folder(char folder[DRAFT_FOLDER_BYTES], const struct run_options *o, struct err *e);

/* The kind of drafter from "method", if given: decided by the folder's contents, or a layer of the model's own
 * checkpoint, without a folder. */
enum draft_kind { DRAFT_ANY, DRAFT_MODEL, DRAFT_HEAD, DRAFT_LAYER };
int draft_kind(enum draft_kind *kind, const struct run_options *o, struct err *e);

/* The ranks that hold the draft model; 0: all of them. ERR_USAGE where no separate model is asked for. */
int draft_ranks(int32_t *n, const struct run_options *o, struct err *e);

/* rules->most is 0 if no drafts are requested. ERR_USAGE names an unsupported request. */
int draft_rules(struct guess_rules *rules, const struct run_options *o, struct err *e);

#endif
