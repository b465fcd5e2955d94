/* gateway/http/server.h - an HTTP/1.1 server on the loop: connections, requests one after the other, answers whole or
 * in pieces, and clients that leave, stall or send garbage. It does not interpret the requests. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "gateway/http/body.h"
#include "gateway/http/head.h"
#include "gateway/http/listen.h"
#include "gateway/loop/bytes.h"
#include "gateway/loop/loop.h"

#define HTTP_MAX_LISTENERS 8
#define HTTP_LARGE_BYTES   ((size_t)64 << 10) /* larger bodies take time to parse: one per round */

struct http_conn;

/* The program's callbacks for requests. */
struct http_handler {
    void *context;
    /* A request is complete. The handler answers now or later, with http_answer, or http_begin to http_end. */
    void (*request)(void *context, struct http_conn *c);
    /* The answer is complete (sent or buffered), or its client is gone (`left`): c must no longer be used. Called once
     * for each request passed to `request`. */
    void (*over)(void *context, struct http_conn *c, bool left);
    /* Appends to `to` the body of the answer to a request refused before it reaches the handler. Of c->head as much is
     * set as was read; it may be NULL. */
    void (*refused)(void *context, const struct http_conn *c, const struct http_refusal *r, struct bytes *to);
};

struct http_setup {
    size_t max_body;     /* bytes */
    size_t max_backlog;  /* limit of unread bytes of a stream */
    size_t max_buffered; /* total bytes of requests and unread answers */
    int max_connections;
    double head_seconds, body_seconds, idle_seconds;
};

struct http_listener {
    struct fd_watch watch;
    struct http_server *server;
    char shown[HTTP_ADDRESS_BYTES];
    const char *path; /* of a Unix socket */
};

struct http_server {
    struct loop *loop;
    struct http_setup setup;
    struct http_handler handler;
    struct http_listener listener[HTTP_MAX_LISTENERS];
    int n_listeners, n_connections;
    bool paused; /* accepting is paused: no connections are left */
    size_t n_buffered;
    struct http_conn *first, *dirty;          /* all; those that have something to send */
    struct http_conn *turn_first, *turn_last; /* those with a complete large body */
    struct due_list heads, bodies, idle, stalls, lingers;
    char *scratch; /* the last read */
    struct loop_step flush, turns;
    bool closing;
    long long n_accepted, n_refused, n_slow; /* connections; requests that were not HTTP; clients that did not read */
};

enum http_state { HTTP_READS_HEAD, HTTP_READS_BODY, HTTP_ANSWERS, HTTP_ENDS, HTTP_LINGERS };

struct http_conn {
    struct fd_watch watch;
    struct http_server *server;
    struct http_conn *next, *previous, *next_dirty, *next_turn;
    enum http_state state;
    bool is_dirty, is_told; /* the handler has the request */
    bool waits_turn;        /* its large body is complete */
    bool streams, chunked;  /* of the answer */
    bool keep, bodiless;    /* HEAD */
    bool blocked;           /* the socket's buffer is full */
    bool half;              /* the client has closed its side */
    struct due due;
    struct bytes in, out, content;
    size_t held; /* their size, this connection's part of n_buffered */
    size_t scanned;
    char *text; /* of the head */
    struct http_head *head;
    struct http_body body;
    int status;       /* of the answer */
    size_t bytes_out; /* of the answer's body */
    size_t piece;     /* offset in `out` at which the open piece begins */
    char peer[64];    /* address */
    void *user;       /* the handler's */
};

/* listen: [n] as http_listen takes them. */
int http_server_open(struct http_server *s, struct loop *l, const struct http_setup *setup,
                     const struct http_handler *handler, const char *const *listen, int n, struct err *e);

/* Stops accepting and closes idle connections; the others close after their answers. */
void http_server_drain(struct http_server *s);

/* At once. */
void http_server_close(struct http_server *s);

/* Sends a whole answer. fields: further header lines, each with CRLF; "". type: of the content; NULL: there is no
 * content. */
void http_answer(struct http_conn *c, int status, const char *fields, const char *type, const char *body, size_t bytes);

/* An answer in pieces. With HTTP/1.0 it ends with the connection. */
void http_begin(struct http_conn *c, int status, const char *fields, const char *type);
void http_write(struct http_conn *c, const char *bytes, size_t n);
void http_end(struct http_conn *c);

/* The same without copying: a piece is appended to http_out between http_open_piece and http_close_piece. */
struct bytes *http_open_piece(struct http_conn *c);
void http_close_piece(struct http_conn *c);

/* Closes the connection in the middle of its answer. */
void http_drop(struct http_conn *c);

#endif
