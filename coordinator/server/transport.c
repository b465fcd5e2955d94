/* coordinator/server/transport.c - see transport.h. Why each option of the socket is set is in docs/serve.md. */
#include "coordinator/server/transport.h"
#include "base/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SEND_MESSAGES    256  /* of a client that libzmq holds; what is beyond is counted in bytes (clients.c) */
#define RECEIVE_MESSAGES 1000 /* of a client; beyond, its sends wait */
#define BACKLOG          4096 /* connections not accepted yet: a whole job array may start at once */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

int transport_context(struct transport *t, struct err *e)
{
    memset(t, 0, sizeof *t);
    t->context = zmq_ctx_new();
    if (t->context == NULL || zmq_ctx_set(t->context, ZMQ_MAX_SOCKETS, 65000) != 0)
        return ERR(e, ERR_IO, "ZeroMQ context: %s", zmq_strerror(errno));
    return 0;
}

int transport_check(const char *endpoint, bool curve, bool insecure, struct err *e)
{
    bool ipc = begins(endpoint, "ipc://"), tcp = begins(endpoint, "tcp://");
    if (endpoint_check(endpoint, true, "--endpoint", e) != 0)
        return -1;
    if (strlen(endpoint) >= TRANSPORT_ENDPOINT)
        return ERR(e, ERR_USAGE, "--endpoint: %zu bytes, expected fewer than %d", strlen(endpoint), TRANSPORT_ENDPOINT);
    if (curve || insecure || endpoint_is_loopback(endpoint) || (ipc && endpoint[6] != '@'))
        return 0;
    return ERR(e, ERR_USAGE,
               "--endpoint %.200s: %s could connect; expected --curve (or --insecure), or a loopback "
               "address or ipc://PATH",
               endpoint, tcp ? "other hosts" : "every user of this host");
}

/* libzmq takes a Unix socket's path away from whoever listens there. Refuse instead; what a dead server left may go. */
static int check_path(const char *path, struct err *e)
{
    struct stat s;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (*path == '*' || *path == '@' || lstat(path, &s) != 0)
        return 0;
    if (!S_ISSOCK(s.st_mode))
        return ERR(e, ERR_USAGE, "--endpoint: %.200s exists and is not a socket", path);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        (void)close(fd);
    return alive ? ERR(e, ERR_IO, "--endpoint: another process listens on %.200s", path) : 0;
}

static int set(void *socket, int option, int value, struct err *e)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0)
        return ERR(e, ERR_IO, "ZeroMQ socket option %d = %d: %s", option, value, zmq_strerror(errno));
    return 0;
}

/* A lost host is noticed by the kernel. Not by heartbeats of libzmq: 4.3.4 and its followers abort the process when one is due on a
 * connection that has ended while more messages wait than RECEIVE_MESSAGES (!_io_error in stream_engine_base.cpp; libzmq issue
 * 4364), which any client can bring about. Heartbeats that clients send do no harm: who says how long they may be absent
 * (ZMQ_HEARTBEAT_TTL) is noticed when frozen, too. */
static int set_options(struct transport *t, const char *endpoint, int64_t max_bytes, struct err *e)
{
    static const int options[][2] = {
        {ZMQ_ROUTER_MANDATORY, 1}, /* without it what does not fit, or has nobody, is dropped in silence */
        {ZMQ_ROUTER_HANDOVER, 1},  /* without it a second client of an id is ignored in silence; see peer_has_own_id */
        {ZMQ_SNDHWM, SEND_MESSAGES},
        {ZMQ_RCVHWM, RECEIVE_MESSAGES},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, 1}, /* s of silence, then */
        {ZMQ_TCP_KEEPALIVE_CNT, 3},  /* probes, */
        {ZMQ_TCP_KEEPALIVE_INTVL, 1},
        {ZMQ_HANDSHAKE_IVL, 30000}, /* as long as clients wait: on a busy machine a thousand begin at once */
        {ZMQ_BACKLOG, BACKLOG},
        {ZMQ_LINGER, 0}, /* of a failing start; transport_close says how long else */
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (set(t->router, options[i][0], options[i][1], e) != 0)
            return -1;
    if (zmq_setsockopt(t->router, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes) != 0)
        return ERR(e, ERR_IO, "ZeroMQ message limit %lld: %s", (long long)max_bytes, zmq_strerror(errno));
    return strchr(endpoint, '[') != NULL ? set(t->router, ZMQ_IPV6, 1, e) : 0;
}

static int open_monitor(struct transport *t, struct err *e)
{
    static const char address[] = "inproc://connections";
    const int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    t->monitor = zmq_socket(t->context, ZMQ_PAIR);
    if (t->monitor == NULL || zmq_socket_monitor(t->router, address, events) != 0 ||
        set(t->monitor, ZMQ_RCVHWM, 0, e) != 0 || zmq_connect(t->monitor, address) != 0)
        return ERR(e, ERR_IO, "ZeroMQ monitor: %s", zmq_strerror(errno));
    return 0;
}

/* The mask makes the Unix socket mode 0600 from its first moment. */
static int bind_private(struct transport *t, const char *endpoint, struct err *e)
{
    mode_t mask = umask(0177);
    int bound = zmq_bind(t->router, endpoint), why = errno;
    (void)umask(mask);
    size_t bytes = sizeof t->endpoint;
    if (bound != 0)
        return ERR(e, ERR_IO, "--endpoint %.200s: cannot bind: %s", endpoint, zmq_strerror(why));
    if (zmq_getsockopt(t->router, ZMQ_LAST_ENDPOINT, t->endpoint, &bytes) != 0)
        return ERR(e, ERR_IO, "--endpoint %.200s: no address: %s", endpoint, zmq_strerror(errno));
    t->is_ipc = begins(t->endpoint, "ipc://");
    t->is_local = t->is_ipc || endpoint_is_loopback(t->endpoint);
    return 0;
}

int transport_open(struct transport *t, const char *endpoint, int64_t max_bytes, struct curve *curve, struct err *e)
{
    t->curve = curve;
    if (begins(endpoint, "ipc://") && check_path(endpoint + 6, e) != 0)
        return -1;
    t->router = zmq_socket(t->context, ZMQ_ROUTER);
    if (t->router == NULL)
        return ERR(e, ERR_IO, "ZeroMQ socket: %s", zmq_strerror(errno));
    if (set_options(t, endpoint, max_bytes, e) != 0 || (curve != NULL && curve_apply(curve, t->router, e) != 0) ||
        open_monitor(t, e) != 0)
        return -1;
    return bind_private(t, endpoint, e);
}

void transport_unlink(const struct transport *t)
{
    if (t->is_ipc && t->endpoint[6] != '@')
        (void)unlink(t->endpoint + 6);
}

void transport_close(struct transport *t, int linger_ms)
{
    if (t->router != NULL) {
        transport_unlink(t); /* libzmq leaves it behind. As long as we listen it is ours. */
        (void)zmq_socket_monitor(t->router, NULL, 0);
        (void)zmq_setsockopt(t->router, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        (void)zmq_close(t->router);
    }
    if (t->monitor != NULL)
        (void)zmq_close(t->monitor);
    while (t->context != NULL && zmq_ctx_term(t->context) != 0 && errno == EINTR)
        continue;
    free(t->connected);
    memset(t, 0, sizeof *t);
}

/* Frame by frame; -1: none there, which can only be so of the first. */
static int receive_frame(void *socket, zmq_msg_t *m)
{
    int got;
    (void)zmq_msg_init(m);
    do
        got = zmq_msg_recv(m, socket, ZMQ_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

bool transport_receive(struct transport *t, struct incoming *m)
{
    zmq_msg_t frame;
    if (receive_frame(t->router, &frame) < 0)
        return false;
    memset(m, 0, sizeof *m);
    (void)zmq_msg_init(&m->body);
    m->peer.id_bytes = zmq_msg_size(&frame) <= TRANSPORT_MAX_ID ? zmq_msg_size(&frame) : 0;
    memcpy(m->peer.id, zmq_msg_data(&frame), m->peer.id_bytes);
    m->peer.fd = -1; /* the id's frame does not always know it */
    bool more = zmq_msg_more(&frame) != 0;
    (void)zmq_msg_close(&frame);
    for (int i = 0; more && receive_frame(t->router, &frame) >= 0; i++) {
        more = zmq_msg_more(&frame) != 0;
        m->peer.fd = zmq_msg_get(&frame, ZMQ_SRCFD);
        if (i == 0 && more && zmq_msg_size(&frame) == 0)
            m->delimiter = true;
        else if (m->n_frames++ == 0)
            (void)zmq_msg_move(&m->body, &frame);
        (void)zmq_msg_close(&frame);
    }
    return true;
}

static void free_text(void *text, void *hint)
{
    (void)hint;
    free(text);
}

enum sent transport_send(struct transport *t, const struct peer *peer, bool delimiter, char *text, size_t bytes)
{
    zmq_msg_t body;
    int sent;
    do
        sent = zmq_send(t->router, peer->id, peer->id_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN ? SENT_LATER : SENT_GONE;
    /* Once the first frame is in, the others are: ROUTER keeps a message whole. */
    if (delimiter)
        (void)zmq_send(t->router, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE);
    if (zmq_msg_init_data(&body, text, bytes, free_text, NULL) != 0) {
        free(text);
        (void)zmq_send(t->router, "", 0, ZMQ_DONTWAIT);
        return SENT;
    }
    if (zmq_msg_send(&body, t->router, ZMQ_DONTWAIT) < 0)
        (void)zmq_msg_close(&body);
    return SENT;
}

/* Out of memory it is not noted, and messages of the connection are not taken. */
static void note_connection(struct transport *t, int fd, bool connected)
{
    if (fd >= t->n_connected) {
        int n = 2 * fd + 64;
        bool *more = fd >= 0 ? realloc(t->connected, (size_t)n * sizeof *more) : NULL;
        if (more == NULL)
            return;
        memset(more + t->n_connected, 0, (size_t)(n - t->n_connected) * sizeof *more);
        t->connected = more;
        t->n_connected = n;
    }
    if (fd >= 0)
        t->connected[fd] = connected;
}

bool transport_connected(const struct transport *t, int fd)
{
    return fd < 0 || (fd < t->n_connected && t->connected[fd]);
}

/* libzmq has no function for it: it sees the end of the stream and closes the descriptor itself. Should it have given the
 * descriptor to another connection since happenings were last read, that one is closed, and its client connects anew. */
void transport_disconnect(const struct transport *t, int fd)
{
    if (fd >= 0 && transport_connected(t, fd))
        (void)shutdown(fd, SHUT_RDWR);
}

bool peer_has_own_id(const struct peer *p)
{
    return p->id_bytes > 0 && p->id[0] != 0;
}

enum happening transport_happening(struct transport *t, int *fd)
{
    zmq_msg_t event, address;
    uint16_t kind = 0;
    uint32_t value = 0;
    if (receive_frame(t->monitor, &event) < 0)
        return HAPPENING_NONE;
    if (zmq_msg_size(&event) >= sizeof kind + sizeof value) {
        memcpy(&kind, zmq_msg_data(&event), sizeof kind);
        memcpy(&value, (const char *)zmq_msg_data(&event) + sizeof kind, sizeof value);
    }
    if (zmq_msg_more(&event)) {
        (void)receive_frame(t->monitor, &address);
        (void)zmq_msg_close(&address);
    }
    (void)zmq_msg_close(&event);
    *fd = (int)value;
    if (kind == ZMQ_EVENT_DISCONNECTED || kind == ZMQ_EVENT_ACCEPTED)
        note_connection(t, *fd, kind == ZMQ_EVENT_ACCEPTED);
    if (kind == ZMQ_EVENT_DISCONNECTED)
        return HAPPENING_GONE;
    return kind == ZMQ_EVENT_ACCEPTED ? HAPPENING_OTHER : HAPPENING_REFUSED;
}
