/* commands/texts.h - the parts of a model folder that requests need beside its weights: tokenizer, chat template, ids
 * that end a text. */
#ifndef COMMANDS_TEXTS_H
#define COMMANDS_TEXTS_H

#include "base/run_options.h"
#include "coordinator/tasks/served.h"
#include "partition/model.h"
#include "text/grammar/lexicon_keeper.h"

struct texts {
    char name[768]; /* of the model, in UTF-8 whatever its folder's name */
    struct tokenizer *tokenizer;
    struct lexicon_keeper lexicon;
    struct chat_template *chat;                                /* NULL: none that is supported */
    char family[sizeof((struct model_config *)0)->model_type]; /* they outlive the config */
    struct served served; /* of these; .model.name is `name`, .family is `family` */
    int rope_changes_at;  /* see struct scheduler_setup */
};

/* name: to clients. chat_template: as in struct service_options. m is borrowed. The texts must stay where they are.
 * Any thread. */
int texts_open(struct texts *t, const char *dir, const char *name, const char *chat_template,
               const struct model_config *m, struct err *e);
/* The parts that steps need: tokenizer and lexicon. */
int texts_open_steps(struct texts *t, const char *dir, const char *name, const struct model_config *m, struct err *e);
/* Refuses the draft model of the options, if there is one, if its tokenizer has other tokens. A folder without a
 * tokenizer is accepted. */
int texts_check_draft_model(const struct tokenizer *t, const struct run_options *o, struct err *e);
/* Safe on a zeroed struct. */
void texts_close(struct texts *t);

#endif
