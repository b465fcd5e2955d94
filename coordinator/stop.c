/* coordinator/stop.c - see stop.h. */
#include "coordinator/stop.h"

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

/* Length of the longest tail of text[from, bytes) that is a proper beginning of a stop string. */
static size_t held_back(const struct stop_strings *s, const char *text, size_t from, size_t bytes)
{
    size_t longest = 0;
    for (int i = 0; i < s->n; i++) {
        size_t most = strlen(s->text[i]) - 1;
        for (size_t n = most < bytes - from ? most : bytes - from; n > longest; n--)
            if (memcmp(text + bytes - n, s->text[i], n) == 0)
                longest = n;
    }
    return longest;
}

bool stop_append(const struct stop_strings *s, struct text_buffer *text, size_t *released, const char *piece,
                 size_t bytes, bool keep_stop, struct err *e)
{
    if (text_append(text, piece, bytes, e) != 0)
        return false;
    size_t found = text->bytes + 1, length = 0;
    for (int i = 0; i < s->n; i++) { /* the leftmost; the longest among those that begin there */
        size_t n = strlen(s->text[i]);
        const char *at = memmem(text->data + *released, text->bytes - *released, s->text[i], n);
        size_t offset = at != NULL ? (size_t)(at - text->data) : text->bytes + 1;
        if (offset < found || (offset == found && n > length && at != NULL)) {
            found = offset;
            length = n;
        }
    }
    if (found <= text->bytes) {
        text->bytes = found + (keep_stop ? length : 0);
        text->data[text->bytes] = '\0';
        *released = text->bytes;
        return true;
    }
    *released = text->bytes - held_back(s, text->data, *released, text->bytes);
    return false;
}
