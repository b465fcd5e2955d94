/* text/stop.c - see stop.h. */
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

static void find_borders(const char *text, size_t bytes, uint16_t *border)
{
    size_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < bytes; i++) {
        while (k > 0 && text[i] != text[k])
            k = border[k - 1];
        k += text[i] == text[k];
        border[i] = (uint16_t)k;
    }
}

struct stop_strings *stop_open(int n, const char *const *text, struct err *e)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += strlen(text[i]);
    struct stop_strings *s = err_calloc(e, 1, sizeof *s + bytes * sizeof(uint16_t) + bytes + (size_t)n, "stop strings");
    if (s == NULL)
        return NULL;
    uint16_t *border = (uint16_t *)(s + 1);
    char *copy = (char *)(border + bytes);
    for (s->n = 0; s->n < n; s->n++) {
        size_t length = strlen(text[s->n]);
        memcpy(copy, text[s->n], length);
        find_borders(copy, length, border);
        s->string[s->n] = (struct stop_string){copy, length, border};
        copy += length + 1;
        border += length;
    }
    return s;
}

void stop_close(struct stop_strings *s)
{
    free(s);
}

/* Continues with a piece. Returns the number of its bytes up to the end of the first complete match, or 0. */
static size_t advance(const struct stop_string *s, uint16_t *matched, const char *piece, size_t bytes)
{
    size_t k = *matched, complete = 0;
    for (size_t i = 0; i < bytes && complete == 0; i++) {
        while (k > 0 && piece[i] != s->text[k])
            k = s->border[k - 1];
        k += piece[i] == s->text[k];
        if (k == s->bytes)
            complete = i + 1;
    }
    *matched = (uint16_t)k;
    return complete;
}

bool stop_append(const struct stop_strings *s, struct stop_state *state, struct text_buffer *text, size_t *released,
                 const char *piece, size_t bytes, bool keep_stop, struct err *e)
{
    size_t before = text->bytes, found = SIZE_MAX, length = 0, held = 0;
    if (text_append(text, piece, bytes, e) != 0)
        return false;
    for (int i = 0; s != NULL && i < s->n; i++) { /* the leftmost; the longest among those that begin there */
        const struct stop_string *one = &s->string[i];
        size_t complete = advance(one, &state->matched[i], piece, bytes);
        size_t begin = complete > 0 ? before + complete - one->bytes : SIZE_MAX;
        held = state->matched[i] > held ? state->matched[i] : held;
        if (complete == 0 || begin > found || (begin == found && one->bytes < length))
            continue;
        found = begin;
        length = one->bytes;
        state->found = i + 1;
    }
    if (found != SIZE_MAX) {
        text->bytes = found + (keep_stop ? length : 0);
        text->data[text->bytes] = '\0';
        *released = text->bytes;
        return true;
    }
    *released = text->bytes - held;
    return false;
}
