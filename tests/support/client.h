/* tests/support/client.h - lockstep-client against a fake_server. */
#ifndef TESTS_SUPPORT_CLIENT_H
#define TESTS_SUPPORT_CLIENT_H

#include "tests/support/fake_server.h"
#include "tests/support/process.h"

#define CLIENT         "lockstep-client"
#define CLIENT_SECONDS 20.0 /* for steps that should take none */

#define CLIENT_WORDS(...) \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

/* Starts the client. words: NULL at the end; "E" is the server's endpoint. setup: NULL, or everything except the
 * program. */
void client_start(struct process *p, const struct fake_server *s, const struct process_setup *setup,
                  const char *const *words);

/* Returns the last message other than a cancel that the server received; NULL: none. Borrowed. */
const json_t *client_last_request(const struct fake_server *s);

/* out: the whole standard output; NULL: not checked. words: must be in standard error, which is one line; NULL: it is
 * empty. */
void client_check_output(const struct process *p, const char *out, const char *words);

#endif
