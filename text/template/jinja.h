/* text/template/jinja.h - chat templates (Jinja), parsed once and rendered for each chat as transformers does.
 *
 * docs/protocol.md lists the supported constructs, docs/decisions/chat-templates.md gives the reasons for own code. */
#ifndef TEXT_TEMPLATE_JINJA_H
#define TEXT_TEMPLATE_JINJA_H

#include "base/json.h"

struct jinja; /* constant once open: any number of threads may render it at the same time */

/* `name` names it in messages. ERR_INPUT: malformed; ERR_UNSUPPORTED: contains something unsupported. The message gives
 * the template, the line, what was found and what is supported. */
int jinja_open(struct jinja **t, const char *name, const char *source, size_t bytes, struct err *e);
void jinja_close(struct jinja **t); /* safe on *t == NULL, which it becomes */

/* Whether a variable or function of this name occurs anywhere in it. */
bool jinja_reads(const struct jinja *t, const char *name);

struct jinja_variables {
    const json_t *own;     /* an object: the checkpoint's variables (bos_token, ...); NULL: none */
    const json_t *request; /* an object: the client's variables, which take precedence over `own`; NULL: none */
    int64_t now;           /* seconds since 1970 */
};

struct jinja_piece {
    const char *text;
    size_t bytes;
    bool foreign; /* from the client; else from the template */
};

struct jinja_text { /* zeroed = empty */
    struct jinja_piece *piece;
    size_t n;
    struct heap *heap; /* all of it lies there */
};

/* The pieces borrow nothing, not even from the variables. On failure nothing is to be freed. ERR_INPUT: the template
 * refuses the chat (raise_exception), fails on it, or exceeds a limit. */
int jinja_render(const struct jinja *t, const struct jinja_variables *variables, struct jinja_text *out, struct err *e);
void jinja_text_free(struct jinja_text *t);

#endif
