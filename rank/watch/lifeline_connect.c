/* rank/watch/lifeline_connect.c - see lifeline_connect.h. */
#include "rank/watch/lifeline_connect.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECT_SECONDS 5.0
#define MAX_PENDING     64  /* limit of unidentified connections; beyond it the one that was silent longest is closed */
#define SILENT_SECONDS  0.2 /* minimum time for each */

/* An abstract name, so that a killed process leaves no file. */
static socklen_t unix_address(struct sockaddr_un *a, uint64_t name)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "lockstep-%016llx", (unsigned long long)name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int open_listener(const struct sockaddr *a, socklen_t bytes, int backlog)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, a, bytes) == 0 && listen(fd, backlog) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static void list_addresses(struct lifeline_invitation *i)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *a = all; a != NULL && i->n_addresses < LIFELINE_MAX_ADDRESSES; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & IFF_UP) != 0 &&
            (a->ifa_flags & IFF_LOOPBACK) == 0)
            i->address[i->n_addresses++] = ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
}

void lifeline_listen(struct lifeline_listener *l, struct lifeline_invitation *i, bool other_hosts)
{
    struct sockaddr_un local;
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    memset(i, 0, sizeof *i);
    l->tcp_fd = l->unix_fd = -1;
    if (getrandom(i->token, sizeof i->token, 0) != (ssize_t)sizeof i->token ||
        getrandom(&i->name, sizeof i->name, 0) != (ssize_t)sizeof i->name)
        return; /* no rank is invited, and all warn */
    i->name |= 1;
    l->unix_fd = open_listener((const struct sockaddr *)&local, unix_address(&local, i->name), SOMAXCONN);
    if (l->unix_fd < 0)
        i->name = 0;
    if (!other_hosts)
        return;
    l->tcp_fd = open_listener((const struct sockaddr *)&any, sizeof any, SOMAXCONN);
    if (l->tcp_fd < 0 || getsockname(l->tcp_fd, (struct sockaddr *)&any, &bytes) != 0)
        return;
    i->port = any.sin_port;
    list_addresses(i);
}

/* Gives up a host that does not answer, even while nothing is sent; sends small messages at once. */
static void settle(int fd)
{
    const int on = 1, idle = 2, interval = 1, count = LIFELINE_LOST_SECONDS;
    const unsigned limit_ms = 1000 * LIFELINE_LOST_SECONDS;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* of Unix sockets: without effect */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

static bool is_ours(const struct lifeline_message *m, const struct lifeline_invitation *i, enum lifeline_kind kind)
{
    return m->kind == (int32_t)kind && m->token[0] == i->token[0] && m->token[1] == i->token[1];
}

static bool send_word(int fd, const struct lifeline_invitation *i, enum lifeline_kind kind, int rank)
{
    struct lifeline_message m = {.token = {i->token[0], i->token[1]}, .kind = (int32_t)kind, .rank = rank};
    return send(fd, &m, sizeof m, MSG_NOSIGNAL) == (ssize_t)sizeof m;
}

/* ---- rank 0 ---- */

/* Identify a connection that has sent data. The descriptor becomes a rank's, or is closed. */
static void greet(int pending, const struct lifeline_invitation *i, int *fd, int n_ranks, int *n_missing)
{
    struct lifeline_message m;
    ssize_t n = recv(pending, &m, sizeof m, MSG_DONTWAIT);
    if (n == (ssize_t)sizeof m && is_ours(&m, i, LIFELINE_HELLO) && m.rank > 0 && m.rank < n_ranks && fd[m.rank] < 0 &&
        send_word(pending, i, LIFELINE_WELCOME, 0)) {
        settle(pending);
        fd[m.rank] = pending;
        (*n_missing)--;
    } else
        (void)close(pending);
}

/* Connections that have not identified themselves, after the two listeners. */
struct pending {
    struct pollfd set[MAX_PENDING + 2];
    double since[MAX_PENDING + 2];
    int n;
};

/* An abstract Unix socket has no permissions, but its peer has a user, which must be the same. */
static bool is_stranger(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && bytes == sizeof who && who.pid > 0 &&
           who.uid != geteuid();
}

static void drop_pending(struct pending *p, int k)
{
    (void)close(p->set[k].fd);
    p->n--;
    memmove(&p->set[k], &p->set[k + 1], (size_t)(p->n - k) * sizeof p->set[0]);
    memmove(&p->since[k], &p->since[k + 1], (size_t)(p->n - k) * sizeof p->since[0]);
}

/* A rank sends as soon as it is connected, so the connection that has been silent the longest is closed. */
static void take_in(int listener, bool is_unix, struct pending *p)
{
    for (;;) {
        if (p->n == MAX_PENDING + 2 && seconds_now() - p->since[2] < SILENT_SECONDS)
            return;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (is_unix && is_stranger(fd)) {
            (void)close(fd);
            continue;
        }
        if (p->n == MAX_PENDING + 2)
            drop_pending(p, 2);
        p->since[p->n] = seconds_now();
        p->set[p->n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

static void greet_all(struct pending *p, const struct lifeline_invitation *i, int *fd, int n_ranks, int *n_missing)
{
    int kept = 2;
    for (int k = 2; k < p->n; k++) {
        if (p->set[k].revents != 0) {
            greet(p->set[k].fd, i, fd, n_ranks, n_missing);
            continue;
        }
        p->since[kept] = p->since[k];
        p->set[kept++] = p->set[k];
    }
    p->n = kept;
}

void lifeline_accept(struct lifeline_listener *l, const struct lifeline_invitation *i, int *fd, int n_ranks)
{
    struct pending p = {.set = {{.fd = l->unix_fd, .events = POLLIN}, {.fd = l->tcp_fd, .events = POLLIN}}, .n = 2};
    const struct timespec pause = {0, 10000000};
    double end = seconds_now() + CONNECT_SECONDS;
    int n_missing = n_ranks - 1;
    for (int r = 0; r < n_ranks; r++)
        fd[r] = -1;
    while (n_missing > 0 && (l->unix_fd >= 0 || l->tcp_fd >= 0)) {
        double left = end - seconds_now();
        if (left <= 0)
            break;
        if (poll(p.set, (nfds_t)p.n, (int)(1000 * left) + 1) < 0)
            continue;
        greet_all(&p, i, fd, n_ranks, &n_missing);
        for (int k = 0; k < 2; k++)
            if (p.set[k].fd >= 0 && p.set[k].revents != 0)
                take_in(p.set[k].fd, k == 0, &p);
        if (p.n == MAX_PENDING + 2) /* full of silent connections: does not spin on the queue behind them */
            (void)nanosleep(&pause, NULL);
    }
    while (p.n > 2)
        drop_pending(&p, p.n - 1);
    if (l->unix_fd >= 0)
        (void)close(l->unix_fd);
    if (l->tcp_fd >= 0)
        (void)close(l->tcp_fd);
}

/* ---- the others ---- */

static int begin_connect(const struct sockaddr *a, socklen_t bytes)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    settle(fd);
    if (connect(fd, a, bytes) == 0 || errno == EINPROGRESS)
        return fd;
    (void)close(fd);
    return -1;
}

static int begin_all(struct pollfd *set, const struct lifeline_invitation *i, bool same_host)
{
    int n = 0;
    struct sockaddr_un local;
    if (same_host && i->name != 0) {
        socklen_t bytes = unix_address(&local, i->name);
        set[n++] = (struct pollfd){.fd = begin_connect((const struct sockaddr *)&local, bytes), .events = POLLOUT};
    }
    for (int k = 0; k < i->n_addresses; k++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = i->port, .sin_addr = {i->address[k]}};
        set[n++] = (struct pollfd){.fd = begin_connect((const struct sockaddr *)&a, sizeof a), .events = POLLOUT};
    }
    return n;
}

/* One of the connections is ready: sends the hello, then receives the welcome. True: connected. */
static bool go_on(struct pollfd *p, const struct lifeline_invitation *i, int rank)
{
    struct lifeline_message m;
    if (p->events == POLLOUT && (p->revents & (POLLERR | POLLHUP)) == 0 && send_word(p->fd, i, LIFELINE_HELLO, rank)) {
        p->events = POLLIN;
        return false;
    }
    if (p->events == POLLIN && recv(p->fd, &m, sizeof m, MSG_DONTWAIT) == (ssize_t)sizeof m &&
        is_ours(&m, i, LIFELINE_WELCOME))
        return true;
    (void)close(p->fd);
    p->fd = -1;
    return false;
}

int lifeline_connect(const struct lifeline_invitation *i, int rank, bool same_host)
{
    struct pollfd set[LIFELINE_MAX_ADDRESSES + 1];
    double end = seconds_now() + CONNECT_SECONDS;
    int n = begin_all(set, i, same_host), chosen = -1;
    while (chosen < 0) {
        int n_open = 0;
        double left = end - seconds_now();
        for (int k = 0; k < n; k++)
            n_open += set[k].fd >= 0;
        if (n_open == 0 || left <= 0)
            break;
        if (poll(set, (nfds_t)n, (int)(1000 * left) + 1) < 0)
            continue;
        for (int k = 0; k < n && chosen < 0; k++)
            if (set[k].fd >= 0 && set[k].revents != 0 && go_on(&set[k], i, rank))
                chosen = set[k].fd;
    }
    for (int k = 0; k < n; k++)
        if (set[k].fd >= 0 && set[k].fd != chosen)
            (void)close(set[k].fd);
    return chosen;
}

void lifeline_addresses(char *text, size_t bytes, const struct lifeline_invitation *i)
{
    size_t n = 0;
    text[0] = '\0';
    for (int k = 0; k < i->n_addresses && n < bytes; k++) {
        char one[INET_ADDRSTRLEN] = "";
        (void)inet_ntop(AF_INET, &i->address[k], one, sizeof one);
        n += (size_t)snprintf(text + n, bytes - n, "%s ", one);
    }
    if (n < bytes)
        (void)snprintf(text + n, bytes - n, i->n_addresses > 0 ? "port %d" : "a socket of its host", ntohs(i->port));
}
