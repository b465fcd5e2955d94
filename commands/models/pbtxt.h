/* commands/models/pbtxt.h - the text format of protocol buffers, read field by field. The text is hostile. */
#ifndef MODELS_PBTXT_H
#define MODELS_PBTXT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PBTXT_KEY_BYTES   64
#define PBTXT_VALUE_BYTES 256

struct pbtxt {
    const char *at;
    const char *what; /* for messages: the file */
};

/* The next field's name; what is read next is its value. false: the message ends, at '}' or the end of the text, or
 * *e. */
bool pbtxt_field(struct pbtxt *p, char key[PBTXT_KEY_BYTES], struct err *e);

/* Does this stand here: '{', '}', '[', ']'? Steps over it. */
bool pbtxt_takes(struct pbtxt *p, char bracket);

/* A value that is neither, without quotes; of a longer one the beginning. */
int pbtxt_value(struct pbtxt *p, char value[PBTXT_VALUE_BYTES], struct err *e);

/* Passes a value of any kind, with all that is in it. */
int pbtxt_skip(struct pbtxt *p, struct err *e);

#endif
