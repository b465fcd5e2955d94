/* gateway/loop/bytes.c - see bytes.h. */
#include "gateway/loop/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 512
#define KEPT_BYTES  ((size_t)16 << 10) /* capacity that an empty buffer keeps */

char *bytes_reserve(struct bytes *b, size_t n)
{
    if (b->from > 0 && b->to + n > b->capacity) {
        memmove(b->data, b->data + b->from, b->to - b->from);
        b->to -= b->from;
        b->from = 0;
    }
    if (b->to + n > b->capacity) {
        size_t wanted = b->capacity > 0 ? b->capacity : FIRST_BYTES;
        while (wanted < b->to + n)
            wanted *= 2;
        char *data = realloc(b->data, wanted);
        b->failed = b->failed || data == NULL;
        if (data == NULL)
            return NULL;
        b->data = data;
        b->capacity = wanted;
    }
    return b->data + b->to;
}

void bytes_grow(struct bytes *b, size_t n)
{
    b->to += n;
}

void bytes_append(struct bytes *b, const char *bytes, size_t n)
{
    char *at = n > 0 ? bytes_reserve(b, n) : NULL;
    if (at == NULL)
        return;
    memcpy(at, bytes, n);
    b->to += n;
}

void bytes_text(struct bytes *b, const char *text)
{
    bytes_append(b, text, strlen(text));
}

void bytes_format(struct bytes *b, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, list);
    char *at = n >= 0 ? bytes_reserve(b, (size_t)n + 1) : NULL;
    if (at != NULL)
        b->to += (size_t)vsnprintf(at, (size_t)n + 1, format, again);
    va_end(again);
    va_end(list);
}

/* Escapes one character that JSON strings must not contain. */
static void append_escape(struct bytes *b, unsigned char c)
{
    static const char letters[] = "btn\vfr"; /* 8 to 13; the fourth has none */
    if (c == '"' || c == '\\')
        bytes_format(b, "\\%c", c);
    else if (c >= 8 && c <= 13 && c != 11)
        bytes_format(b, "\\%c", letters[c - 8]);
    else
        bytes_format(b, "\\u%04x", c);
}

void bytes_json_string(struct bytes *b, const char *text, size_t bytes)
{
    size_t done = 0;
    bytes_append(b, "\"", 1);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        bytes_append(b, text + done, i - done);
        append_escape(b, c);
        done = i + 1;
    }
    bytes_append(b, text + done, bytes - done);
    bytes_append(b, "\"", 1);
}

void bytes_consume(struct bytes *b, size_t n)
{
    b->from += n;
    if (b->from < b->to)
        return;
    b->from = b->to = 0;
    if (b->capacity > KEPT_BYTES)
        bytes_free(b);
}

void bytes_free(struct bytes *b)
{
    bool failed = b->failed;
    free(b->data);
    *b = (struct bytes){.failed = failed};
}
