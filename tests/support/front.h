/* tests/support/front.h - a fake server with lockstep-gateway in front of it, to check the translation of requests and
 * answers. */
#ifndef TESTS_SUPPORT_FRONT_H
#define TESTS_SUPPORT_FRONT_H

#include "tests/support/fake_server.h"
#include "tests/support/web.h"

/* Starts a server of this model (NULL: the fake one's name) that is ready; ends it. */
void front_serve(struct fake_server *s, const char *model);
void front_end(struct fake_server *s);

void front_nap(double seconds); /* less than one */

/* Starts a server that is ready, and a gateway for it alone. */
void front_begin(struct fake_server *s, struct web_gateway *g);

/* A case: the gateway ends with status 0. */
void front_stop(struct web_gateway *g);

/* The same, then the server's end. Returns the program's status. */
int front_finish(struct fake_server *s, struct web_gateway *g);

/* Returns the n-th message of an op (NULL: generate) from the end; waits for it. NULL: it did not arrive. Borrowed. */
const json_t *front_await(struct fake_server *s, const char *op, int from_end);

/* Checks the answer, within a case. */
void front_check(const struct web_answer *a, int status, const char *part);

/* A case: a posted body becomes this message to the server, apart from its request_id, and is answered with 200 and all
 * of the parts (NULL at the end) in this order. fields: header lines, each with CRLF. */
void front_passes(struct fake_server *s, const struct web_gateway *g, const char *path, const char *fields,
                  const char *body, const char *message, const char *const *parts);

/* A case: the request is refused. */
void front_refuses(const struct web_gateway *g, const char *path, const char *fields, const char *body, int status,
                   const char *const *parts);

#define FRONT_PARTS(...)  \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

#endif
