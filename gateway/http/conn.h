/* gateway/http/conn.h - one connection, for server.c. */
#ifndef HTTP_CONN_H
#define HTTP_CONN_H

#include "gateway/http/server.h"

#define CONN_PIECE_BYTES ((size_t)128 << 10) /* read at once */

/* Takes the descriptor over; NULL: out of memory. */
struct http_conn *conn_open(struct http_server *s, int fd);

/* Now; the handler hears of it if it has the request. left: that nobody wanted it so. */
void conn_close(struct http_conn *c, bool left);

/* The first of those with a large body is told to the handler. */
void conn_take_turn(struct http_server *s);

/* Send what there is to send; then the next request. */
void conn_go_on(struct http_conn *c);

/* Time is over for the head; for the body; between requests; for a client that takes nothing; for one that goes on
 * sending to a connection that has ended. */
void conn_head_late(struct due *d);
void conn_body_late(struct due *d);
void conn_idle(struct due *d);
void conn_stalled(struct due *d);
void conn_lingered(struct due *d);

/* server.c: a connection less. */
void server_lost_one(struct http_server *s);

#endif
