/* gateway/http/head.h - a strict parser of an HTTP/1.1 request's headers (RFC 9112): anything that two programs in a
 * chain could read differently is refused (request smuggling). Pure. */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_FIELDS 128
#define HTTP_HEAD_BYTES ((size_t)64 << 10)

/* The reason for refusing a request; the connection ends with the answer. status 0: not refused. */
struct http_refusal {
    int status;
    const char *message; /* literal */
};

enum http_framing { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED };

struct http_field {
    const char *name, *value; /* the name in lower case; the value without blanks around it */
};

struct http_head {
    const char *method;
    char *path;        /* decoded: "%2F" is "/" */
    const char *query; /* undecoded, after the "?"; "" */
    int minor;         /* of HTTP/1.x: 0 or 1 */
    struct http_field field[HTTP_MAX_FIELDS];
    size_t n_fields;
    enum http_framing framing;
    uint64_t length; /* HTTP_LENGTH */
    bool keep;       /* the connection stays open */
    bool expects;    /* "100-continue" */
};

/* Bytes of the headers that begin at text, including the empty line; 0: incomplete. *scanned: bytes already searched, 0
 * at first. A line that does not end with CRLF, a NUL, and more than HTTP_HEAD_BYTES are refused. */
size_t http_head_find(const char *text, size_t bytes, size_t *scanned, struct http_refusal *r);

/* Parses the headers found by http_head_find. text is modified and must outlive h. -1: refused. */
int http_head_read(struct http_head *h, char *text, size_t bytes, struct http_refusal *r);

/* The value of a field (its name in lower case), the first of several; NULL: there is none. */
const char *http_head_get(const struct http_head *h, const char *name);

/* A field line of headers or trailers: "name: value", NUL-terminated, no line end. -1: malformed. */
int http_field_read(char *line, struct http_field *f);

#endif
