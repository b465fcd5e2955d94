/* client/message.h - a message from the server. Its fields are those of docs/protocol.md, but none is assumed: a field
 * that is missing or has another type counts as empty. */
#ifndef CLIENT_MESSAGE_H
#define CLIENT_MESSAGE_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Is it part of a stream, with more to come? Otherwise it ends its request. */
bool message_is_event(const json_t *reply);

/* Does it answer the request of this name? A reply without a name does: the server could not read one. */
bool message_is_to(const json_t *reply, const char *request_id);

bool message_failed(const json_t *reply);

/* "error 400: max_tokns: unknown field" as ERR_REQUEST, or "choice 1: error 500: ..." if only some choices failed;
 * nothing if none did. Returns -1 if one did. */
int message_check(const json_t *reply, struct err *e);

/* Writes choice i's text to f unchanged; "" when there is none. */
void message_write_text(const json_t *reply, size_t i, FILE *f);
size_t message_n_choices(const json_t *reply);

/* The number of tokens in a message, over all choices. */
int64_t message_n_tokens(const json_t *reply);

/* usage.prompt_tokens, usage.completion_tokens; -1: missing. */
int64_t message_usage(const json_t *reply, const char *name);

/* The whole message as a line of JSON. */
void message_print(const json_t *reply, FILE *f);

#endif
