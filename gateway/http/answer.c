/* gateway/http/answer.c - see answer.h and server.h. */
#include "gateway/http/answer.h"
#include "gateway/http/conn.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SIZE_BYTES 10 /* of a chunk's size: eight digits, CRLF */

static const struct {
    int status;
    const char *phrase;
} phrases[] = {
    {200, "OK"},
    {202, "Accepted"},
    {204, "No Content"},
    {207, "Multi-Status"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {424, "Failed Dependency"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

static const char *phrase_of(int status)
{
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Other";
}

/* "Tue, 24 Nov 2026 03:15:00 GMT", made once a second. */
static const char *date(void)
{
    static char text[40];
    static time_t made;
    struct tm utc;
    time_t now = time(NULL);
    if (now != made && gmtime_r(&now, &utc) != NULL)
        (void)strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    made = now;
    return text;
}

static void mark_dirty(struct http_conn *c)
{
    if (c->is_dirty || c->watch.fd < 0)
        return;
    c->is_dirty = true;
    c->next_dirty = c->server->dirty;
    c->server->dirty = c;
}

static void write_head(struct http_conn *c, int status, const char *fields, const char *type)
{
    c->status = status;
    bytes_format(&c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, phrase_of(status), date());
    if (type != NULL)
        bytes_format(&c->out, "Content-Type: %s\r\n", type);
    if (!c->keep)
        bytes_text(&c->out, "Connection: close\r\n");
    bytes_text(&c->out, fields);
}

/* The handler is done with the request. */
static void finish_answer(struct http_conn *c)
{
    struct http_handler *h = &c->server->handler;
    c->state = HTTP_ENDS;
    if (c->is_told) {
        c->is_told = false;
        h->over(h->context, c, false);
    }
    mark_dirty(c);
}

void answer_whole(struct http_conn *c, int status, const char *fields, const char *type, const char *body, size_t bytes)
{
    write_head(c, status, fields, type);
    if (status != 204)
        bytes_format(&c->out, "Content-Length: %zu\r\n", bytes);
    bytes_append(&c->out, "\r\n", 2);
    c->bytes_out = c->bodiless ? 0 : bytes;
    bytes_append(&c->out, body, c->bytes_out);
    mark_dirty(c);
}

void http_answer(struct http_conn *c, int status, const char *fields, const char *type, const char *body, size_t bytes)
{
    answer_whole(c, status, fields, type, body, bytes);
    finish_answer(c);
}

void http_begin(struct http_conn *c, int status, const char *fields, const char *type)
{
    c->streams = true;
    c->chunked = c->head->minor == 1;
    c->keep = c->keep && c->chunked;
    write_head(c, status, fields, type);
    bytes_text(&c->out, c->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    mark_dirty(c);
}

struct bytes *http_open_piece(struct http_conn *c)
{
    c->piece = bytes_count(&c->out);
    if (c->chunked)
        bytes_append(&c->out, "00000000\r\n", SIZE_BYTES);
    return &c->out;
}

/* Fills in its size. An empty piece must not become a chunk: that would be the end. */
void http_close_piece(struct http_conn *c)
{
    static const char digits[] = "0123456789abcdef";
    size_t head = c->chunked ? SIZE_BYTES : 0, all = bytes_count(&c->out);
    if (c->out.failed || all < c->piece + head) {
        mark_dirty(c);
        return;
    }
    size_t n = all - c->piece - head;
    c->bytes_out += n;
    if (n == 0 || c->bodiless)
        c->out.to -= all - c->piece;
    else if (c->chunked) {
        char *size = bytes_start(&c->out) + c->piece;
        for (int i = 7; i >= 0; i--, n >>= 4)
            size[i] = digits[n & 15];
        bytes_append(&c->out, "\r\n", 2);
    }
    mark_dirty(c);
}

void http_write(struct http_conn *c, const char *bytes, size_t n)
{
    bytes_append(http_open_piece(c), bytes, n);
    http_close_piece(c);
}

void http_end(struct http_conn *c)
{
    if (c->chunked && !c->bodiless)
        bytes_text(&c->out, "0\r\n\r\n");
    finish_answer(c);
}

void http_drop(struct http_conn *c)
{
    conn_close(c, false);
}
