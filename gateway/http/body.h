/* gateway/http/body.h - an incremental, strict parser of a request's body, plain or chunked. Pure. */
#ifndef HTTP_BODY_H
#define HTTP_BODY_H

#include "gateway/http/head.h"
#include "gateway/loop/bytes.h"

struct http_body {
    enum http_framing framing;
    uint64_t left;                                                   /* of the length, or of the chunk */
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER } state; /* HTTP_CHUNKED */
    size_t most;                                                     /* bytes of the whole body */
    size_t framed;                                                   /* bytes of trailers */
    bool done;
};

/* -1: refused, it is too large. */
int http_body_begin(struct http_body *b, const struct http_head *h, size_t most, struct http_refusal *r);

/* Returns the bytes of text consumed for the body; the content is appended to `to`. b->done: the rest is the next
 * request's. Refused: r->status is set. An incomplete line of the framing is not consumed. */
size_t http_body_feed(struct http_body *b, const char *text, size_t bytes, struct bytes *to, struct http_refusal *r);

#endif
