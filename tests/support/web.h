/* tests/support/web.h - an HTTP client that sends arbitrary bytes, and the gateway that it talks to. */
#ifndef TESTS_SUPPORT_WEB_H
#define TESTS_SUPPORT_WEB_H

#include "tests/support/process.h"

#include <stdbool.h>
#include <stddef.h>

#define WEB_SECONDS process_patience(30) /* for what should take none */

/* lockstep-gateway as a process. */
struct web_gateway {
    struct process p;
    char address[64]; /* "127.0.0.1:PORT" */
};

/* Start it on a free port and wait until it listens and, if `ready`, takes requests. more: further options, NULL at the
 * end. Dies on failure. */
void web_start(struct web_gateway *g, bool ready, const char *const *more);

/* SIGTERM; returns the exit status. */
int web_stop(struct web_gateway *g);

struct web_answer {
    int status; /* 0: none came */
    char *head; /* NUL-terminated, the status line included */
    char *body; /* whole, NUL-terminated; chunks are joined */
    size_t bytes;
    bool closed; /* the connection has ended behind it */
};

/* A connection; dies on failure. */
int web_connect(const struct web_gateway *g);
void web_say(int fd, const char *bytes, size_t n);
void web_say_text(int fd, const char *text);

/* "POST path" with this body; fields: further lines of the head, "" or each with CRLF. */
void web_post(int fd, const char *path, const char *fields, const char *body);

/* The next answer. look: whether the connection ends behind it is waited for, too, this long (seconds; 0: not). */
void web_hear(int fd, struct web_answer *a, double look);
void web_free(struct web_answer *a);

/* A request on a connection of its own. */
void web_ask(const struct web_gateway *g, const char *method, const char *path, const char *fields, const char *body,
             struct web_answer *a);

/* Read until the text has come; false: it did not, or the connection ended. The bytes read are appended to `all` (of
 * all_bytes, NUL-terminated). */
bool web_await(int fd, const char *text, char *all, size_t all_bytes);

/* Has the other side ended the connection within the time? What comes before is dropped. */
bool web_ends(int fd, double seconds);

#endif
