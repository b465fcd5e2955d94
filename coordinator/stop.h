/* coordinator/stop.h - find stop strings in text that arrives in pieces, holding back what may still become one. */
#ifndef COORDINATOR_STOP_H
#define COORDINATOR_STOP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_strings { /* borrowed texts, none empty */
    int n;
    const char *const *text;
};

struct text_buffer { /* zeroed = empty; the owner frees data */
    char *data;      /* NUL-terminated once something is in it */
    size_t bytes, capacity;
};

int text_append(struct text_buffer *t, const char *text, size_t bytes, struct err *e);
void text_free(struct text_buffer *t);

/* Append a piece to `text`, whose first *released bytes are final. Afterwards either a stop string has been found: true is
 * returned, the text ends before it (after it if keep_stop) and is all released; or *released covers all but the longest
 * tail that begins a stop string. Once the last piece is in, release the rest by setting *released = text->bytes. */
bool stop_append(const struct stop_strings *s, struct text_buffer *text, size_t *released, const char *piece,
                 size_t bytes, bool keep_stop, struct err *e);

#endif
