/* base/text_buffer.c - see text_buffer.h. */
#include "base/text_buffer.h"

#include <stdlib.h>
#include <string.h>

int text_append(struct text_buffer *t, const char *text, size_t bytes, struct err *e)
{
    if (t->bytes + bytes + 1 > t->capacity) {
        size_t capacity = 2 * (t->bytes + bytes) + 64;
        char *data = realloc(t->data, capacity);
        if (data == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: a text of %zu bytes", capacity);
        t->data = data;
        t->capacity = capacity;
    }
    if (bytes > 0) /* text may be NULL then */
        memcpy(t->data + t->bytes, text, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
    return 0;
}

void text_free(struct text_buffer *t)
{
    free(t->data);
    *t = (struct text_buffer){0};
}
