/* coordinator/replicas/hub.c - see hub.h. */
#include "coordinator/replicas/hub.h"
#include "coordinator/replicas/model_code.h"
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

#define TURN_MESSAGES 64 /* messages of leaders before orders are processed again */

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
    struct task **found = tfind(&key, &g->tasks, compare_numbers), *task = found != NULL ? *found : NULL;
    if (task != NULL && take)
        (void)tdelete(task, &g->tasks, compare_numbers);
    return task;
}

/* ---- lost replicas ---- */

/* Describes the failure, with the replica's ranks. */
static void fail_replica(struct hub *h, int replica, enum err_code code, const char *what)
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

/* The failed process should report first: see LINK_PATIENCE. */
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

static void *mailbox_of(const struct hub *h, int replica, int slot)
{
    return h->replicas->replica[replica * h->n_slots + slot].end[1];
}

static void say_end(struct hub_replica *g)
{
    struct model_word *w = calloc(1, sizeof *w);
    if (w == NULL)
        return;
    w->kind = MODEL_ENDED;
    (void)mailbox_post(g->control, w);
}

/* No message is expected from a lost replica any more. */
static void post_end(struct hub *h, int replica)
{
    struct hub_replica *g = &h->replica[replica];
    struct report *r = g->control == NULL ? calloc(1, sizeof *r) : NULL;
    g->ended = true;
    if (g->control != NULL)
        say_end(g);
    if (r == NULL)
        return;
    r->ended = true;
    r->between_tokens.buckets = &buckets_token;
    r->iteration.buckets = &buckets_iteration;
    (void)mailbox_post(mailbox_of(h, replica, 0), r);
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
        wire_put_u8(&beat, 0);
        wire_put_u8(&beat, LINK_BEAT);
        if (due)
            (void)link_send(h->router, id, &beat); /* a leader that it does not reach is lost, which is reported
                                                      elsewhere */
        wire_free(&beat);
        g->silent += passed;
        g->lost += g->lost >= 0 ? passed : 0;
        if (h->pulse.timeout > 0 && g->silent >= h->pulse.timeout && g->lost < 0) {
            char why[80];
            (void)snprintf(why, sizeof why, "no sign of life for %.4g s (--step-timeout)", h->pulse.timeout);
            lose(h, i, why);
        }
        if (g->lost >= LINK_PATIENCE) {
            fail_replica(h, i, ERR_COMM, g->why);
            post_end(h, i);
        }
    }
}

/* ---- messages ---- */

static void greet_leader(struct hub *h, int replica, const struct wire_out *m, int fd)
{
    struct hub_replica *g = &h->replica[replica];
    struct wire_in in = {m->data + 2, m->bytes - 2, NULL};
    struct wire_out out = {0};
    char id[16];
    (void)snprintf(id, sizeof id, "%d", replica);
    size_t n = wire_get_count(&in, LINK_HOST_BYTES - 1, 1, "a host's name");
    (void)wire_get(&in, g->host, n);
    g->host[n] = '\0';
    g->fd = fd;
    g->connected = true;
    wire_put_u8(&out, 0);
    wire_put_u8(&out, LINK_HELLO);
    (void)link_send(h->router, id, &out);
}

static void take_report(struct hub *h, int replica, int slot, const struct wire_out *m)
{
    struct hub_replica *g = &h->replica[replica];
    struct err e = {0};
    const struct report_rules rules = {g->vocab[slot], h->replica_size, find_task, g};
    struct report *r = report_decode(m->data + 1, m->bytes - 1, &rules, seconds_now(), &e);
    if (r == NULL) {
        fail_replica(h, replica, e.code, e.text);
        return;
    }
    g->ended = g->ended || (g->control == NULL && r->ended); /* several models: each ends when it is unloaded */
    (void)mailbox_post(mailbox_of(h, replica, slot), r);
}

static void take_word(struct hub *h, int replica, const struct wire_out *m)
{
    struct hub_replica *g = &h->replica[replica];
    struct err e = {0};
    struct model_word *w = model_word_decode(m->data + 1, m->bytes - 1, h->n_slots, &e);
    if (w == NULL) {
        fail_replica(h, replica, e.code, e.text);
        return;
    }
    g->ended = g->ended || w->kind == MODEL_ENDED;
    (void)mailbox_post(g->control, w);
}

/* id: as the connection has it. */
static void take_message(struct hub *h, const char *id, const struct wire_out *m, int fd)
{
    char *end = NULL;
    long replica = strtol(id, &end, 10);
    if (end == id || *end != '\0' || replica < 1 || replica >= h->n_replicas || m->bytes < 2)
        return;
    h->replica[replica].silent = 0;
    if (m->failed)
        fail_replica(h, (int)replica, ERR_MEMORY, "out of host memory for a report");
    else if (m->data[0] >= h->n_slots)
        fail_replica(h, (int)replica, ERR_COMM, "a message for a slot that does not exist");
    else if (m->data[1] == LINK_HELLO)
        greet_leader(h, (int)replica, m, fd);
    else if (m->data[1] == LINK_MODEL_WORD && h->replica[replica].control != NULL)
        take_word(h, (int)replica, m);
    else if (m->data[1] != LINK_BEAT)
        take_report(h, (int)replica, m->data[0], m);
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
        take_ends(h); /* before the events are processed: its descriptor may have been another connection's */
        if (whole)
            take_message(h, id, &m, fd);
        wire_free(&m);
    }
}

/* ---- orders ---- */

/* A leader that it does not reach is lost, which is reported elsewhere. */
static void send_order(struct hub *h, int replica, struct wire_out *w)
{
    char id[16];
    bool lacks_memory = w->failed;
    (void)snprintf(id, sizeof id, "%d", replica);
    if (!link_send(h->router, id, w) && lacks_memory)
        fail_replica(h, replica, ERR_MEMORY, "out of host memory for an order");
}

static void pass_order(struct hub *h, int replica, int slot, struct order *o)
{
    struct wire_out w = {0};
    wire_put_u8(&w, (unsigned)slot);
    order_encode(&w, o, seconds_now());
    if (o->kind == ORDER_SUBMIT && tsearch(o->task, &h->replica[replica].tasks, compare_numbers) == NULL)
        w.failed = true;
    send_order(h, replica, &w);
    free(o);
}

static void pass_model_order(struct hub *h, int replica, struct model_order *o)
{
    struct wire_out w = {0};
    wire_put_u8(&w, 0);
    model_order_encode(&w, o);
    if (o->kind == MODEL_LOAD)
        h->replica[replica].vocab[o->slot] = o->vocab;
    send_order(h, replica, &w);
    free(o);
}

/* Sends tasks before orders about models: a model is unloaded only when nothing of it is under way. */
static void pass_orders_of(struct hub *h, int replica)
{
    struct order *o;
    struct model_order *m;
    void *control = h->replica[replica].control;
    for (int i = 0; i < h->n_slots; i++)
        while ((o = mailbox_take(mailbox_of(h, replica, i))) != NULL)
            pass_order(h, replica, i, o);
    while (control != NULL && (m = mailbox_take(control)) != NULL)
        pass_model_order(h, replica, m);
}

static void pass_orders(struct hub *h)
{
    for (int i = 1; i < h->n_replicas; i++)
        if (h->replica[i].connected)
            pass_orders_of(h, i);
}

static bool all_ended(const struct hub *h)
{
    bool all = true;
    for (int i = 1; i < h->n_replicas; i++)
        all = all && h->replica[i].ended;
    return all;
}

/* Appends the mailboxes of connected sets, from number n on. Returns the new number. */
static int poll_mailboxes(const struct hub *h, zmq_pollitem_t *item, int n)
{
    for (int i = 1; i < h->n_replicas; i++) {
        if (!h->replica[i].connected)
            continue;
        for (int k = 0; k < h->n_slots; k++)
            item[n++] = (zmq_pollitem_t){.socket = mailbox_of(h, i, k), .events = ZMQ_POLLIN};
        if (h->replica[i].control != NULL)
            item[n++] = (zmq_pollitem_t){.socket = h->replica[i].control, .events = ZMQ_POLLIN};
    }
    return n;
}

static void *run_hub(void *context)
{
    struct hub *h = context;
    zmq_pollitem_t *item = calloc((size_t)h->n_replicas * (size_t)(h->n_slots + 1) + POLL_MAILBOXES, sizeof *item);
    while (item != NULL && !all_ended(h)) {
        item[POLL_ROUTER] = (zmq_pollitem_t){.socket = h->router, .events = ZMQ_POLLIN};
        item[POLL_MONITOR] = (zmq_pollitem_t){.socket = h->monitor, .events = ZMQ_POLLIN};
        item[POLL_ZAP] = (zmq_pollitem_t){.socket = h->curve.zap, .events = ZMQ_POLLIN};
        (void)zmq_poll(item, poll_mailboxes(h, item, POLL_MAILBOXES), (long)(1e3 * h->pulse.interval));
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

static int open_sets(struct hub *h, void *const *control, int vocab, struct err *e)
{
    h->replica = err_calloc(e, (unsigned long)h->n_replicas, sizeof *h->replica, "replicas");
    for (int i = 0; h->replica != NULL && i < h->n_replicas; i++) {
        struct hub_replica *g = &h->replica[i];
        g->lost = -1;
        g->control = control != NULL ? control[i] : NULL;
        g->vocab = err_calloc(e, (unsigned long)h->n_slots, sizeof *g->vocab, "replicas");
        for (int k = 0; g->vocab != NULL && k < h->n_slots; k++)
            g->vocab[k] = vocab;
    }
    return e->code == ERR_NONE ? 0 : -1;
}

int hub_open(struct hub *h, const struct replicas *replicas, void *const *control, struct link_card *card, bool local,
             struct err *e)
{
    memset(h, 0, sizeof *h);
    h->n_replicas = card->n_replicas;
    h->replica_size = card->replica_size;
    h->n_slots = replicas->n / card->n_replicas;
    h->replicas = replicas;
    if (open_sets(h, control, card->vocab, e) != 0 || open_sockets(h, card, local, e) != 0)
        return -1;
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
    (void)task; /* tasks of a lost replica, which belong to clients or lines */
}

int hub_close(struct hub *h, struct err *e)
{
    if (h->running)
        (void)pthread_join(h->thread, NULL);
    for (int i = 0; h->replica != NULL && i < h->n_replicas; i++) {
        tdestroy(h->replica[i].tasks, forget);
        free(h->replica[i].vocab);
    }
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
