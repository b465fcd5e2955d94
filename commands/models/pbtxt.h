/* commands/models/pbtxt.h - a field-by-field parser of protocol buffers' text format. The text is untrusted. */
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

/* Reads the next field's name; its value follows. false: the message ends, at '}' or the end of the text, or *e. */
bool pbtxt_field(struct pbtxt *p, char key[PBTXT_KEY_BYTES], struct err *e);

/* Is this the next character: '{', '}', '[', ']'? Skips it. */
bool pbtxt_takes(struct pbtxt *p, char bracket);

/* A scalar value, without quotes; a longer one is truncated. */
int pbtxt_value(struct pbtxt *p, char value[PBTXT_VALUE_BYTES], struct err *e);

/* Skips a value of any kind with its contents. */
int pbtxt_skip(struct pbtxt *p, struct err *e);

#endif
