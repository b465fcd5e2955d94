/* gateway/api/chat_parts.h - what the APIs that are translated to chats have in common: contents in parts, fields
 * by tables. The chat is the body of OpenAI's chat completions, for openai_translate. */
#ifndef API_CHAT_PARTS_H
#define API_CHAT_PARTS_H

#include "gateway/exchange/fault.h"

/* A field of a request. */
struct chat_field {
    const char *name;
    const char *to; /* its name in the chat; NULL: it is read elsewhere, or means nothing here */
};

/* The members of the body into the chat, but for nulls: those that are not in the table under their own names, unless
 * they ask for what an answer of one text has no place for (several choices, log-probabilities). */
int chat_copy_fields(json_t *chat, const json_t *body, const struct chat_field *table, size_t n, struct fault *f);

/* "where: found an object, expected ..." */
int chat_wrong(struct fault *f, const char *where, const json_t *found, const char *expected);

/* A content: a string, or a list of parts whose `type` is one of types (NULL behind the last) and that have a
 * `text`. Its texts as parts of a chat; NULL, and *f: it is something else. */
json_t *chat_texts(const json_t *content, const char *where, const char *const *types, struct fault *f);

/* Is `type` of the object this word? */
bool chat_is_type(const json_t *object, const char *type);

/* {"role", "content"} at the end of the list; content is stolen. */
json_t *chat_add(json_t *messages, const char *role, json_t *content);

/* An assistant's call of a function. arguments: an object, or its text; stolen. */
void chat_add_call(json_t *message, const char *id, const char *name, json_t *arguments);

/* {"type": "function", "function": {"name", "description", "parameters"}}; NULL members are left out. */
json_t *chat_tool(const char *name, json_t *description, json_t *parameters);

/* A variable of the chat's template, unless the request has it. */
void chat_set_variable(json_t *chat, const char *name, json_t *value);

#endif
