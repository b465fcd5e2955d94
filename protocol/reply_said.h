/* protocol/reply_said.h - the parsed text of an answer and its calls, as members of a message: for replies and
 * events. */
#ifndef PROTOCOL_REPLY_SAID_H
#define PROTOCOL_REPLY_SAID_H

#include "text/calls/calls.h"

#include <jansson.h>

/* {"role", "content" (null if there are only calls), "reasoning_content"?, "tool_calls"?} of a whole answer. salt and
 * choice make the ids of its calls unique. *n_calls: their number. NULL: out of memory. */
json_t *reply_said(struct calls_way way, uint64_t salt, int choice, const char *text, size_t bytes, int *n_calls);

/* {"content"?, "reasoning_content"?, "tool_calls"?} of the next event, calls with their "index"; the first event of a
 * call has its name. ends: nothing follows. NULL: out of memory. */
json_t *reply_saying(struct calls_reader *r, struct calls_way way, uint64_t salt, int choice, const char *text,
                     size_t bytes, bool ends);

#endif
