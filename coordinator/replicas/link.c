/* coordinator/replicas/link.c - see link.h. */
#include "coordinator/replicas/link.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define KEEPALIVE_IDLE     3 /* s of silence before the first probe, */
#define KEEPALIVE_INTERVAL 2 /* s between probes, and the number of unanswered probes after which the host is lost */
#define KEEPALIVE_COUNT    3
#define MAX_RETRANSMIT_MS  10000 /* the same for sent but unacknowledged data */
#define CONNECT_MS         2000  /* timeout per address */
#define LONGEST_BEAT       1.0   /* s */
#define HANDSHAKE_MS       10000 /* time for a peer to show its key */
#define FRAME_OVERHEAD     64    /* CURVE's, at least 33 bytes */

/* ---- addresses ---- */

static bool add_address(struct link_card *card, const char *address)
{
    int i = 0;
    while (i < LINK_ADDRESSES && card->address[i][0] != '\0')
        i++;
    if (i < LINK_ADDRESSES)
        (void)snprintf(card->address[i], LINK_ADDRESS_BYTES, "%s", address);
    return i < LINK_ADDRESSES;
}

static void add_interface(struct link_card *card, const struct ifaddrs *f, int family)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (f->ifa_addr == NULL || f->ifa_addr->sa_family != family || (f->ifa_flags & IFF_UP) == 0 ||
        (f->ifa_flags & IFF_LOOPBACK) != 0)
        return;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)f->ifa_addr)->sin6_addr;
    const struct in_addr *four = &((const struct sockaddr_in *)(const void *)f->ifa_addr)->sin_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(six)) /* useless without an interface's number */
        return;
    if (inet_ntop(family, family == AF_INET6 ? (const void *)six : (const void *)four, text, sizeof text) != NULL)
        (void)add_address(card, text);
}

int link_addresses(struct link_card *card, bool local, struct err *e)
{
    struct ifaddrs *all = NULL;
    memset(card->address, 0, sizeof card->address);
    if (local) {
        (void)add_address(card, "127.0.0.1");
        return 0;
    }
    if (getifaddrs(&all) != 0)
        return ERR(e, ERR_IO, "this host's addresses: %s", strerror(errno));
    for (const struct ifaddrs *f = all; f != NULL; f = f->ifa_next)
        add_interface(card, f, AF_INET);
    for (const struct ifaddrs *f = all; f != NULL; f = f->ifa_next)
        add_interface(card, f, AF_INET6);
    freeifaddrs(all);
    if (card->address[0][0] == '\0')
        return ERR(e, ERR_IO, "this host has no network address that replicas on other hosts could reach");
    return 0;
}

/* The address in the system's form; 0: invalid. */
static socklen_t socket_address(struct sockaddr_storage *to, const char *address, int port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
    memset(to, 0, sizeof *to);
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, address, &six->sin6_addr) != 1)
        return 0;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    return sizeof *six;
}

/* Waits until the connection is made or refused, regardless of signals. */
static bool await_connection(int fd)
{
    double until = seconds_now() + CONNECT_MS / 1e3;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    for (double left; (left = until - seconds_now()) > 0;) {
        int n = poll(&wait, 1, (int)(1e3 * left) + 1);
        if (n == 1 || (n < 0 && errno != EINTR))
            return n == 1;
    }
    return false;
}

static bool listens(const char *address, int port)
{
    struct sockaddr_storage to;
    int why = 0;
    socklen_t bytes = socket_address(&to, address, port), why_bytes = sizeof why;
    int fd = bytes > 0 ? socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return false;
    bool good = connect(fd, (struct sockaddr *)&to, bytes) == 0;
    if (!good && (errno == EINPROGRESS || errno == EINTR) && await_connection(fd))
        good = getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &why_bytes) == 0 && why == 0;
    (void)close(fd);
    return good;
}

int link_find(const struct link_card *card, char *endpoint, size_t bytes, struct err *e)
{
    for (int i = 0; i < LINK_ADDRESSES && card->address[i][0] != '\0'; i++) {
        const char *a = card->address[i];
        if (!listens(a, card->port))
            continue;
        (void)snprintf(endpoint, bytes, strchr(a, ':') != NULL ? "tcp://[%s]:%d" : "tcp://%s:%d", a, card->port);
        return 0;
    }
    return ERR(e, ERR_COMM, "rank 0 cannot be reached at port %d of %s%s: is there a firewall between the hosts?",
               card->port, card->address[0], card->address[1][0] != '\0' ? ", or its other addresses" : "");
}

/* ---- sockets ---- */

int link_configure(void *socket, struct err *e)
{
    static const int options[][2] = {{ZMQ_SNDHWM, 0},
                                     {ZMQ_RCVHWM, 0},
                                     {ZMQ_LINGER, 0},
                                     {ZMQ_IPV6, 1},
                                     {ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS},
                                     {ZMQ_TCP_KEEPALIVE, 1},
                                     {ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE},
                                     {ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL},
                                     {ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT},
                                     {ZMQ_TCP_MAXRT, MAX_RETRANSMIT_MS}};
    const int64_t most = LINK_FRAME_BYTES + FRAME_OVERHEAD;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (zmq_setsockopt(socket, options[i][0], &options[i][1], sizeof options[i][1]) != 0)
            return ERR(e, ERR_IO, "ZeroMQ option %d of a link between replicas: %s", options[i][0],
                       zmq_strerror(errno));
    /* Applies before the handshake, too: a stranger's frame header makes ZeroMQ allocate that much memory. */
    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0)
        return ERR(e, ERR_IO, "ZeroMQ message limit %lld of a link between replicas: %s", (long long)most,
                   zmq_strerror(errno));
    return 0;
}

int link_monitor(void *context, void *socket, const char *address, void **monitor, struct err *e)
{
    const int none = 0;
    *monitor = zmq_socket(context, ZMQ_PAIR);
    if (*monitor == NULL || zmq_socket_monitor(socket, address, ZMQ_EVENT_DISCONNECTED) != 0 ||
        zmq_setsockopt(*monitor, ZMQ_LINGER, &none, sizeof none) != 0 ||
        zmq_setsockopt(*monitor, ZMQ_RCVHWM, &none, sizeof none) != 0 || zmq_connect(*monitor, address) != 0)
        return ERR(e, ERR_IO, "ZeroMQ monitor of a link between replicas: %s", zmq_strerror(errno));
    return 0;
}

/* An event's first frame is its kind and a value, the second an address. */
int link_ended(void *monitor)
{
    unsigned char event[6], address[256];
    uint32_t fd = 0;
    int n = zmq_recv(monitor, event, sizeof event, ZMQ_DONTWAIT);
    if (n < 0)
        return -1;
    (void)zmq_recv(monitor, address, sizeof address, ZMQ_DONTWAIT);
    memcpy(&fd, event + 2, sizeof fd);
    return n == (int)sizeof event ? (int)fd : -1;
}

bool link_send(void *socket, const char *id, struct wire_out *w)
{
    bool good = !w->failed && (id == NULL || zmq_send(socket, id, strlen(id), ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0);
    for (size_t done = 0, piece; good && done < w->bytes; done += piece) {
        bool more = w->bytes - done > LINK_FRAME_BYTES;
        piece = more ? LINK_FRAME_BYTES : w->bytes - done;
        good = zmq_send(socket, w->data + done, piece, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
    }
    wire_free(w);
    return good;
}

bool link_receive(void *socket, struct wire_out *w, int *fd)
{
    bool more = true;
    zmq_msg_t frame;
    *fd = -1;
    (void)zmq_msg_init(&frame);
    while (more && zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0) {
        wire_put(w, zmq_msg_data(&frame), zmq_msg_size(&frame));
        *fd = zmq_msg_get(&frame, ZMQ_SRCFD);
        more = zmq_msg_more(&frame) != 0;
    }
    (void)zmq_msg_close(&frame);
    return !more;
}

/* ---- life and death ---- */

void link_pulse_open(struct link_pulse *p, double timeout)
{
    double tenth = timeout / 10;
    *p = (struct link_pulse){.timeout = timeout,
                             .interval = tenth > 0 && tenth < LONGEST_BEAT ? tenth : LONGEST_BEAT,
                             .looked = seconds_now()};
}

double link_pulse_passed(struct link_pulse *p)
{
    double now = seconds_now(), passed = now - p->looked;
    p->looked = now;
    return passed < 3 * p->interval ? passed : 3 * p->interval;
}

bool link_pulse_due(struct link_pulse *p)
{
    double now = seconds_now();
    bool due = now - p->sent >= p->interval;
    if (due)
        p->sent = now;
    return due;
}

void link_raise(struct link_alarm *a, const struct err *e)
{
    if (atomic_load(&a->raised))
        return;
    a->err = *e;
    atomic_store(&a->raised, true);
}

int link_check(struct link_alarm *a, struct err *e)
{
    if (!atomic_load(&a->raised))
        return 0;
    *e = a->err;
    return -1;
}
