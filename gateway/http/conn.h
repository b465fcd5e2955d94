/* gateway/http/conn.h - one connection, for server.c. */
#ifndef HTTP_CONN_H
#define HTTP_CONN_H

#include "gateway/http/server.h"

#define CONN_PIECE_BYTES ((size_t)128 << 10) /* per read */

/* Takes over the descriptor; NULL: out of memory. */
struct http_conn *conn_open(struct http_server *s, int fd);

/* Closes at once; the handler is told if it has the request. left: the client is gone. */
void conn_close(struct http_conn *c, bool left);

/* Passes the first of the complete large requests to the handler. */
void conn_take_turn(struct http_server *s);

/* Sends pending bytes, then goes on with the next request. */
void conn_go_on(struct http_conn *c);

/* Timeouts: for the headers; for the body; between requests; for a client that does not read; for one that goes on
 * sending to a closed connection. */
void conn_head_late(struct due *d);
void conn_body_late(struct due *d);
void conn_idle(struct due *d);
void conn_stalled(struct due *d);
void conn_lingered(struct due *d);

/* server.c: one connection less. */
void server_lost_one(struct http_server *s);

#endif
