/* gateway/http/body.c - see body.h. */
#include "gateway/http/body.h"

#include <string.h>

#define LINE_BYTES    4096 /* of a chunk's size with its extensions, or of a trailer */
#define TRAILER_BYTES 16384
#define SIZE_DIGITS   8

static size_t refuse(struct http_refusal *r, int status, const char *message)
{
    *r = (struct http_refusal){status, message};
    return 0;
}

int http_body_begin(struct http_body *b, const struct http_head *h, size_t most, struct http_refusal *r)
{
    *b = (struct http_body){.framing = h->framing, .left = h->length, .most = most};
    b->done = h->framing == HTTP_NO_BODY || (h->framing == HTTP_LENGTH && h->length == 0);
    if (h->framing != HTTP_LENGTH || h->length <= most)
        return 0;
    (void)refuse(r, 413, "the body is too large");
    return -1;
}

static size_t take_data(struct http_body *b, const char *text, size_t bytes, struct bytes *to)
{
    size_t n = b->left < bytes ? (size_t)b->left : bytes;
    bytes_append(to, text, n);
    b->left -= n;
    return n;
}

/* Bytes of the line at text with its CRLF; 0: it is incomplete, or refused. */
static size_t find_line(const char *text, size_t bytes, struct http_refusal *r)
{
    const char *end = memchr(text, '\n', bytes < LINE_BYTES ? bytes : LINE_BYTES);
    if (end == NULL)
        return bytes < LINE_BYTES ? 0 : refuse(r, 400, "a line between chunks is too long");
    size_t n = (size_t)(end - text) + 1;
    if (n < 2 || text[n - 2] != '\r' || memchr(text, '\r', n) != text + n - 2 || memchr(text, '\0', n) != NULL)
        return refuse(r, 400, "a line between chunks does not end with CRLF alone");
    return n;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "1a2b" or "1a2b;extension", which is ignored. */
static size_t take_size(struct http_body *b, const char *text, size_t bytes, size_t in_body, struct http_refusal *r)
{
    size_t n = find_line(text, bytes, r), i = 0;
    uint64_t size = 0;
    if (n == 0)
        return 0;
    for (; i <= SIZE_DIGITS && hex_digit(text[i]) >= 0; i++)
        size = 16 * size + (uint64_t)hex_digit(text[i]);
    if (i == 0 || i > SIZE_DIGITS || (text[i] != '\r' && text[i] != ';'))
        return refuse(r, 400, "a chunk's size is not a hexadecimal number");
    for (; i < n - 2; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f)
            return refuse(r, 400, "a chunk's extension has a control character");
    if (size > b->most - in_body)
        return refuse(r, 413, "the body is too large");
    b->framed += n > 12 ? n - 12 : 0; /* extensions are bounded as trailers are */
    if (b->framed > TRAILER_BYTES)
        return refuse(r, 400, "the extensions of the chunks are too long");
    b->left = size;
    b->state = size > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    return n;
}

/* Fields after the last chunk (trailers): read as strictly, and dropped. */
static size_t take_trailer(struct http_body *b, const char *text, size_t bytes, struct http_refusal *r)
{
    char line[LINE_BYTES + 1];
    struct http_field f;
    size_t n = find_line(text, bytes, r);
    if (n == 0)
        return 0;
    b->framed += n;
    b->done = n == 2;
    memcpy(line, text, n);
    line[n - 2] = '\0';
    if (b->framed > TRAILER_BYTES)
        return refuse(r, 431, "the trailers are too long");
    return n == 2 || http_field_read(line, &f) == 0 ? n : refuse(r, 400, "a trailer is not \"NAME: VALUE\"");
}

static size_t take_end(struct http_body *b, const char *text, size_t bytes, struct http_refusal *r)
{
    if (text[0] != '\r' || (bytes > 1 && text[1] != '\n'))
        return refuse(r, 400, "a chunk is longer than its size");
    b->state = bytes > 1 ? CHUNK_SIZE : CHUNK_END;
    return bytes > 1 ? 2 : 0;
}

/* One step of the framing; 0: more bytes are needed, or the body is refused. */
static size_t take_chunked(struct http_body *b, const char *text, size_t bytes, struct bytes *to,
                           struct http_refusal *r)
{
    switch (b->state) {
    case CHUNK_SIZE:
        return take_size(b, text, bytes, bytes_count(to), r);
    case CHUNK_DATA: {
        size_t n = take_data(b, text, bytes, to);
        b->state = b->left > 0 ? CHUNK_DATA : CHUNK_END;
        return n;
    }
    case CHUNK_END:
        return take_end(b, text, bytes, r);
    case CHUNK_TRAILER:
        return take_trailer(b, text, bytes, r);
    }
    return 0;
}

size_t http_body_feed(struct http_body *b, const char *text, size_t bytes, struct bytes *to, struct http_refusal *r)
{
    size_t done = 0;
    if (b->framing == HTTP_LENGTH) {
        done = take_data(b, text, bytes, to);
        b->done = b->left == 0;
        return done;
    }
    while (!b->done && done < bytes) {
        size_t n = take_chunked(b, text + done, bytes - done, to, r);
        if (n == 0)
            break;
        done += n;
    }
    return done;
}
