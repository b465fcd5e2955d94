/* commands/generation.h - generation settings: options of the command line override generation_config.json, which
 * overrides defaults. */
#ifndef COMMANDS_GENERATION_H
#define COMMANDS_GENERATION_H

#include "commands/generate_options.h"
#include "coordinator/schedule/request.h"

/* Fill the rules of a run. Reads MODEL/generation_config.json and, for ids that it lacks, config.json. `vocab` bounds
 * token ids. Strings are borrowed from *o. *bos is the begin-of-text id, or -1. */
int generation_rules(struct request_rules *rules, int32_t *bos, const struct generate_options *o, int vocab,
                     struct err *e);

/* Frees rules->stop and rules->form, which the rules own. Safe on zeroed rules. */
void generation_rules_close(struct request_rules *rules);

/* From these files only the ids: rules->sampling.eos and *bos. */
int generation_ids(struct request_rules *rules, int32_t *bos, const char *model_dir, int vocab, struct err *e);

/* "1,2,3" to at most `capacity` ids in [0, vocab); returns the number or -1. `option` names it in messages. */
int generation_parse_ids(const char *text, int32_t *id, int capacity, int vocab, const char *option, struct err *e);

#endif
