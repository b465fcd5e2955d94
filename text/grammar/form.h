/* text/grammar/form.h - the requested form of an answer: its source, as it travels between processes, and its
 * grammar. */
#ifndef GRAMMAR_FORM_H
#define GRAMMAR_FORM_H

#include "text/grammar/grammar.h"

enum form_kind { FORM_SCHEMA = 1, FORM_REGEX, FORM_CHOICE, FORM_OBJECT, FORM_CALLS, FORM_KINDS };

struct form { /* constant once open */
    enum form_kind kind;
    char *source; /* [bytes] JSON: the schema, a string, an array of strings, null, calls (calls.h) */
    size_t bytes;
    struct grammar grammar;
};

#define FORM_MAX_BYTES ((size_t)1 << 20) /* of a source */

/* value: as the kind requires. *f is NULL on failure: malformed (ERR_INPUT), not supported, or no memory. */
int form_open(struct form **f, enum form_kind kind, const json_t *value, struct err *e);
int form_open_text(struct form **f, enum form_kind kind, const char *source, size_t bytes, struct err *e);
/* Safe on NULL. */
void form_close(struct form *f);

#endif
