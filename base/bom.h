/* base/bom.h - how a text begins: with the byte order mark that some editors put in front of it, or not as a text. */
#ifndef BASE_BOM_H
#define BASE_BOM_H

#include "base/err.h"

#include <stddef.h>

/* Returns the length of a UTF-8 mark at the beginning of a text, 3 or 0; ERR_INPUT and -1 for a mark of UTF-16 or
 * UTF-32, which are not supported, and for files that are no texts: compressed ones, Parquet. `what` names the text in
 * messages. */
int bom_bytes(const char *text, size_t bytes, const char *what, struct err *e);

#endif
