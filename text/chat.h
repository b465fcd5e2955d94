/* text/chat.h - chats -> the text that a model was trained on, by the checkpoint's own template.
 *
 * Templates are Jinja, parsed when the model is opened (text/template/). A rendered chat is a list of pieces that
 * distinguish the template's text from the client's, so that text of users cannot become control tokens. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/json.h"
#include "base/protocol_types.h"
#include "text/calls/calls.h"
#include "text/template/jinja.h"

#define CHAT_MAX_TEMPLATES 16

struct chat_template; /* constant once open: any number of threads may render with it */

/* The templates of a checkpoint, with its special tokens: chat_template.jinja and additional_chat_templates/NAME.jinja,
 * else chat_template of tokenizer_config.json (a string, or a list of {"name", "template"}), else of
 * chat_template.json. which: the name of one of them, or a file, to use for all chats; NULL: "default", and "tool_use",
 * if present, for chats with tools. *chat stays NULL without an error if there is no template, or if which is NULL and
 * the template contains something unsupported; then *why gives the reason in one line. -1: a file is malformed or
 * cannot be read; `which` does not exist or cannot be used. */
int chat_template_open(struct chat_template **chat, const char *model_dir, const char *which, char *why,
                       size_t why_bytes, struct err *e);
void chat_template_close(struct chat_template **chat); /* safe on *chat == NULL, which it becomes */

/* "default-008be9440142e81d": the template's name and a digest (FNV-1a) of the text or texts in use. */
const char *chat_template_name(const struct chat_template *chat);

/* The form of calls of tools, from the text of the template for chats with tools (or without). */
enum calls_format chat_template_calls(const struct chat_template *chat, bool tools);
/* Whether answers may begin with reasoning, likewise. */
bool chat_template_thinks(const struct chat_template *chat, bool tools);

struct chat_request {           /* borrowed; as the client sent it */
    const json_t *messages;     /* a list of objects */
    const json_t *parts;        /* per message the list of text parts that was its content, or null; NULL: all null.
                            Templates that iterate over such lists get them, others get the message's content */
    const json_t *tools;        /* a list; NULL: none */
    const json_t *documents;    /* a list; NULL: none */
    const json_t *variables;    /* an object: variables of the template beside these; NULL: none */
    bool add_generation_prompt; /* end with the opening of the assistant's turn */
    bool continue_last;         /* end where the content of the last message ends */
};

/* If the template refuses the chat or fails on it, the result is PROTOCOL_BAD_REQUEST with the template's own message,
 * if any. Templates see the local time. Free *out by jinja_text_free. */
int chat_render(const struct chat_template *chat, const struct chat_request *request, struct jinja_text *out,
                struct protocol_error *error);

#endif
