/* text/tokenizer/buffer.h - a growing byte string whose failure is sticky: add freely, check once. */
#ifndef TOKENIZER_BUFFER_H
#define TOKENIZER_BUFFER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer { /* zeroed = empty */
    char *data;
    size_t bytes, capacity;
    bool failed; /* an allocation failed; nothing is added any more */
};

void buffer_add(struct buffer *b, const char *data, size_t bytes);
void buffer_string(struct buffer *b, const char *string);
void buffer_format(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Code point cp in UTF-8. */
void buffer_char(struct buffer *b, int32_t cp);
/* Drop the first `bytes` bytes. */
void buffer_shift(struct buffer *b, size_t bytes);
/* Room for `bytes` more; false if that failed. */
bool buffer_reserve(struct buffer *b, size_t bytes);
int buffer_check(const struct buffer *b, struct err *e);
void buffer_free(struct buffer *b);

/* Make room for n elements of `size` bytes behind *array, which has room for *capacity. -1 and *e on failure. */
int buffer_grow_array(void **array, size_t *capacity, size_t n, size_t size, struct err *e);

#endif
