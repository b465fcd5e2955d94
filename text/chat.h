/* text/chat.h - chat turns -> the text that a model was trained on, by built-in templates.
 *
 * The checkpoint's own template (Jinja) is recognised, never run: what we do not know exactly is refused, with a digest
 * by which it can be reported. A rendered chat is a list of pieces, so that what users wrote cannot become control
 * tokens. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/protocol_types.h"

#include <stdbool.h>
#include <stdint.h>

struct chat_template;

/* Find the template of a checkpoint: chat_template.jinja, else tokenizer_config.json's chat_template (the one named
 * "default" of several), with bos_token and eos_token. name: take this one of ours instead; NULL: recognise it. *chat
 * stays NULL without an error when there is none or it is not known; then *why (200 bytes suffice) says so in one line.
 * -1: a file is malformed or cannot be read, or we have no such name. */
int chat_template_open(struct chat_template **chat, const char *model_dir, const char *name, char *why,
                       size_t why_bytes, struct err *e);
void chat_template_close(struct chat_template **chat); /* safe on *chat == NULL, which it becomes */

/* "chatml", "llama-3", ... */
const char *chat_template_name(const struct chat_template *chat);

/* By which a template is recognised: FNV-1a of its text, but for a line feed at its end. */
uint64_t chat_template_digest(const char *text, size_t bytes);
/* The name of ours with this digest, or NULL. */
const char *chat_template_recognise(uint64_t digest);

struct chat_piece {
    const char *text; /* borrowed from the turns or the template */
    size_t bytes;
    bool control; /* of the template: special tokens written in it are such; else a user's words */
};

struct chat_text { /* zeroed = empty; not to be copied, pieces may lie in it */
    struct chat_piece *piece;
    int n, capacity;
    char date[16]; /* "01 Dec 2024" */
};

/* The pieces of a chat, which borrow from chat and turns. What the template does not allow (a role, an order of turns)
 * is PROTOCOL_BAD_REQUEST naming "messages[i]...". llama-3.2 has today's date in it: the one use of a clock. */
int chat_render(const struct chat_template *chat, const struct protocol_turn *turn, int n, bool add_generation_prompt,
                struct chat_text *out, struct protocol_error *error);
void chat_text_free(struct chat_text *t);

#endif
