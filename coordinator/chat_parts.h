/* coordinator/chat_parts.h - what a struct chat_template is made of; for coordinator/chat*.c only. */
#ifndef COORDINATOR_CHAT_PARTS_H
#define COORDINATOR_CHAT_PARTS_H

#include "coordinator/chat.h"
#include "coordinator/chat_format.h"

struct chat_template {
    const struct chat_format *format;
    char *bos, *eos; /* owned; NULL: the tokenizer has none */
};

#endif
