/* gateway/api/chat_parts.h - common to the APIs that are translated to chats: contents in parts, fields by tables. The
 * chat is the body of OpenAI's chat completions, for openai_translate. */
#ifndef API_CHAT_PARTS_H
#define API_CHAT_PARTS_H

#include "gateway/exchange/fault.h"

/* A field of a request. */
struct chat_field {
    const char *name;
    const char *to; /* its name in the chat; NULL: it is read elsewhere, or ignored */
};

/* Copies the members of the body that are not null into the chat: those outside the table under their own names, unless
 * they ask for several choices or log-probabilities, for which these APIs' answers have no field. */
int chat_copy_fields(json_t *chat, const json_t *body, const struct chat_field *table, size_t n, struct fault *f);

/* "where: found an object, expected ..." */
int chat_wrong(struct fault *f, const char *where, const json_t *found, const char *expected);

/* The texts of a content as parts of a chat. A content is a string, or a list of parts with a `text` whose `type` is
 * one of types (NULL after the last); otherwise NULL and *f. */
json_t *chat_texts(const json_t *content, const char *where, const char *const *types, struct fault *f);

/* Is `type` of the object this word? */
bool chat_is_type(const json_t *object, const char *type);

/* Appends {"role", "content"} to the list; content is stolen. */
json_t *chat_add(json_t *messages, const char *role, json_t *content);

/* A function call by the assistant. arguments: an object, or its text; stolen. */
void chat_add_call(json_t *message, const char *id, const char *name, json_t *arguments);

/* {"type": "function", "function": {"name", "description", "parameters"}}; NULL members are left out. */
json_t *chat_tool(const char *name, json_t *description, json_t *parameters);

/* Sets a variable of the chat template, unless the request sets it. */
void chat_set_variable(json_t *chat, const char *name, json_t *value);

#endif
