/* text/template/jinja.h - chat templates (Jinja), parsed once and rendered for each chat as transformers does.
 *
 * docs/protocol.md says what templates may have in them, docs/decisions/templates.md why this is our own. */
#ifndef TEXT_TEMPLATE_JINJA_H
#define TEXT_TEMPLATE_JINJA_H

#include "base/json.h"

struct jinja; /* constant once open: any number of threads may render it at the same time */

/* `name` stands in messages. ERR_INPUT: malformed; ERR_UNSUPPORTED: has something in it that we do not have. The
 * message says which template, which line, what was found and what is supported. */
int jinja_open(struct jinja **t, const char *name, const char *source, size_t bytes, struct err *e);
void jinja_close(struct jinja **t); /* safe on *t == NULL, which it becomes */

/* Whether a variable or function of this name stands anywhere in it. */
bool jinja_reads(const struct jinja *t, const char *name);

struct jinja_variables {
    const json_t *own;     /* an object: what the checkpoint says (bos_token, ...); NULL: none */
    const json_t *request; /* an object: what the client says; wins over `own`; NULL: none */
    int64_t now;           /* seconds since 1970 */
};

struct jinja_piece {
    const char *text;
    size_t bytes;
    bool foreign; /* written by the client; else the template's own */
};

struct jinja_text { /* zeroed = empty */
    struct jinja_piece *piece;
    size_t n;
    struct heap *heap; /* all of it lies there */
};

/* The pieces borrow nothing, not even from the variables. On failure nothing is to be freed. ERR_INPUT: the template
 * refuses the chat (raise_exception), cannot deal with it, or takes more than the limits allow. */
int jinja_render(const struct jinja *t, const struct jinja_variables *variables, struct jinja_text *out, struct err *e);
void jinja_text_free(struct jinja_text *t);

#endif
