/* coordinator/net/channel.c - see channel.h. */
#include "coordinator/net/channel.h"
#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void channel_leave_list(struct channel *c)
{
    if (--c->n_lists == 0 && c->fd < 0)
        free(c);
}

void channel_add_ready(struct transport *t, struct channel *c)
{
    if (c->ready)
        return;
    c->ready = true;
    c->n_lists++;
    c->next_ready = NULL;
    if (t->ready_last != NULL)
        t->ready_last->next_ready = c;
    else
        t->ready_first = c;
    t->ready_last = c;
}

void channel_add_dirty(struct transport *t, struct channel *c)
{
    if (c->dirty)
        return;
    c->dirty = true;
    c->n_lists++;
    c->next_dirty = t->dirty;
    t->dirty = c;
}

struct channel *channel_find(const struct transport *t, const struct channel_name *channel)
{
    struct channel *c = channel->fd >= 0 && channel->fd < t->n_fds ? t->by_fd[channel->fd] : NULL;
    return c != NULL && c->number == channel->number ? c : NULL;
}

/* Unread data of the client would make the kernel discard the last data sent to it. Returns whether the client had hung
 * up already, and nothing of it was unread. */
static bool hang_up(int fd)
{
    char waste[4096];
    (void)shutdown(fd, SHUT_WR);
    ssize_t n = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
    bool left = n == 0 || (n < 0 && errno != EAGAIN);
    for (int i = 0; i < 16 && n > 0; i++)
        n = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
    (void)close(fd);
    return left;
}

void channel_end(struct transport *t, struct channel *c)
{
    if (c->fd < 0)
        return;
    c->was_open = c->zmtp.state == ZMTP_OPEN;
    t->by_fd[c->fd] = NULL;
    c->was_probe = hang_up(c->fd) && c->zmtp.state == ZMTP_GREETING && c->zmtp.n_head == 0;
    c->fd = -1;
    t->n_connections--;
    t->pending -= c->pending;
    parcels_free(&c->out);
    zmtp_close(&c->zmtp);
    c->n_lists++;
    c->next_gone = t->gone;
    t->gone = c;
}

int channel_watch_room(const struct transport *t, struct channel *c, bool for_room)
{
    struct epoll_event what = {.events = EPOLLIN | EPOLLRDHUP | (for_room ? EPOLLOUT : 0), .data.fd = c->fd};
    c->awaits_room = for_room;
    return epoll_ctl(t->poll, EPOLL_CTL_MOD, c->fd, &what);
}

int channel_take_protocol_bytes(struct transport *t, struct channel *c)
{
    struct zmtp *z = &c->zmtp;
    if (z->n_out == 0)
        return 0;
    if (parcels_add(&c->out, z->out, z->n_out) == NULL)
        return -1;
    z->out = NULL;
    z->n_out = z->out_capacity = 0;
    channel_add_dirty(t, c);
    return 0;
}

static int keep_channel(struct transport *t, struct channel *c)
{
    struct epoll_event what = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = c->fd};
    if (c->fd >= t->n_fds) {
        int n = 2 * c->fd + 64;
        struct channel **more = realloc(t->by_fd, (size_t)n * sizeof(struct channel *));
        if (more == NULL)
            return -1;
        memset(more + t->n_fds, 0, (size_t)(n - t->n_fds) * sizeof(struct channel *));
        t->by_fd = more;
        t->n_fds = n;
    }
    if (epoll_ctl(t->poll, EPOLL_CTL_ADD, c->fd, &what) != 0)
        return -1;
    t->by_fd[c->fd] = c;
    t->n_connections++;
    return 0;
}

/* The kernel notices a lost host; missing heartbeats reveal a stopped client. */
static void set_options(const struct transport *t, int fd)
{
    static const int options[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},   {IPPROTO_TCP, TCP_KEEPIDLE, 1}, /* s of silence before probes */
        {IPPROTO_TCP, TCP_KEEPCNT, 3},                                   /* number of probes, */
        {IPPROTO_TCP, TCP_KEEPINTVL, 1}, {IPPROTO_TCP, TCP_NODELAY, 1},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0] && !t->is_ipc; i++)
        (void)setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
}

void channel_open(struct transport *t, int fd)
{
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)close(fd);
        return;
    }
    c->fd = fd;
    c->number = ++t->last_number;
    c->born = c->heard = seconds_now();
    set_options(t, fd);
    zmtp_open(&c->zmtp, t->has_curve ? &t->keys : NULL, t->max_bytes);
    if (keep_channel(t, c) != 0) {
        (void)close(fd);
        zmtp_close(&c->zmtp);
        free(c);
    } else if (channel_take_protocol_bytes(t, c) != 0) {
        channel_end(t, c);
    }
}
