/* base/text_buffer.h - a text that grows. */
#ifndef BASE_TEXT_BUFFER_H
#define BASE_TEXT_BUFFER_H

#include "base/err.h"

#include <stddef.h>

struct text_buffer { /* zeroed = empty; the owner frees data */
    char *data;      /* NUL-terminated once something is in it */
    size_t bytes, capacity;
};

int text_append(struct text_buffer *t, const char *text, size_t bytes, struct err *e);
void text_free(struct text_buffer *t);

#endif
