/* text/tokenizer/buffer.c - see buffer.h. */
#include "text/tokenizer/buffer.h"

#include "text/tokenizer/unicode.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool buffer_reserve(struct buffer *b, size_t bytes)
{
    if (b->failed)
        return false;
    if (bytes <= b->capacity - b->bytes)
        return true;
    size_t need = b->bytes + bytes, capacity = b->capacity > 0 ? b->capacity : 64;
    while (capacity < need && capacity < SIZE_MAX / 4)
        capacity *= 2;
    char *data = need < SIZE_MAX / 4 ? realloc(b->data, capacity) : NULL;
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buffer_add(struct buffer *b, const char *data, size_t bytes)
{
    if (bytes == 0 || !buffer_reserve(b, bytes))
        return;
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

void buffer_string(struct buffer *b, const char *string)
{
    buffer_add(b, string, strlen(string));
}

void buffer_format(struct buffer *b, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buffer_add(b, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void buffer_char(struct buffer *b, int32_t cp)
{
    char text[4];
    buffer_add(b, text, utf8_put(text, cp));
}

void buffer_shift(struct buffer *b, size_t bytes)
{
    if (bytes == 0)
        return;
    memmove(b->data, b->data + bytes, b->bytes - bytes);
    b->bytes -= bytes;
}

int buffer_check(const struct buffer *b, struct err *e)
{
    return b->failed ? ERR(e, ERR_MEMORY, "out of host memory: tokenizer text of more than %zu bytes", b->bytes) : 0;
}

void buffer_free(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){0};
}

int buffer_grow_array(void **array, size_t *capacity, size_t n, size_t size, struct err *e)
{
    if (n <= *capacity)
        return 0;
    size_t more = *capacity > 0 ? *capacity : 32;
    while (more < n && more < SIZE_MAX / 4)
        more *= 2;
    void *grown = more < SIZE_MAX / 4 / size ? realloc(*array, more * size) : NULL;
    if (grown == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: tokenizer array of %zu x %zu bytes", n, size);
    *array = grown;
    *capacity = more;
    return 0;
}
