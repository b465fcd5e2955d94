/* base/lookup.c - see lookup.h. Nothing can interrupt getaddrinfo: a dropped lookup lives until its thread ends. */
#include "base/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct lookup {
    atomic_int n_owners; /* the caller and the thread; the last one frees it */
    atomic_bool ended;   /* the thread writes nothing after it */
    int fd, error;
    bool needs_ipv6;
    char host[256];
};

void lookup_drop(struct lookup *l)
{
    if (l == NULL || atomic_fetch_sub(&l->n_owners, 1) > 1)
        return;
    (void)close(l->fd);
    free(l);
}

static void *resolve_name(void *argument)
{
    struct lookup *l = argument;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const uint64_t one = 1;
    struct addrinfo *list = NULL;
    l->error = getaddrinfo(l->host, NULL, &hints, &list);
    l->needs_ipv6 = true;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next)
        if (a->ai_family == AF_INET)
            l->needs_ipv6 = false;
    if (list != NULL)
        freeaddrinfo(list);
    atomic_store(&l->ended, true);
    (void)!write(l->fd, &one, sizeof one); /* cannot fail: it is the only one */
    lookup_drop(l);
    return NULL;
}

/* Signals are the other threads' business. */
static int start_thread(struct lookup *l)
{
    sigset_t all, before;
    pthread_t thread;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&thread, NULL, resolve_name, l);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0)
        (void)pthread_detach(thread);
    return status;
}

struct lookup *lookup_start(const char *host, struct err *e)
{
    struct lookup *l = err_calloc(e, 1, sizeof *l, "a lookup of a host");
    if (l == NULL)
        return NULL;
    (void)snprintf(l->host, sizeof l->host, "%s", host);
    atomic_init(&l->n_owners, 2);
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = l->fd >= 0 ? start_thread(l) : errno;
    if (status == 0)
        return l;
    (void)ERR(e, ERR_IO, "cannot look up the host \"%.200s\": %s", host, strerror(status));
    if (l->fd >= 0)
        (void)close(l->fd);
    free(l);
    return NULL;
}

int lookup_descriptor(const struct lookup *l)
{
    return l->fd;
}

bool lookup_ended(const struct lookup *l)
{
    return atomic_load(&l->ended);
}

int lookup_error(const struct lookup *l)
{
    return l->error;
}

bool lookup_needs_ipv6(const struct lookup *l)
{
    return l->needs_ipv6;
}
