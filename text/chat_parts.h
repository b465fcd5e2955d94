/* text/chat_parts.h - what a struct chat_template is made of; for text/chat*.c only. */
#ifndef TEXT_CHAT_PARTS_H
#define TEXT_CHAT_PARTS_H

#include "text/chat.h"
#include "text/chat_format.h"

struct chat_template {
    const struct chat_format *format;
    char *bos, *eos; /* owned; NULL: the tokenizer has none */
};

#endif
