/* coordinator/net/listener.c - see listener.h. */
#include "coordinator/net/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SCHEME 6 /* bytes of "tcp://" and "ipc://" */

struct host_port {
    char host[256]; /* without brackets; "*": all addresses */
    int port;       /* 0: a free one */
};

bool listener_is_ipc(const char *endpoint)
{
    return strncmp(endpoint, "ipc://", SCHEME) == 0;
}

static void read_address(const char *endpoint, struct host_port *to)
{
    const char *host = endpoint + SCHEME, *colon = strrchr(host, ':');
    bool brackets = host[0] == '[';
    (void)snprintf(to->host, sizeof to->host, "%.*s", (int)(colon - host) - 2 * brackets, host + brackets);
    to->port = atoi(colon + 1); /* of "*": 0 */
}

static int open_socket(int family, struct err *e)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        (void)ERR(e, ERR_IO, "--endpoint: no socket: %s", strerror(errno));
    return fd;
}

/* Unix sockets: the path of a dead server's socket may be removed, that of a listening process may not. */
static int free_path(const struct sockaddr_un *address, socklen_t bytes, struct err *e)
{
    struct stat s;
    const char *path = address->sun_path;
    if (*path == '\0' || lstat(path, &s) != 0)
        return 0;
    if (!S_ISSOCK(s.st_mode))
        return ERR(e, ERR_USAGE, "--endpoint: %.200s exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)address, bytes) == 0;
    if (fd >= 0)
        (void)close(fd);
    if (alive)
        return ERR(e, ERR_IO, "--endpoint: another process listens on %.200s", path);
    if (unlink(path) != 0)
        return ERR(e, ERR_IO, "--endpoint: %.200s is left from another server and cannot be removed: %s", path,
                   strerror(errno));
    return 0;
}

static int listen_unix(const char *endpoint, int backlog, char *bound, size_t bytes, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = endpoint + SCHEME;
    memcpy(address.sun_path, path, strlen(path));
    if (*path == '@') /* abstract: no file */
        address.sun_path[0] = '\0';
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + (*path != '@'));
    if (free_path(&address, length, e) != 0)
        return -1;
    int fd = open_socket(AF_UNIX, e);
    if (fd < 0)
        return -1;
    mode_t mask = umask(0177);
    int why = bind(fd, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
    (void)umask(mask);
    if (why == 0 && listen(fd, backlog) != 0)
        why = errno;
    (void)snprintf(bound, bytes, "%s", endpoint);
    if (why == 0)
        return fd;
    (void)close(fd);
    return ERR(e, ERR_IO, "--endpoint %.200s: cannot bind: %s", endpoint, strerror(why));
}

/* The address of a network interface, by its name ("lo", "ib0"); the first IPv4 one. */
static bool find_interface(const char *name, struct sockaddr_in *address)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next)
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET && strcmp(i->ifa_name, name) == 0) {
            memcpy(address, i->ifa_addr, sizeof *address);
            found = true;
        }
    freeifaddrs(all);
    return found;
}

static socklen_t resolve(const struct host_port *from, struct sockaddr_storage *to, const char *endpoint, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t bytes = sizeof any;
    memset(to, 0, sizeof *to);
    if (strcmp(from->host, "*") == 0 || find_interface(from->host, &any)) {
        memcpy(to, &any, sizeof any);
    } else {
        int why = getaddrinfo(from->host, NULL, &hints, &list);
        if (why != 0) {
            (void)ERR(e, ERR_IO, "--endpoint %.200s: cannot bind: %s: %s", endpoint, from->host, gai_strerror(why));
            return 0;
        }
        memcpy(to, list->ai_addr, list->ai_addrlen);
        bytes = list->ai_addrlen;
        freeaddrinfo(list);
    }
    in_port_t port = htons((uint16_t)from->port);
    if (to->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)to)->sin6_port = port;
    else
        ((struct sockaddr_in *)to)->sin_port = port;
    return bytes;
}

static int write_bound(int fd, char *bound, size_t bytes)
{
    struct sockaddr_storage at = {0};
    socklen_t length = sizeof at;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&at, &length) != 0 ||
        getnameinfo((struct sockaddr *)&at, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -1;
    (void)snprintf(bound, bytes, at.ss_family == AF_INET6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return 0;
}

static int listen_tcp(const char *endpoint, int backlog, char *bound, size_t bytes, struct err *e)
{
    struct host_port from;
    struct sockaddr_storage address;
    const int yes = 1;
    read_address(endpoint, &from);
    socklen_t length = resolve(&from, &address, endpoint, e);
    int fd = length > 0 ? open_socket(address.ss_family, e) : -1;
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, backlog) == 0 &&
        write_bound(fd, bound, bytes) == 0)
        return fd;
    (void)ERR(e, ERR_IO, "--endpoint %.200s: cannot bind: %s", endpoint, strerror(errno));
    (void)close(fd);
    return -1;
}

int listener_open(const char *endpoint, int backlog, char *bound, size_t bytes, struct err *e)
{
    return listener_is_ipc(endpoint) ? listen_unix(endpoint, backlog, bound, bytes, e)
                                     : listen_tcp(endpoint, backlog, bound, bytes, e);
}
