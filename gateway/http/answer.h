/* gateway/http/answer.h - the writing of answers, for conn.c. */
#ifndef HTTP_ANSWER_H
#define HTTP_ANSWER_H

#include "gateway/http/server.h"

/* Appends headers and body to the connection's output. */
void answer_whole(struct http_conn *c, int status, const char *fields, const char *type, const char *body,
                  size_t bytes);

#endif
