/* gateway/http/conn.c - see conn.h. A client's bytes are read in pieces into `in`, from which first the headers are
 * taken, then the body; the next request stays in `in` until the answer is sent. */
#include "gateway/http/conn.h"
#include "gateway/http/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_AHEAD ((size_t)64 << 10) /* of the next requests */

static struct http_conn *of_due(struct due *d)
{
    return (struct http_conn *)((char *)d - offsetof(struct http_conn, due));
}

static void count_held(struct http_conn *c)
{
    size_t held = c->in.capacity + c->out.capacity + c->content.capacity;
    c->server->n_buffered += held - c->held;
    c->held = held;
}

/* The number of bytes to read now: a whole body, but little of the next requests. */
static size_t room(const struct http_conn *c)
{
    if (c->state == HTTP_READS_BODY && !c->body.done)
        return CONN_PIECE_BYTES;
    return bytes_count(&c->in) < READ_AHEAD ? READ_AHEAD - bytes_count(&c->in) : 0;
}

static void watch_socket(struct http_conn *c)
{
    if (bytes_count(&c->in) == 0)
        bytes_free(&c->in);
    bool reads = !c->half && room(c) > 0;
    uint32_t events = (reads ? EPOLLIN : 0u) | (c->blocked ? EPOLLOUT : 0u) | (c->half ? 0u : EPOLLRDHUP);
    loop_change(c->server->loop, &c->watch, events);
}

static void forget_request(struct http_conn *c)
{
    bytes_free(&c->content);
    count_held(c);
    free(c->head);
    free(c->text);
    c->head = NULL;
    c->text = NULL;
}

static void unlink_dirty(struct http_conn *c)
{
    for (struct http_conn **at = &c->server->dirty; *at != NULL; at = &(*at)->next_dirty)
        if (*at == c) {
            *at = c->next_dirty;
            return;
        }
}

static void leave_turns(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_conn *before = NULL;
    for (struct http_conn *one = s->turn_first; one != c; one = one->next_turn)
        before = one;
    *(before != NULL ? &before->next_turn : &s->turn_first) = c->next_turn;
    if (s->turn_last == c)
        s->turn_last = before;
    c->waits_turn = false;
}

static void join_turns(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->waits_turn)
        return;
    due_unset(&c->due);
    c->waits_turn = true;
    c->next_turn = NULL;
    *(s->turn_last != NULL ? &s->turn_last->next_turn : &s->turn_first) = c;
    s->turn_last = c;
}

void conn_close(struct http_conn *c, bool left)
{
    struct http_server *s = c->server;
    int fd = c->watch.fd;
    if (fd < 0)
        return;
    loop_unwatch(s->loop, &c->watch);
    due_unset(&c->due);
    if (c->is_dirty)
        unlink_dirty(c);
    if (c->waits_turn)
        leave_turns(c);
    if (c->is_told) {
        c->is_told = false;
        s->handler.over(s->handler.context, c, left);
    }
    if (c->previous != NULL)
        c->previous->next = c->next;
    else
        s->first = c->next;
    if (c->next != NULL)
        c->next->previous = c->previous;
    bytes_free(&c->in);
    bytes_free(&c->out);
    forget_request(c);
    (void)close(fd);
    loop_bury(s->loop, c);
    server_lost_one(s);
}

/* Answers a malformed request and ends the connection, since the start of the next one is unknown. */
static void refuse_request(struct http_conn *c, const struct http_refusal *r)
{
    struct bytes body = {0};
    struct http_server *s = c->server;
    s->n_refused++;
    due_unset(&c->due);
    c->keep = false;
    c->bodiless = false;
    s->handler.refused(s->handler.context, c, r, &body);
    answer_whole(c, r->status, "", "application/json", bytes_start(&body), bytes_count(&body));
    bytes_free(&body);
    c->state = HTTP_ENDS;
}

/* The request is complete. */
static void tell(struct http_conn *c)
{
    struct http_server *s = c->server;
    due_unset(&c->due);
    c->state = HTTP_ANSWERS;
    c->is_told = true;
    c->status = 0;
    c->bytes_out = 0;
    c->streams = c->chunked = false;
    c->bodiless = strcmp(c->head->method, "HEAD") == 0;
    c->keep = c->head->keep && !s->closing;
    s->handler.request(s->handler.context, c);
}

static void read_body(struct http_conn *c, struct http_refusal *r)
{
    struct http_server *s = c->server;
    size_t n = http_body_feed(&c->body, bytes_start(&c->in), bytes_count(&c->in), &c->content, r);
    bytes_consume(&c->in, n);
    count_held(c);
    if (c->content.failed || s->n_buffered > s->setup.max_buffered)
        *r = (struct http_refusal){503, "the gateway's memory for requests is full"};
}

/* Takes the headers from the received bytes. */
static void take_head(struct http_conn *c, size_t bytes, struct http_refusal *r)
{
    c->head = calloc(1, sizeof *c->head);
    c->text = malloc(bytes);
    if (c->head == NULL || c->text == NULL) {
        *r = (struct http_refusal){503, "out of host memory"};
        return;
    }
    memcpy(c->text, bytes_start(&c->in), bytes);
    bytes_consume(&c->in, bytes);
    c->scanned = 0;
    if (http_head_read(c->head, c->text, bytes, r) != 0 ||
        http_body_begin(&c->body, c->head, c->server->setup.max_body, r) != 0)
        return;
    c->state = HTTP_READS_BODY;
    due_set(c->server->loop, &c->server->bodies, &c->due);
    if (c->head->expects && !c->body.done && bytes_count(&c->in) == 0)
        bytes_text(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void read_head(struct http_conn *c, struct http_refusal *r)
{
    if (c->scanned == 0 && bytes_count(&c->in) >= 2 && memcmp(bytes_start(&c->in), "\r\n", 2) == 0)
        bytes_consume(&c->in, 2); /* some clients end a body with CRLF */
    if (bytes_count(&c->in) == 0)
        return;
    if (c->scanned == 0)
        due_set(c->server->loop, &c->server->heads, &c->due);
    size_t bytes = http_head_find(bytes_start(&c->in), bytes_count(&c->in), &c->scanned, r);
    if (bytes > 0)
        take_head(c, bytes, r);
}

/* Handles received bytes, up to one request. true: it made progress, call again. */
static bool read_request(struct http_conn *c)
{
    struct http_refusal r = {0};
    enum http_state before = c->state;
    if (c->state == HTTP_READS_HEAD)
        read_head(c, &r);
    if (r.status == 0 && c->state == HTTP_READS_BODY)
        read_body(c, &r);
    if (r.status != 0)
        refuse_request(c, &r);
    else if (c->state == HTTP_READS_BODY && c->body.done && bytes_count(&c->content) > HTTP_LARGE_BYTES)
        join_turns(c);
    else if (c->state == HTTP_READS_BODY && c->body.done)
        tell(c);
    return c->state != before && c->state != HTTP_READS_BODY;
}

/* Sends pending bytes; false: the connection is closed. */
static bool send_out(struct http_conn *c)
{
    size_t before = bytes_count(&c->out);
    c->blocked = false;
    while (bytes_count(&c->out) > 0 && !c->blocked) {
        ssize_t n = send(c->watch.fd, bytes_start(&c->out), bytes_count(&c->out), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            conn_close(c, true);
            return false;
        }
        c->blocked = n < 0 && errno == EAGAIN;
        bytes_consume(&c->out, n > 0 ? (size_t)n : 0);
    }
    size_t left = bytes_count(&c->out);
    bool slow = c->streams && c->is_told && left > c->server->setup.max_backlog;
    if (c->out.failed || slow) {
        c->server->n_slow += slow;
        conn_close(c, true);
        return false;
    }
    if (!c->blocked && c->state >= HTTP_ANSWERS)
        due_unset(&c->due);
    if (c->blocked && (left < before || c->due.next == NULL) && c->state >= HTTP_ANSWERS)
        due_set(c->server->loop, &c->server->stalls, &c->due);
    return true;
}

/* The answer is sent: resets the state for the next request. */
static void begin_anew(struct http_conn *c)
{
    forget_request(c);
    c->state = HTTP_READS_HEAD;
    c->scanned = 0;
    due_set(c->server->loop, &c->server->idle, &c->due);
}

/* The last bytes are sent. A client that still sends would lose them by a reset, so its data is read and dropped for a
 * while. */
static void begin_lingering(struct http_conn *c)
{
    forget_request(c);
    bytes_free(&c->in);
    c->state = HTTP_LINGERS;
    if (c->half || shutdown(c->watch.fd, SHUT_WR) != 0) {
        conn_close(c, false);
        return;
    }
    due_set(c->server->loop, &c->server->lingers, &c->due);
    loop_change(c->server->loop, &c->watch, EPOLLIN);
}

static void linger(struct http_conn *c)
{
    ssize_t n = recv(c->watch.fd, c->server->scratch, CONN_PIECE_BYTES, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        conn_close(c, false);
}

/* If unread answers take too much memory together, the connection with the largest one is closed. */
static void bound_unread(struct http_server *s)
{
    while (s->n_buffered > s->setup.max_buffered) {
        struct http_conn *largest = NULL;
        for (struct http_conn *c = s->first; c != NULL; c = c->next)
            if (c->blocked && (largest == NULL || c->out.capacity > largest->out.capacity))
                largest = c;
        if (largest == NULL)
            return;
        s->n_slow++;
        conn_close(largest, true);
    }
}

void conn_take_turn(struct http_server *s)
{
    struct http_conn *c = s->turn_first;
    if (c == NULL)
        return;
    leave_turns(c);
    tell(c);
    conn_go_on(c);
}

void conn_go_on(struct http_conn *c)
{
    for (;;) {
        if (!send_out(c))
            return;
        bool idle = bytes_count(&c->out) == 0;
        if (idle && c->state == HTTP_ENDS && !c->is_told && !c->keep) {
            begin_lingering(c);
            return;
        }
        if (idle && c->state == HTTP_ENDS && !c->is_told)
            begin_anew(c);
        if (c->state >= HTTP_ANSWERS)
            break;
        bool more = read_request(c);
        if (c->watch.fd < 0)
            return;
        if (!more && (bytes_count(&c->out) == 0 || c->blocked))
            break;
    }
    bool waits = c->state < HTTP_ANSWERS || (c->state == HTTP_ANSWERS && c->is_told);
    if (c->half && waits) { /* the client does not wait for the answer, or its request never ends */
        conn_close(c, true);
        return;
    }
    watch_socket(c);
    count_held(c);
    bound_unread(c->server);
}

/* false: the connection is closed. */
static bool receive(struct http_conn *c)
{
    if (c->half || room(c) == 0)
        return true;
    ssize_t n = recv(c->watch.fd, c->server->scratch, room(c), 0);
    c->half = n == 0;
    if (n > 0)
        bytes_append(&c->in, c->server->scratch, (size_t)n);
    if (!c->in.failed && (n >= 0 || errno == EAGAIN || errno == EINTR))
        return true;
    conn_close(c, true);
    return false;
}

static void ready(struct fd_watch *w, uint32_t events)
{
    struct http_conn *c = (struct http_conn *)w;
    if (c->state == HTTP_LINGERS) {
        linger(c);
        return;
    }
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 && (events & EPOLLIN) == 0) {
        conn_close(c, true);
        return;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP)) != 0 && !receive(c))
        return;
    if ((events & EPOLLRDHUP) != 0 && c->state >= HTTP_ANSWERS)
        c->half = true; /* it has left, whatever it sent before */
    conn_go_on(c);
}

struct http_conn *conn_open(struct http_server *s, int fd)
{
    struct err e = {0};
    struct http_conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)close(fd);
        return NULL;
    }
    *c = (struct http_conn){.watch = {.fd = fd, .ready = ready}, .server = s, .next = s->first};
    if (loop_watch(s->loop, &c->watch, EPOLLIN | EPOLLRDHUP, &e) != 0) {
        (void)close(fd);
        free(c);
        return NULL;
    }
    if (s->first != NULL)
        s->first->previous = c;
    s->first = c;
    s->n_connections++;
    s->n_accepted++;
    due_set(s->loop, &s->idle, &c->due);
    return c;
}

static void late(struct due *d, const char *what)
{
    struct http_conn *c = of_due(d);
    refuse_request(c, &(struct http_refusal){408, what});
    conn_go_on(c);
}

void conn_head_late(struct due *d)
{
    late(d, "the request's head did not arrive in time");
}

void conn_body_late(struct due *d)
{
    late(d, "the request's body did not arrive in time");
}

void conn_idle(struct due *d)
{
    conn_close(of_due(d), true);
}

void conn_stalled(struct due *d)
{
    struct http_conn *c = of_due(d);
    c->server->n_slow++;
    conn_close(c, true);
}

void conn_lingered(struct due *d)
{
    conn_close(of_due(d), false);
}
