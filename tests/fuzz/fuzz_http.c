/* tests/fuzz/fuzz_http.c - libFuzzer target for bytes that a client sends to the gateway: a head and a body, in pieces
 * of a size that the input selects. The split into pieces does not change their meaning. */
#include "gateway/http/body.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BODY 4096

struct outcome {
    int status; /* of the refusal */
    size_t used, body, n_fields;
    bool done;
};

/* Finds the head of text, given in pieces; 0: there is none. */
static size_t find_head(const char *text, size_t n, size_t piece, struct http_refusal *r)
{
    size_t scanned = 0, bytes = 0;
    for (size_t to = piece; bytes == 0 && r->status == 0; to += piece) {
        bytes = http_head_find(text, to < n ? to : n, &scanned, r);
        if (to >= n)
            break;
    }
    return bytes;
}

static void feed(struct outcome *o, struct http_body *b, const char *text, size_t n, size_t piece,
                 struct http_refusal *r)
{
    struct bytes content = {0};
    size_t from = 0;
    for (size_t to = piece;; to += piece) {
        size_t end = to < n ? to : n;
        from += b->done ? 0 : http_body_feed(b, text + from, end - from, &content, r);
        must(from <= end && bytes_count(&content) <= MOST_BODY);
        if (r->status != 0 || b->done || end == n)
            break;
    }
    o->used = r->status == 0 && b->done ? from : 0;
    o->body = r->status == 0 && b->done ? bytes_count(&content) : 0;
    o->done = r->status == 0 && b->done;
    bytes_free(&content);
}

static struct outcome read_request(const char *text, size_t n, size_t piece)
{
    struct http_refusal r = {0};
    struct outcome o = {0};
    struct http_head *h = calloc(1, sizeof *h);
    size_t bytes = find_head(text, n, piece, &r);
    char *head = bytes > 0 ? malloc(bytes) : NULL;
    struct http_body b;
    must(h != NULL && (bytes == 0 || head != NULL));
    if (bytes > 0) {
        memcpy(head, text, bytes);
        if (http_head_read(h, head, bytes, &r) == 0 && http_body_begin(&b, h, MOST_BODY, &r) == 0)
            feed(&o, &b, text + bytes, n - bytes, piece, &r);
        o.n_fields = r.status == 0 ? h->n_fields : 0;
    }
    o.status = r.status;
    free(head);
    free(h);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    const char *text = (const char *)data + 1;
    struct outcome whole = read_request(text, n - 1, n), parts = read_request(text, n - 1, 1 + data[0] % 32);
    must(whole.status == parts.status && whole.used == parts.used && whole.body == parts.body);
    must(whole.done == parts.done && whole.n_fields == parts.n_fields);
    return 0;
}
