/* coordinator/tasks/encode.h - a checked prompt or chat -> token ids. */
#ifndef TASKS_ENCODE_H
#define TASKS_ENCODE_H

#include "protocol/protocol.h"
#include "text/chat.h"
#include "text/tokenizer/tokenizer.h"

/* Token ids of prompt i (0 for a chat), appended to *out: text, ids or rendered chat. bos (or -1) is used for a text
 * without tokens. chat NULL: the checkpoint has no usable chat template. Slow for long texts. Any thread. */
int encode_request(const struct protocol_generate *g, int i, const struct tokenizer *t,
                   const struct chat_template *chat, int vocab, int32_t bos, struct token_list *out,
                   struct protocol_error *error);

/* Token ids of its prediction, in which special tokens are plain text; none without a prediction. */
int encode_prediction(const struct protocol_generate *g, const struct tokenizer *t, int vocab, struct token_list *out,
                      struct protocol_error *error);

#endif
