/* coordinator/net/transport.c - see transport.h. */
#include "coordinator/net/transport.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "coordinator/net/channel.h"
#include "coordinator/net/listener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG        4096               /* connections not accepted yet: a whole job array may start at once */
#define EVENTS         64                 /* of a turn */
#define READ_BYTES     ((size_t)64 << 10) /* bytes of a client per turn, within a large message; */
#define READ_FEW_BYTES ((size_t)4 << 10)  /* otherwise: there may be thousands of small messages */
#define MUCH_BYTES     ((size_t)8 << 20)  /* bytes of unprocessed messages that are worth returning to the system */
#define SEND_BYTES \
    ((size_t)256 << 10)                     /* bytes of a client that wait here; clients.c keeps and counts the
                                                 rest */
#define PENDING_BYTES     ((size_t)1 << 30) /* bytes of unprocessed messages, complete or not, of all clients */
#define VECTORS           32
#define SWEEP_SECONDS     0.25
#define HANDSHAKE_SECONDS 30.0 /* as long as clients wait: on a busy machine a thousand begin at once */
#define REST_SECONDS      0.1  /* rest of the listener when it cannot accept */
#define SPARE_DESCRIPTORS 64   /* descriptors for everything else that this process opens */

int transport_context(struct transport *t, struct err *e)
{
    memset(t, 0, sizeof *t);
    t->poll = t->listener = -1;
    t->context = zmq_ctx_new();
    if (t->context == NULL)
        return ERR(e, ERR_IO, "ZeroMQ context: %s", zmq_strerror(errno));
    return 0;
}

int transport_check(const char *endpoint, bool curve, bool insecure, struct err *e)
{
    if (endpoint_check(endpoint, true, "--endpoint", e) != 0)
        return -1;
    if (strlen(endpoint) >= TRANSPORT_ENDPOINT)
        return ERR(e, ERR_USAGE, "--endpoint: %zu bytes, expected fewer than %d", strlen(endpoint), TRANSPORT_ENDPOINT);
    bool ipc = listener_is_ipc(endpoint);
    if (curve || insecure || endpoint_is_loopback(endpoint) || (ipc && endpoint[6] != '@'))
        return 0;
    return ERR(e, ERR_USAGE,
               "--endpoint %.200s: %s could connect; expected --curve (or --insecure), or a loopback "
               "address or ipc://PATH",
               endpoint, ipc ? "every user of this host" : "other hosts");
}

/* ---- listening ---- */

static void rest(struct transport *t, bool rests)
{
    struct epoll_event what = {.events = EPOLLIN, .data.fd = t->listener};
    if (rests == (t->rests_until > 0))
        return;
    (void)epoll_ctl(t->poll, rests ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, t->listener, &what);
    t->rests_until = rests ? seconds_now() + REST_SECONDS : 0;
}

static void turn_away(struct transport *t, int fd)
{
    (void)close(fd);
    t->n_turned_away++;
}

/* Clients beyond the limit of descriptors wait in the kernel's queue until others leave. Those beyond the user's limit
 * are closed at once, but only one turn's number of them before the listener rests, since they reconnect. */
static void accept_clients(struct transport *t)
{
    uint64_t n_turned_away = t->n_turned_away;
    for (int i = 0; i < EVENTS; i++) {
        int fd =
            t->n_connections < t->max_descriptors ? accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -2;
        if (fd >= 0) {
            (t->n_connections < t->max_connections ? channel_open : turn_away)(t, fd);
            continue;
        }
        if (fd == -2 || errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            rest(t, true);
        if (fd == -2 || (errno != EINTR && errno != ECONNABORTED))
            break;
    }
    if (t->n_turned_away != n_turned_away)
        rest(t, true);
}

/* ---- reading ---- */

static void count_pending(struct transport *t, struct channel *c)
{
    t->pending -= c->pending;
    c->pending = zmtp_pending(&c->zmtp);
    t->pending += c->pending;
    t->held_much = t->held_much || t->pending > MUCH_BYTES;
}

/* Unprocessed messages take too much memory together: ends the connection that holds most of it. */
static void bound_pending(struct transport *t)
{
    while (t->pending > PENDING_BYTES) {
        struct channel *largest = NULL;
        for (int fd = 0; fd < t->n_fds; fd++)
            if (t->by_fd[fd] != NULL && (largest == NULL || t->by_fd[fd]->pending > largest->pending))
                largest = t->by_fd[fd];
        if (largest == NULL)
            return;
        channel_end(t, largest);
    }
}

static void read_channel(struct transport *t, struct channel *c, double now)
{
    static _Thread_local unsigned char buffer[READ_BYTES];
    size_t most = zmtp_wanted(&c->zmtp) + READ_FEW_BYTES;
    ssize_t n = recv(c->fd, buffer, most < sizeof buffer ? most : sizeof buffer, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        channel_end(t, c);
        return;
    }
    if (n < 0)
        return;
    c->heard = now;
    c->zmtp.congested = c->out.first != NULL;
    bool good = zmtp_feed(&c->zmtp, buffer, (size_t)n) == 0;
    good = channel_take_protocol_bytes(t, c) == 0 && good;
    count_pending(t, c);
    if (!good) {
        transport_flush(t); /* why it is refused */
        channel_end(t, c);
    } else if (c->zmtp.first != NULL) {
        channel_add_ready(t, c);
    }
    bound_pending(t);
}

/* A connection with unprocessed messages is read again once they have been taken. */
static void serve(struct transport *t, const struct epoll_event *event, double now)
{
    struct channel *c = event->data.fd < t->n_fds ? t->by_fd[event->data.fd] : NULL;
    if (c == NULL)
        return;
    if ((event->events & EPOLLOUT) != 0)
        channel_add_dirty(t, c);
    if ((event->events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0)
        channel_end(t, c);
    else if ((event->events & EPOLLIN) != 0 && !c->ready)
        read_channel(t, c, now);
}

/* Has nothing arrived for this long? Bytes in the kernel's buffer count as arrived. */
static bool is_silent(const struct channel *c, double now, double seconds)
{
    char byte;
    return now - c->heard > seconds && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static void sweep(struct transport *t, double now)
{
    t->swept = now;
    if (t->rests_until > 0 && now > t->rests_until)
        rest(t, false);
    for (int fd = 0; fd < t->n_fds; fd++) {
        struct channel *c = t->by_fd[fd];
        if (c == NULL)
            continue;
        bool late = c->zmtp.state != ZMTP_OPEN && now - c->born > HANDSHAKE_SECONDS;
        if (late || (c->zmtp.ttl_ms > 0 && is_silent(c, now, 1e-3 * c->zmtp.ttl_ms)))
            channel_end(t, c);
    }
}

void transport_turn(struct transport *t)
{
    struct epoll_event event[EVENTS];
    double now = seconds_now();
    int n = epoll_wait(t->poll, event, EVENTS, 0);
    for (int i = 0; i < n; i++)
        if (event[i].data.fd == t->listener)
            accept_clients(t);
        else
            serve(t, &event[i], now);
    if (n < EVENTS && now - t->swept > SWEEP_SECONDS)
        sweep(t, now);
}

double transport_due(const struct transport *t)
{
    return t->ready_first != NULL ? 0 : t->rests_until > 0 ? REST_SECONDS : 1;
}

static void free_body(void *data, void *hint)
{
    (void)hint;
    free(data);
}

bool transport_receive(struct transport *t, struct incoming *to)
{
    struct channel *c;
    struct zmtp_message *m = NULL;
    while (m == NULL && (c = t->ready_first) != NULL) {
        t->ready_first = c->next_ready;
        if (t->ready_first == NULL)
            t->ready_last = NULL;
        c->ready = false;
        m = c->fd >= 0 ? zmtp_take(&c->zmtp) : NULL;
        if (m != NULL) {
            count_pending(t, c);
            *to = (struct incoming){.channel = {c->number, c->fd}, .delimiter = m->delimiter, .n_frames = m->n_frames};
            if (c->zmtp.first != NULL)
                channel_add_ready(t, c);
        }
        channel_leave_list(c);
    }
    if (m == NULL)
        return false;
    if (m->bytes == 0 || zmq_msg_init_data(&to->body, m->body, m->bytes, free_body, NULL) != 0)
        (void)zmq_msg_init(&to->body);
    else
        m->body = NULL;
    zmtp_message_free(m);
    return true;
}

/* ---- writing ---- */

/* Returns whether the connection lives. */
static bool write_channel(struct transport *t, struct channel *c)
{
    struct iovec vector[VECTORS];
    while (c->out.first != NULL) {
        struct msghdr m = {.msg_iov = vector, .msg_iovlen = (size_t)parcels_list(&c->out, vector, VECTORS)};
        ssize_t n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return c->awaits_room || channel_watch_room(t, c, true) == 0;
        if (n < 0)
            return false;
        parcels_pass(&c->out, (size_t)n);
    }
    return !c->awaits_room || channel_watch_room(t, c, false) == 0;
}

void transport_flush(struct transport *t)
{
    for (struct channel *c; (c = t->dirty) != NULL; channel_leave_list(c)) {
        t->dirty = c->next_dirty;
        c->dirty = false;
        if (c->fd >= 0 && !write_channel(t, c))
            channel_end(t, c);
    }
}

enum sent transport_send(struct transport *t, const struct channel_name *channel, bool delimiter, char *text,
                         size_t bytes)
{
    struct channel *c = channel_find(t, channel);
    unsigned char *body = NULL;
    size_t n_body = 0;
    if (c == NULL)
        return SENT_GONE;
    if (c->out.bytes > SEND_BYTES)
        return SENT_LATER;
    struct parcel *p = channel_take_protocol_bytes(t, c) == 0 ? parcels_add(&c->out, NULL, 0) : NULL;
    size_t n_head = p != NULL ? zmtp_reply(&c->zmtp, delimiter, text, bytes, p->head, &body, &n_body) : 0;
    if (n_head == 0) { /* out of memory: a reply must not be lost silently */
        channel_end(t, c);
        return SENT_GONE;
    }
    if (body != (unsigned char *)text)
        free(text);
    p->n_head = (unsigned char)n_head;
    p->body = body;
    p->n_body = n_body;
    c->out.bytes += n_body;
    channel_add_dirty(t, c);
    return SENT;
}

bool transport_connected(const struct transport *t, const struct channel_name *channel)
{
    return channel_find(t, channel) != NULL;
}

void transport_disconnect(struct transport *t, const struct channel_name *channel)
{
    struct channel *c = channel_find(t, channel);
    if (c != NULL)
        channel_end(t, c);
}

enum happening transport_happening(struct transport *t, struct channel_name *channel)
{
    struct channel *c = t->gone;
    if (c == NULL)
        return HAPPENING_NONE;
    enum happening what = c->was_open ? HAPPENING_GONE : c->was_probe ? HAPPENING_PROBED : HAPPENING_REFUSED;
    *channel = (struct channel_name){c->number, -1};
    t->gone = c->next_gone;
    channel_leave_list(c);
    return what;
}

/* ---- opening and closing ---- */

static int most_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    int most = (int)limit.rlim_cur - SPARE_DESCRIPTORS;
    return most > 1 ? most : 1;
}

int transport_open(struct transport *t, const char *endpoint, int64_t max_bytes, int64_t max_connections,
                   const struct curve *curve, struct err *e)
{
    t->max_bytes = (size_t)max_bytes;
    t->max_descriptors = most_descriptors();
    t->max_connections = max_connections > 0 ? (int)max_connections : INT32_MAX;
    t->has_curve = curve != NULL;
    if (curve != NULL && curve_keys(curve, &t->keys, e) != 0)
        return -1;
    t->listener = listener_open(endpoint, BACKLOG, t->endpoint, sizeof t->endpoint, e);
    if (t->listener < 0)
        return -1;
    t->is_ipc = listener_is_ipc(t->endpoint);
    t->is_local = t->is_ipc || endpoint_is_loopback(t->endpoint);
    t->poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event what = {.events = EPOLLIN, .data.fd = t->listener};
    if (t->poll < 0 || epoll_ctl(t->poll, EPOLL_CTL_ADD, t->listener, &what) != 0)
        return ERR(e, ERR_IO, "--endpoint: epoll: %s", strerror(errno));
    return 0;
}

void transport_unlink(const struct transport *t)
{
    if (t->is_ipc && t->endpoint[6] != '@')
        (void)unlink(t->endpoint + 6);
}

static bool has_parcels(const struct transport *t)
{
    for (int fd = 0; fd < t->n_fds; fd++)
        if (t->by_fd[fd] != NULL && t->by_fd[fd]->out.first != NULL)
            return true;
    return false;
}

static void linger(struct transport *t, double seconds)
{
    const struct timespec pause = {0, 1000000};
    for (double until = seconds_now() + seconds; has_parcels(t) && seconds_now() < until;) {
        for (int fd = 0; fd < t->n_fds; fd++)
            if (t->by_fd[fd] != NULL && t->by_fd[fd]->out.first != NULL)
                channel_add_dirty(t, t->by_fd[fd]);
        transport_flush(t);
        if (has_parcels(t))
            (void)nanosleep(&pause, NULL);
    }
}

static void close_channels(struct transport *t)
{
    struct channel_name channel;
    struct incoming m;
    for (int fd = 0; fd < t->n_fds; fd++)
        if (t->by_fd[fd] != NULL)
            channel_end(t, t->by_fd[fd]);
    transport_flush(t);
    while (transport_receive(t, &m))
        (void)zmq_msg_close(&m.body);
    while (transport_happening(t, &channel) != HAPPENING_NONE)
        continue;
    free(t->by_fd);
}

void transport_close(struct transport *t, int linger_ms)
{
    if (t->listener >= 0) {
        transport_unlink(t); /* as long as we listen it is ours */
        (void)close(t->listener);
        linger(t, 1e-3 * linger_ms);
    }
    close_channels(t);
    if (t->poll >= 0)
        (void)close(t->poll);
    while (t->context != NULL && zmq_ctx_term(t->context) != 0 && errno == EINTR)
        continue;
    explicit_bzero(&t->keys, sizeof t->keys);
    memset(t, 0, sizeof *t);
    t->poll = t->listener = -1;
}
