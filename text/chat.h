/* text/chat.h - chats -> the text that a model was trained on, by the checkpoint's own template.
 *
 * Templates are Jinja, parsed when the model is opened (text/template/). A rendered chat is a list of pieces that tell
 * the template's words from the client's, so that what users wrote cannot become control tokens. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/json.h"
#include "base/protocol_types.h"
#include "text/calls/calls.h"
#include "text/template/jinja.h"

#define CHAT_MAX_TEMPLATES 16

struct chat_template; /* constant once open: any number of threads may render with it */

/* The templates of a checkpoint, with its special tokens: chat_template.jinja and additional_chat_templates/NAME.jinja,
 * else chat_template of tokenizer_config.json (a string, or a list of {"name", "template"}). which: the name of one of
 * them, or a file, to use for all chats; NULL: "default", and "tool_use" for chats with tools where it is there. *chat
 * stays NULL without an error when there is none, or when which is NULL and the template has something in it that we do
 * not have; then *why says so in one line. -1: a file is malformed or cannot be read; `which` is not there or cannot be
 * used. */
int chat_template_open(struct chat_template **chat, const char *model_dir, const char *which, char *why,
                       size_t why_bytes, struct err *e);
void chat_template_close(struct chat_template **chat); /* safe on *chat == NULL, which it becomes */

/* "default-008be9440142e81d": which it is, and the digest (FNV-1a) of the texts that chats are rendered by. */
const char *chat_template_name(const struct chat_template *chat);

/* The form that calls of tools have, by the text of the template that chats with tools (without: the others) have. */
enum calls_format chat_template_calls(const struct chat_template *chat, bool tools);
/* Whether answers may begin with a thought, likewise. */
bool chat_template_thinks(const struct chat_template *chat, bool tools);

struct chat_request {           /* borrowed; as the client sent it */
    const json_t *messages;     /* a list of objects */
    const json_t *parts;        /* by messages: the list of text parts that was its content, or null; NULL: all null.
                                   Templates that go through such lists get them, the others the message's content */
    const json_t *tools;        /* a list; NULL: none */
    const json_t *documents;    /* a list; NULL: none */
    const json_t *variables;    /* an object: variables of the template beside these; NULL: none */
    bool add_generation_prompt; /* open the assistant's turn */
};

/* A refusal of the template, or input that it cannot deal with, is PROTOCOL_BAD_REQUEST with the template's own words
 * if it has some. Its clock is the local time. Free *out by jinja_text_free. */
int chat_render(const struct chat_template *chat, const struct chat_request *request, struct jinja_text *out,
                struct protocol_error *error);

#endif
