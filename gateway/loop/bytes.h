/* gateway/loop/bytes.h - a byte buffer that is appended at the end and consumed from the front. Running out of memory
 * is noted, not reported at every append: the sender checks once. */
#ifndef LOOP_BYTES_H
#define LOOP_BYTES_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data;
    size_t from, to, capacity; /* data[from, to) is valid */
    bool failed;               /* out of host memory: something is missing */
};

static inline size_t bytes_count(const struct bytes *b)
{
    return b->to - b->from;
}

static inline char *bytes_start(const struct bytes *b)
{
    return b->data != NULL ? b->data + b->from : NULL;
}

/* Room for n more bytes after `to`; NULL (and failed): out of memory. bytes_grow adds the bytes written there. */
char *bytes_reserve(struct bytes *b, size_t n);
void bytes_grow(struct bytes *b, size_t n);

void bytes_append(struct bytes *b, const char *bytes, size_t n);
void bytes_text(struct bytes *b, const char *text);
void bytes_format(struct bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends the text as a JSON string, with quotes. It must be UTF-8. */
void bytes_json_string(struct bytes *b, const char *text, size_t bytes);

/* Drops the first n bytes; an empty buffer frees large memory. */
void bytes_consume(struct bytes *b, size_t n);

void bytes_free(struct bytes *b);

#endif
