/* gateway/http/listen.c - see listen.h. */
#include "gateway/http/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

const char *http_listen_path(const char *where)
{
    return strncmp(where, "unix:", 5) == 0 ? where + 5 : NULL;
}

static int fail_socket(int fd, const char *where, const char *what, struct err *e)
{
    int why = errno;
    if (fd >= 0)
        (void)close(fd);
    return ERR(e, why == EADDRINUSE || why == EACCES ? ERR_USAGE : ERR_IO, "--listen %s: %s: %s", where, what,
               strerror(why));
}

/* Removes a stale socket; one with a listener, and any other file, stays. */
static void remove_left_over(const struct sockaddr_un *a)
{
    struct stat s;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && lstat(a->sun_path, &s) == 0 && S_ISSOCK(s.st_mode) &&
        connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED)
        (void)unlink(a->sun_path);
    if (fd >= 0)
        (void)close(fd);
}

static int listen_unix(const char *where, const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof a.sun_path)
        return ERR(e, ERR_USAGE, "--listen %s: found a path of %zu bytes, expected 1 to %zu", where, strlen(path),
                   sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    remove_left_over(&a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) != 0 || listen(fd, BACKLOG) != 0)
        return fail_socket(fd, where, "cannot listen", e);
    return fd;
}

/* Splits "HOST:PORT" in place. */
static int split_address(char *text, const char *where, char **host, char **port, struct err *e)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    long n = colon != NULL ? strtol(colon + 1, &end, 10) : -1;
    if (colon == NULL || end == colon + 1 || *end != '\0' || n < 0 || n > 65535 || colon[1] == '+')
        return ERR(e, ERR_USAGE, "--listen: found \"%.80s\", expected HOST:PORT or unix:PATH", where);
    *colon = '\0';
    *port = colon + 1;
    *host = text;
    size_t bytes = strlen(text);
    if (text[0] == '[' && text[bytes - 1] == ']') {
        text[bytes - 1] = '\0';
        *host = text + 1;
    }
    return 0;
}

static void show(int fd, char shown[HTTP_ADDRESS_BYTES])
{
    struct sockaddr_storage a;
    socklen_t bytes = sizeof a;
    char host[80] = "", port[16] = "";
    (void)getsockname(fd, (struct sockaddr *)&a, &bytes);
    (void)getnameinfo((struct sockaddr *)&a, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    (void)snprintf(shown, HTTP_ADDRESS_BYTES, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

/* -1, with errno: it cannot listen there. */
static int open_address(const struct addrinfo *at)
{
    const int yes = 1, no = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (at->ai_family == AF_INET6) /* [::] takes IPv4 clients, too, whatever the system's default is */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

/* all: of all addresses, IPv6 is tried first, because it also takes IPv4 clients; a system may be without it. */
static int open_first(const struct addrinfo *found, bool all)
{
    const struct addrinfo *six = found;
    while (six->ai_family != AF_INET6 && six->ai_next != NULL)
        six = six->ai_next;
    if (!all || six->ai_family != AF_INET6)
        return open_address(found);
    int fd = open_address(six);
    return fd < 0 && errno != EADDRINUSE ? open_address(found) : fd;
}

static int listen_tcp(const char *where, char shown[HTTP_ADDRESS_BYTES], struct err *e)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char text[300], *host = NULL, *port = NULL;
    if (snprintf(text, sizeof text, "%s", where) >= (int)sizeof text)
        return ERR(e, ERR_USAGE, "--listen: found %zu bytes, expected HOST:PORT or unix:PATH", strlen(where));
    if (split_address(text, where, &host, &port, e) != 0)
        return -1;
    int why = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &found);
    if (why != 0)
        return ERR(e, ERR_USAGE, "--listen %s: %s", where, gai_strerror(why));
    int fd = open_first(found, host[0] == '\0');
    why = errno;
    freeaddrinfo(found);
    errno = why;
    if (fd < 0)
        return fail_socket(fd, where, "cannot listen", e);
    show(fd, shown);
    return fd;
}

int http_listen(const char *where, char shown[HTTP_ADDRESS_BYTES], struct err *e)
{
    const char *path = http_listen_path(where);
    (void)snprintf(shown, HTTP_ADDRESS_BYTES, "%s", where);
    return path != NULL ? listen_unix(where, path, e) : listen_tcp(where, shown, e);
}
