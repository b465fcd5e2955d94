/* commands/prompts.h - the prompts of `generate`: an option, ids, or a file. */
#ifndef COMMANDS_PROMPTS_H
#define COMMANDS_PROMPTS_H

#include "commands/generate_options.h"
#include "text/tokenizer/tokenizer.h"

struct prompt {
    char *text; /* owned; NULL: given as ids */
    size_t text_bytes;
    struct token_list ids; /* filled by prompts_encode for texts */
    int line;              /* in the file, from 1; 0: from an option */
};

struct prompt_list {
    int n, capacity;
    struct prompt *prompt;
};

/* Exactly one of --prompt, --prompts and --prompt-ids. vocab bounds ids. A malformed file ends the run, naming the
 * line. */
int prompts_read(struct prompt_list *list, const struct generate_options *o, int vocab, struct err *e);

/* Token ids of one prompt. bos (or -1) stands in for an empty prompt, as Hugging Face does. */
int prompt_encode(struct prompt *p, const struct tokenizer *t, const struct generate_options *o, int vocab, int32_t bos,
                  struct err *e);

void prompts_free(struct prompt_list *list);

#endif
