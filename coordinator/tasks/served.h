/* coordinator/tasks/served.h - a model as requests see it: its name, the bounds of its messages, text to tokens and
 * back. */
#ifndef TASKS_SERVED_H
#define TASKS_SERVED_H

#include "protocol/protocol.h"
#include "text/chat.h"
#include "text/tokenizer/tokenizer.h"

struct served { /* constant, all borrowed */
    struct protocol_model model;
    const char *family, *dtype;
    const char *variant; /* how stored numbers differ from the checkpoint's; NULL: not at all */
    const struct tokenizer *tokenizer;
    struct lexicon_keeper *lexicon;   /* not constant; thread-safe */
    const struct chat_template *chat; /* NULL: none usable */
    int32_t bos;                      /* -1: none */
};

#endif
