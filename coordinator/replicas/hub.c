/* coordinator/replicas/hub.c - see hub.h. */
#include "coordinator/replicas/hub.h"
#include "coordinator/replicas/order_code.h"
#include "coordinator/replicas/report_code.h"
#include "coordinator/tasks/mailbox.h"

#include "base/clock.h"
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define TURN_MESSAGES 64 /* of leaders, before orders have a turn again */

enum poll_item { POLL_ROUTER, POLL_MONITOR, POLL_ZAP, POLL_MAILBOXES };

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = ((const struct task *)a)->number, y = ((const struct task *)b)->number;
    return x < y ? -1 : x > y;
}

/* For report_decode. replica: the struct hub_replica. */
static struct task *find_task(void *replica, uint64_t number, bool take)
{
    struct hub_replica *g = replica;
    struct task key;
    key.number = number;
    struct task **found = tfind(&key, &g->tasks, compare_numbers), *j = found != NULL ? *found : NULL;
    if (j != NULL && take)
        (void)tdelete(j, &g->tasks, compare_numbers);
    return j;
}

/* ---- a replica that is lost ---- */

/* In words, with its ranks. */
static void fail(struct hub *h, int replica, enum err_code code, const char *what)
{
    struct err e = {0};
    const struct hub_replica *g = &h->replica[replica];
    int first = replica * h->replica_size, last = first + h->replica_size - 1;
    char ranks[60];
    (void)snprintf(ranks, sizeof ranks, first < last ? "ranks %d-%d, led by rank %d" : "rank %d", first, last, first);
    ERR(&e, code, "replica %d of %d (%s on %s): %s", replica, h->n_replicas, ranks,
        g->connected ? g->host : "an unknown host", what);
    link_raise(&h->alarm, &e);
}

/* The failed process should speak first: see LINK_PATIENCE. */
static void lose(struct hub *h, int replica, const char *why)
{
    struct hub_replica *g = &h->replica[replica];
    if (g->ended || g->lost >= 0)
        return;
    g->lost = 0;
    (void)snprintf(g->why, sizeof g->why, "%s", why);
}

static void take_ends(struct hub *h)
{
    for (int fd; (fd = link_ended(h->monitor)) >= 0;)
        for (int i = 1; i < h->n_replicas; i++)
            if (h->replica[i].connected && h->replica[i].fd == fd)
                lose(h, i, "its connection has ended");
}

/* Nobody waits for the reports of a replica that is not there. */
static void post_end(struct hub_replica *g)
{
    struct report *r = calloc(1, sizeof *r);
    g->ended = true;
    if (r == NULL)
        return;
    r->ended = true;
    r->between_tokens.buckets = &buckets_token;
    r->iteration.buckets = &buckets_iteration;
    (void)mailbox_post(g->mailbox, r);
}

static void keep_time(struct hub *h)
{
    double passed = link_pulse_passed(&h->pulse);
    bool due = link_pulse_due(&h->pulse);
    for (int i = 1; i < h->n_replicas; i++) {
        struct hub_replica *g = &h->replica[i];
        if (!g->connected || g->ended)
            continue;
        char id[16];
        struct wire_out beat = {0};
        (void)snprintf(id, sizeof id, "%d", i);
        wire_put_u8(&beat, LINK_BEAT);
        if (due)
            (void)link_send(h->router, id, &beat); /* whom it does not reach is lost, and that is told by other means */
        wire_free(&beat);
        g->silent += passed;
        g->lost += g->lost >= 0 ? passed : 0;
        if (h->pulse.timeout > 0 && g->silent >= h->pulse.timeout && g->lost < 0) {
            char why[80];
            (void)snprintf(why, sizeof why, "no sign of life for %.4g s (--step-timeout)", h->pulse.timeout);
            lose(h, i, why);
        }
        if (g->lost >= LINK_PATIENCE) {
            fail(h, i, ERR_COMM, g->why);
            post_end(g);
        }
    }
}

/* ---- messages ---- */

static void greet(struct hub *h, int replica, const struct wire_out *m, int fd)
{
    struct hub_replica *g = &h->replica[replica];
    struct wire_in in = {m->data, m->bytes, NULL};
    struct wire_out out = {0};
    char id[16];
    (void)snprintf(id, sizeof id, "%d", replica);
    (void)wire_get_u8(&in);
    size_t n = wire_get_count(&in, LINK_HOST_BYTES - 1, 1, "a host's name");
    (void)wire_get(&in, g->host, n);
    g->host[n] = '\0';
    g->fd = fd;
    g->connected = true;
    wire_put_u8(&out, LINK_HELLO);
    (void)link_send(h->router, id, &out);
}

static void take_report(struct hub *h, int replica, const struct wire_out *m)
{
    struct hub_replica *g = &h->replica[replica];
    struct err e = {0};
    const struct report_rules rules = {h->vocab, h->replica_size, find_task, g};
    struct report *r = report_decode(m->data, m->bytes, &rules, seconds_now(), &e);
    if (r == NULL) {
        fail(h, replica, e.code, e.text);
        return;
    }
    g->ended = g->ended || r->ended;
    (void)mailbox_post(g->mailbox, r);
}

/* id: as the connection has it. */
static void take_message(struct hub *h, const char *id, const struct wire_out *m, int fd)
{
    char *end = NULL;
    long replica = strtol(id, &end, 10);
    if (end == id || *end != '\0' || replica < 1 || replica >= h->n_replicas || m->bytes < 1)
        return;
    h->replica[replica].silent = 0;
    if (m->failed)
        fail(h, (int)replica, ERR_MEMORY, "out of host memory for a report");
    else if (*m->data == LINK_HELLO)
        greet(h, (int)replica, m, fd);
    else if (*m->data != LINK_BEAT)
        take_report(h, (int)replica, m);
}

static void take_messages(struct hub *h)
{
    for (int i = 0; i < TURN_MESSAGES; i++) {
        char id[16] = "";
        struct wire_out m = {0};
        int fd, n = zmq_recv(h->router, id, sizeof id - 1, ZMQ_DONTWAIT);
        if (n < 0)
            return;
        id[n < (int)sizeof id ? n : 0] = '\0';
        bool whole = link_receive(h->router, &m, &fd);
        take_ends(h); /* before this is looked at: its descriptor may have been another connection's */
        if (whole)
            take_message(h, id, &m, fd);
        wire_free(&m);
    }
}

/* ---- orders ---- */

static void pass_order(struct hub *h, int replica, struct order *o)
{
    struct hub_replica *g = &h->replica[replica];
    struct wire_out w = {0};
    char id[16];
    (void)snprintf(id, sizeof id, "%d", replica);
    order_encode(&w, o, seconds_now());
    if (o->kind == ORDER_SUBMIT && tsearch(o->task, &g->tasks, compare_numbers) == NULL)
        w.failed = true;
    bool lacks_memory = w.failed;
    if (!link_send(h->router, id, &w) && lacks_memory)
        fail(h, replica, ERR_MEMORY, "out of host memory for an order");
    free(o);
}

static void pass_orders(struct hub *h)
{
    struct order *o;
    for (int i = 1; i < h->n_replicas; i++)
        while (h->replica[i].connected && (o = mailbox_take(h->replica[i].mailbox)) != NULL)
            pass_order(h, i, o);
}

static bool all_ended(const struct hub *h)
{
    bool all = true;
    for (int i = 1; i < h->n_replicas; i++)
        all = all && h->replica[i].ended;
    return all;
}

static void *run_hub(void *context)
{
    struct hub *h = context;
    zmq_pollitem_t *item = calloc((size_t)h->n_replicas + POLL_MAILBOXES, sizeof *item);
    while (item != NULL && !all_ended(h)) {
        int n = POLL_MAILBOXES;
        item[POLL_ROUTER] = (zmq_pollitem_t){.socket = h->router, .events = ZMQ_POLLIN};
        item[POLL_MONITOR] = (zmq_pollitem_t){.socket = h->monitor, .events = ZMQ_POLLIN};
        item[POLL_ZAP] = (zmq_pollitem_t){.socket = h->curve.zap, .events = ZMQ_POLLIN};
        for (int i = 1; i < h->n_replicas; i++)
            if (h->replica[i].connected)
                item[n++] = (zmq_pollitem_t){.socket = h->replica[i].mailbox, .events = ZMQ_POLLIN};
        (void)zmq_poll(item, n, (long)(1e3 * h->pulse.interval));
        curve_answer(&h->curve);
        take_ends(h);
        take_messages(h);
        pass_orders(h);
        keep_time(h);
    }
    free(item);
    return NULL;
}

/* ---- opening and closing ---- */

static int open_sockets(struct hub *h, struct link_card *card, bool local, struct err *e)
{
    const int yes = 1;
    char endpoint[128] = "";
    size_t bytes = sizeof endpoint;
    h->context = zmq_ctx_new();
    if (h->context == NULL)
        return ERR(e, ERR_MEMORY, "no ZeroMQ context for the links between replicas");
    if (curve_open(&h->curve, h->context, NULL, e) != 0)
        return -1;
    h->router = zmq_socket(h->context, ZMQ_ROUTER);
    if (h->router == NULL || zmq_setsockopt(h->router, ZMQ_ROUTER_MANDATORY, &yes, sizeof yes) != 0)
        return ERR(e, ERR_IO, "ZeroMQ socket for the links between replicas: %s", zmq_strerror(errno));
    if (link_configure(h->router, e) != 0 || curve_apply(&h->curve, h->router, e) != 0 ||
        link_monitor(h->context, h->router, "inproc://links", &h->monitor, e) != 0)
        return -1;
    if (zmq_bind(h->router, local ? "tcp://127.0.0.1:*" : "tcp://*:*") != 0 ||
        zmq_getsockopt(h->router, ZMQ_LAST_ENDPOINT, endpoint, &bytes) != 0)
        return ERR(e, ERR_IO, "the links between replicas: no port: %s", zmq_strerror(errno));
    card->port = (int32_t)atoi(strrchr(endpoint, ':') + 1);
    (void)snprintf(card->server_key, sizeof card->server_key, "%s", h->curve.public_key);
    (void)snprintf(card->public_key, sizeof card->public_key, "%s", h->curve.client_public);
    (void)snprintf(card->secret_key, sizeof card->secret_key, "%s", h->curve.client_secret);
    return link_addresses(card, local, e);
}

int hub_open(struct hub *h, const struct replicas *replicas, struct link_card *card, bool local, struct err *e)
{
    memset(h, 0, sizeof *h);
    h->n_replicas = card->n_replicas;
    h->replica_size = card->replica_size;
    h->vocab = card->vocab;
    h->replica = err_calloc(e, (unsigned long)h->n_replicas, sizeof *h->replica, "replicas");
    if (h->replica == NULL || open_sockets(h, card, local, e) != 0)
        return -1;
    for (int i = 1; i < h->n_replicas; i++) {
        h->replica[i].mailbox = replicas->replica[i].end[1];
        h->replica[i].lost = -1;
    }
    link_pulse_open(&h->pulse, card->timeout);
    if (pthread_create(&h->thread, NULL, run_hub, h) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread for the links between replicas");
    h->running = true;
    return 0;
}

int hub_check(struct hub *h, struct err *e)
{
    return link_check(&h->alarm, e);
}

static void forget(void *task)
{
    (void)task; /* of a replica that was lost: its client's, or its line's */
}

int hub_close(struct hub *h, struct err *e)
{
    if (h->running)
        (void)pthread_join(h->thread, NULL);
    for (int i = 1; h->replica != NULL && i < h->n_replicas; i++)
        tdestroy(h->replica[i].tasks, forget);
    int status = link_check(&h->alarm, e);
    if (h->router != NULL) {
        (void)zmq_socket_monitor(h->router, NULL, 0);
        (void)zmq_close(h->router);
    }
    if (h->monitor != NULL)
        (void)zmq_close(h->monitor);
    curve_close(&h->curve);
    while (h->context != NULL && zmq_ctx_term(h->context) != 0 && errno == EINTR)
        continue;
    free(h->replica);
    memset(h, 0, sizeof *h);
    return status;
}
