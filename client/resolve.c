/* client/resolve.c - see resolve.h. */
#include "client/resolve.h"
#include "base/clock.h"
#include "base/endpoint.h"

#include <netdb.h>
#include <stdio.h>

static void say_why(struct resolve *r, const char *what)
{
    (void)snprintf(r->why, sizeof r->why,
                   "the host name \"%.200s\" cannot be resolved: %.80s; add it to DNS or /etc/hosts, or use an address",
                   r->host, what);
}

static int start_attempt(struct resolve *r, struct err *e)
{
    r->started = seconds_now();
    r->lookup = lookup_start(r->host, e);
    return r->lookup != NULL ? 0 : -1;
}

int resolve_begin(struct resolve *r, const char *endpoint, struct err *e)
{
    r->began = seconds_now();
    if (endpoint_name(endpoint, r->host, sizeof r->host))
        return start_attempt(r, e);
    r->known = true;
    r->needs_ipv6 = endpoint_is_ipv6(endpoint);
    return 0;
}

void resolve_end(struct resolve *r)
{
    lookup_drop(r->lookup);
    r->lookup = NULL;
}

static void finish_attempt(struct resolve *r)
{
    int error = lookup_error(r->lookup);
    r->known = error == 0;
    r->needs_ipv6 = r->known && lookup_needs_ipv6(r->lookup);
    r->temporary = error == EAI_AGAIN;
    r->why[0] = '\0';
    if (error != 0)
        say_why(r, gai_strerror(error));
    resolve_end(r);
}

void resolve_late(struct resolve *r, double seconds)
{
    char what[80];
    (void)snprintf(what, sizeof what, "no name server has answered within %g s", seconds);
    say_why(r, what);
}

bool resolve_look(struct resolve *r)
{
    struct err ignored = {0}; /* without a thread now, there may be one later */
    double now = seconds_now();
    if (r->lookup != NULL && lookup_ended(r->lookup))
        finish_attempt(r);
    else if (r->lookup != NULL && r->why[0] == '\0' && now - r->started >= RESOLVE_SECONDS)
        resolve_late(r, RESOLVE_SECONDS);
    else if (r->lookup == NULL && !r->known && now - r->started >= RESOLVE_AGAIN)
        (void)start_attempt(r, &ignored);
    return r->known;
}

bool resolve_failed(const struct resolve *r)
{
    return r->why[0] != '\0' && !r->known && (!r->temporary || seconds_now() - r->began >= RESOLVE_SECONDS);
}
