/* base/bom.h - the byte order mark that some editors put in front of a text. */
#ifndef BASE_BOM_H
#define BASE_BOM_H

#include "base/err.h"

#include <stddef.h>

/* The number of bytes that UTF-8's mark takes at a text's beginning: 3 or 0. ERR_INPUT and -1 for a mark of UTF-16 or
 * UTF-32, which are not read. `what` names the text in messages. */
int bom_bytes(const char *text, size_t bytes, const char *what, struct err *e);

#endif
