/* protocol/protocol_parts.h - the parts of protocol_parse; for protocol/protocol*.c only. */
#ifndef PROTOCOL_PROTOCOL_PARTS_H
#define PROTOCOL_PROTOCOL_PARTS_H

#include "protocol/protocol_fields.h"

/* What is to be continued: prompts or turns, and how to encode them. Token ids are copied and their JSON is given up;
 * texts stay in m->root. `many`: more than one prompt, and ids, are allowed. */
int protocol_read_prompt(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                         struct protocol_error *error);

/* How it is continued: all else of `generate`. */
int protocol_read_rules(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                        bool may_stream, struct protocol_error *error);

#endif
