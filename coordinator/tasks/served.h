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
    const char *variant; /* how numbers are kept otherwise than the checkpoint has them; NULL: in no way */
    const struct tokenizer *tokenizer;
    struct lexicon_keeper *lexicon;   /* not constant; any thread may ask it */
    const struct chat_template *chat; /* NULL: none that we know */
    int32_t bos;                      /* -1: none */
};

#endif
