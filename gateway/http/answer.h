/* gateway/http/answer.h - how answers are written, for conn.c. */
#ifndef HTTP_ANSWER_H
#define HTTP_ANSWER_H

#include "gateway/http/server.h"

/* Head and body into the connection's output. */
void answer_whole(struct http_conn *c, int status, const char *fields, const char *type, const char *body,
                  size_t bytes);

#endif
