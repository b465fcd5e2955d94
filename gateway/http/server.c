/* gateway/http/server.c - see server.h. */
#include "gateway/http/server.h"
#include "gateway/http/conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_SECONDS 2
#define MAPPED         "::ffff:"

static void peer_name(const struct sockaddr_storage *a, socklen_t bytes, char *text, size_t room)
{
    if (a->ss_family == AF_UNIX ||
        getnameinfo((const struct sockaddr *)a, bytes, text, (socklen_t)room, NULL, 0, NI_NUMERICHOST) != 0)
        (void)snprintf(text, room, "unix");
    if (strncmp(text, MAPPED, strlen(MAPPED)) == 0 && strchr(text, '.') != NULL) /* IPv4 at a socket of both */
        memmove(text, text + strlen(MAPPED), strlen(text + strlen(MAPPED)) + 1);
}

/* Sends small pieces at once (TCP_NODELAY), and detects a client whose machine is gone (keepalive). */
static void set_options(int fd)
{
    const int yes = 1, idle = 30, between = 10, most = 3;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

static void watch_listeners(struct http_server *s, uint32_t events)
{
    for (int i = 0; i < s->n_listeners; i++)
        loop_change(s->loop, &s->listener[i].watch, events);
    s->paused = events == 0;
}

/* If descriptors or connections run out, new clients wait in the kernel's backlog until a connection is closed. */
static void accept_clients(struct fd_watch *w, uint32_t events)
{
    struct http_listener *l = (struct http_listener *)w;
    struct http_server *s = l->server;
    (void)events;
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage a = {0};
        socklen_t bytes = sizeof a;
        if (s->n_connections >= s->setup.max_connections) {
            watch_listeners(s, 0);
            return;
        }
        int fd = accept4(w->fd, (struct sockaddr *)&a, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) && s->first != NULL)
            watch_listeners(s, 0);
        if (fd < 0)
            return;
        set_options(fd);
        struct http_conn *c = conn_open(s, fd);
        if (c != NULL)
            peer_name(&a, bytes, c->peer, sizeof c->peer);
    }
}

void server_lost_one(struct http_server *s)
{
    s->n_connections--;
    if (s->paused && !s->closing)
        watch_listeners(s, EPOLLIN);
}

static bool flush_dirty(struct loop_step *step)
{
    struct http_server *s = (struct http_server *)((char *)step - offsetof(struct http_server, flush));
    bool any = s->dirty != NULL;
    while (s->dirty != NULL) {
        struct http_conn *c = s->dirty;
        s->dirty = c->next_dirty;
        c->is_dirty = false;
        conn_go_on(c);
    }
    return any; /* backends are polled before the loop sleeps: a request may have been answered */
}

/* One large body per round: other requests are served in between. */
static bool take_turn(struct loop_step *step)
{
    struct http_server *s = (struct http_server *)((char *)step - offsetof(struct http_server, turns));
    bool any = s->turn_first != NULL;
    conn_take_turn(s);
    return any;
}

static int open_listener(struct http_server *s, const char *where, struct err *e)
{
    struct http_listener *l = &s->listener[s->n_listeners];
    *l = (struct http_listener){.watch = {.fd = -1, .ready = accept_clients}, .server = s};
    l->watch.fd = http_listen(where, l->shown, e);
    if (l->watch.fd < 0)
        return -1;
    l->path = http_listen_path(where);
    s->n_listeners++;
    return loop_watch(s->loop, &l->watch, EPOLLIN, e);
}

int http_server_open(struct http_server *s, struct loop *l, const struct http_setup *setup,
                     const struct http_handler *handler, const char *const *listen, int n, struct err *e)
{
    *s = (struct http_server){
        .loop = l, .setup = *setup, .handler = *handler, .flush = {.run = flush_dirty}, .turns = {.run = take_turn}};
    s->heads = (struct due_list){.seconds = setup->head_seconds, .come = conn_head_late};
    s->bodies = (struct due_list){.seconds = setup->body_seconds, .come = conn_body_late};
    s->idle = (struct due_list){.seconds = setup->idle_seconds, .come = conn_idle};
    s->stalls = (struct due_list){.seconds = setup->idle_seconds, .come = conn_stalled};
    s->lingers = (struct due_list){.seconds = LINGER_SECONDS, .come = conn_lingered};
    s->scratch = err_calloc(e, 1, CONN_PIECE_BYTES, "a piece of the clients' data");
    if (s->scratch == NULL)
        return -1;
    loop_add_list(l, &s->heads);
    loop_add_list(l, &s->bodies);
    loop_add_list(l, &s->idle);
    loop_add_list(l, &s->stalls);
    loop_add_list(l, &s->lingers);
    loop_add_step(l, &s->turns);
    loop_add_step(l, &s->flush);
    for (int i = 0; i < n; i++)
        if (open_listener(s, listen[i], e) != 0)
            return -1;
    return 0;
}

static void close_listeners(struct http_server *s)
{
    for (int i = 0; i < s->n_listeners; i++) {
        struct http_listener *l = &s->listener[i];
        int fd = l->watch.fd;
        loop_unwatch(s->loop, &l->watch);
        if (fd >= 0 && l->path != NULL)
            (void)unlink(l->path);
        if (fd >= 0)
            (void)close(fd);
    }
    s->n_listeners = 0;
}

void http_server_drain(struct http_server *s)
{
    s->closing = true;
    close_listeners(s);
    for (struct http_conn *c = s->first, *next; c != NULL; c = next) {
        next = c->next;
        c->keep = false;
        if (c->state == HTTP_READS_HEAD && bytes_count(&c->in) == 0 && bytes_count(&c->out) == 0)
            conn_close(c, true);
    }
}

void http_server_close(struct http_server *s)
{
    s->closing = true;
    if (s->loop == NULL)
        return;
    close_listeners(s);
    while (s->first != NULL)
        conn_close(s->first, true);
    free(s->scratch);
    s->scratch = NULL;
}
