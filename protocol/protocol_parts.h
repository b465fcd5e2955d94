/* protocol/protocol_parts.h - the parts of protocol_parse; for protocol/protocol*.c only. */
#ifndef PROTOCOL_PROTOCOL_PARTS_H
#define PROTOCOL_PROTOCOL_PARTS_H

#include "protocol/protocol_fields.h"

/* Reads the input, prompts or turns, and its encoding options. Token ids are copied and their JSON is freed; texts stay
 * in m->root. `many`: more than one prompt, and ids, are allowed. */
int protocol_read_prompt(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                         struct protocol_error *error);

/* Checks that several texts together stay within the limits of a message. -1 if not, and *error names the field. */
int protocol_check_limits(const struct json_limits *found, const char *field, struct protocol_error *error);

/* Reads response_format and structured_outputs, and checks that the rules, which were read before, go with them. */
void protocol_read_form(struct protocol_message *m, const struct fields *f, struct protocol_error *error);

/* Do the rules allow a form to determine where the text ends? field: the one that requests the form. */
void protocol_check_form(const struct protocol_generate *g, const struct fields *f, struct protocol_error *error);

/* Reads tool_choice and parallel_tool_calls of a chat whose tools and form have been read. */
void protocol_read_tools(struct protocol_generate *g, const struct fields *f, struct protocol_error *error);

/* Reads the rules of generation: all other fields of `generate`. */
int protocol_read_rules(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                        bool may_stream, struct protocol_error *error);

#endif
