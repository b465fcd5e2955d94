/* tests/support/web.h - an HTTP client that sends arbitrary bytes, and the gateway that it talks to. */
#ifndef TESTS_SUPPORT_WEB_H
#define TESTS_SUPPORT_WEB_H

#include "tests/support/process.h"

#include <stdbool.h>
#include <stddef.h>

#define WEB_SECONDS process_patience(30) /* for steps that should take none */

/* lockstep-gateway as a process. */
struct web_gateway {
    struct process p;
    char address[64]; /* "127.0.0.1:PORT" */
};

/* Starts it on a free port and waits until it listens and, if `ready`, accepts requests. more: further options, NULL at
 * the end. Dies on failure. */
void web_start(struct web_gateway *g, bool ready, const char *const *more);

/* Sends SIGTERM; returns the exit status. */
int web_stop(struct web_gateway *g);

/* Has the gateway written this to standard error? Waits for it. */
bool web_says(struct web_gateway *g, const char *part);

struct web_answer {
    int status; /* 0: no answer */
    char *head; /* NUL-terminated, the status line included */
    char *body; /* whole, NUL-terminated; chunks are joined */
    size_t bytes;
    bool closed; /* the connection has ended after it */
};

/* Opens a connection; dies on failure. */
int web_connect(const struct web_gateway *g);
void web_say(int fd, const char *bytes, size_t n);
void web_say_text(int fd, const char *text);

/* Sends "POST path" with this body; fields: further lines of the head, "" or each with CRLF. */
void web_post(int fd, const char *path, const char *fields, const char *body);

/* Reads the next answer. look: seconds to wait for the connection's end after it (0: none). */
void web_hear(int fd, struct web_answer *a, double look);
void web_free(struct web_answer *a);

/* Sends a request on a connection of its own, and reads the answer. */
void web_ask(const struct web_gateway *g, const char *method, const char *path, const char *fields, const char *body,
             struct web_answer *a);

/* Reads until the text has come; false: it did not, or the connection ended. The bytes read are appended to `all` (of
 * all_bytes, NUL-terminated). */
bool web_await(int fd, const char *text, char *all, size_t all_bytes);

/* Tells whether the other side ends the connection within the time. Bytes before that are dropped. */
bool web_ends(int fd, double seconds);

#endif
