/* coordinator/replicas/leader_link.c - see leader_link.h. */
#include "coordinator/replicas/leader_link.h"
#include "base/clock.h"
#include "coordinator/replicas/model_code.h"
#include "coordinator/replicas/report_code.h"
#include "coordinator/tasks/mailbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define HELLO_MS  30000 /* a busy machine, many leaders at once */
#define LINGER_MS 5000  /* for the last report */

static void fail_link(struct leader_link *l, enum err_code code, const char *what)
{
    struct err e = {0};
    ERR(&e, code, "the link to rank 0: %s", what);
    link_raise(&l->alarm, &e);
}

/* ---- messages ---- */

static void take_order(struct leader_link *l, int slot, const void *data, size_t bytes)
{
    struct err e = {0};
    struct order *o = order_decode(data, bytes, &l->slot[slot].rules, seconds_now(), &e);
    if (o == NULL) {
        fail_link(l, e.code, e.text);
        return;
    }
    l->told_to_stop = l->told_to_stop || o->kind == ORDER_STOP;
    (void)mailbox_post(l->slot[slot].end[0], o);
}

static void take_model_order(struct leader_link *l, const void *data, size_t bytes)
{
    struct err e = {0};
    struct model_order *o = model_order_decode(data, bytes, l->n_slots, &e);
    if (o == NULL) {
        fail_link(l, e.code, e.text);
        return;
    }
    l->told_to_stop = l->told_to_stop || o->kind == MODEL_STOP;
    if (o->kind == MODEL_LOAD)
        l->slot[o->slot].rules = (struct order_rules){.vocab = o->vocab};
    (void)mailbox_post(l->control[0], o);
}

static void take_message(struct leader_link *l, const struct wire_out *m)
{
    if (m->failed)
        fail_link(l, ERR_MEMORY, "out of host memory for an order");
    else if (m->bytes < 2 || m->data[0] >= l->n_slots)
        fail_link(l, ERR_COMM, "an order for a slot that does not exist");
    else if (m->data[1] == LINK_MODEL_ORDER && l->control[0] != NULL)
        take_model_order(l, m->data + 1, m->bytes - 1);
    else if (m->data[1] != LINK_BEAT)
        take_order(l, m->data[0], m->data + 1, m->bytes - 1);
}

static void take_messages(struct leader_link *l)
{
    struct wire_out m = {0};
    for (int fd; link_receive(l->dealer, &m, &fd); wire_free(&m)) {
        l->silent = 0;
        take_message(l, &m);
    }
}

static void send_on(struct leader_link *l, struct wire_out *w)
{
    bool lacks_memory = w->failed;
    if (!link_send(l->dealer, NULL, w))
        fail_link(l, lacks_memory ? ERR_MEMORY : ERR_COMM,
                  lacks_memory ? "out of host memory for a report" : "cannot send");
}

/* Frees messages sent to rank 0, and their tasks, of which rank 0 has its own copies. */
static void pass_report(struct leader_link *l, int slot, struct report *r)
{
    struct wire_out w = {0};
    wire_put_u8(&w, (unsigned)slot);
    report_encode(&w, r, seconds_now());
    l->ended = l->ended || (l->control[0] == NULL && r->ended);
    if (r->loaded)
        l->slot[slot].rules.max_len = r->max_len;
    for (struct task *task = r->done, *next; task != NULL; task = next) {
        next = task->work.next;
        task_close(task);
    }
    steps_report_free(r);
    send_on(l, &w);
}

static void pass_word(struct leader_link *l, struct model_word *m)
{
    struct wire_out w = {0};
    wire_put_u8(&w, 0);
    model_word_encode(&w, m);
    l->ended = m->kind == MODEL_ENDED;
    free(m);
    send_on(l, &w);
}

/* Sends reports before messages about models, so that rank 0 processes them in this order. */
static void pass_mail(struct leader_link *l)
{
    struct model_word *m;
    struct report *r;
    do {
        m = l->control[0] != NULL ? mailbox_take(l->control[0]) : NULL;
        for (int i = 0; i < l->n_slots; i++)
            while ((r = mailbox_take(l->slot[i].end[0])) != NULL)
                pass_report(l, i, r);
        if (m != NULL)
            pass_word(l, m);
    } while (m != NULL && !l->ended);
}

static void keep_time(struct leader_link *l)
{
    double passed = link_pulse_passed(&l->pulse);
    struct wire_out beat = {0};
    wire_put_u8(&beat, 0);
    wire_put_u8(&beat, LINK_BEAT);
    if (link_pulse_due(&l->pulse))
        (void)link_send(l->dealer, NULL, &beat);
    wire_free(&beat);
    if (link_ended(l->monitor) >= 0 && l->lost < 0)
        l->lost = 0;
    l->silent += passed;
    l->lost += l->lost >= 0 ? passed : 0;
    if (l->lost >= LINK_PATIENCE && !l->told_to_stop)
        fail_link(l, ERR_COMM, "its connection has ended");
    if (l->pulse.timeout > 0 && l->silent >= l->pulse.timeout + LINK_PATIENCE) {
        char why[80];
        (void)snprintf(why, sizeof why, "no sign of life for %.4g s (--step-timeout)", l->silent);
        fail_link(l, ERR_COMM, why);
    }
}

static void *run_link(void *context)
{
    struct leader_link *l = context;
    int n = 2;
    l->item[0] = (zmq_pollitem_t){.socket = l->dealer, .events = ZMQ_POLLIN};
    l->item[1] = (zmq_pollitem_t){.socket = l->monitor, .events = ZMQ_POLLIN};
    for (int i = 0; i < l->n_slots; i++)
        l->item[n++] = (zmq_pollitem_t){.socket = l->slot[i].end[0], .events = ZMQ_POLLIN};
    if (l->control[0] != NULL)
        l->item[n++] = (zmq_pollitem_t){.socket = l->control[0], .events = ZMQ_POLLIN};
    while (!l->ended) {
        (void)zmq_poll(l->item, n, (long)(1e3 * l->pulse.interval));
        take_messages(l);
        pass_mail(l);
        keep_time(l);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static int open_mailboxes(struct leader_link *l, struct err *e)
{
    char name[40];
    l->context = zmq_ctx_new();
    l->slot = err_calloc(e, (size_t)l->n_slots, sizeof *l->slot, "link to rank 0");
    l->item = err_calloc(e, (size_t)l->n_slots + 3, sizeof *l->item, "link to rank 0");
    if (l->context == NULL || e->code != ERR_NONE)
        return -1;
    if (l->many && mailbox_open(l->context, "models", l->control, e) != 0)
        return -1;
    for (int i = 0; i < l->n_slots; i++) {
        (void)snprintf(name, sizeof name, "orders-%d", i);
        if (mailbox_open(l->context, name, l->slot[i].end, e) != 0)
            return -1;
    }
    return 0;
}

static int connect_rank0(struct leader_link *l, const struct link_card *card, int replica, struct err *e)
{
    char endpoint[128], id[16];
    const int never = -1;
    (void)snprintf(id, sizeof id, "%d", replica);
    if (open_mailboxes(l, e) != 0)
        return ERR(e, ERR_MEMORY, "no ZeroMQ context for the link to rank 0");
    if (link_find(card, endpoint, sizeof endpoint, e) != 0)
        return -1;
    l->dealer = zmq_socket(l->context, ZMQ_DEALER);
    if (l->dealer == NULL || zmq_setsockopt(l->dealer, ZMQ_ROUTING_ID, id, strlen(id)) != 0 ||
        zmq_setsockopt(l->dealer, ZMQ_RECONNECT_IVL, &never, sizeof never) != 0)
        return ERR(e, ERR_IO, "ZeroMQ socket for the link to rank 0: %s", zmq_strerror(errno));
    if (link_configure(l->dealer, e) != 0 ||
        curve_join(l->dealer, card->server_key, card->public_key, card->secret_key, e) != 0 ||
        link_monitor(l->context, l->dealer, "inproc://link", &l->monitor, e) != 0)
        return -1;
    if (zmq_connect(l->dealer, endpoint) != 0)
        return ERR(e, ERR_COMM, "rank 0 at %s: %s", endpoint, zmq_strerror(errno));
    return 0;
}

/* A signal must not shorten the wait. */
static bool hear_hello(void *dealer)
{
    unsigned char answer[2] = {0};
    double until = seconds_now() + HELLO_MS / 1e3;
    zmq_pollitem_t item = {.socket = dealer, .events = ZMQ_POLLIN};
    for (double left; (left = until - seconds_now()) > 0;) {
        if (zmq_poll(&item, 1, (long)(1e3 * left) + 1) < 0 && errno != EINTR)
            return false;
        int n = zmq_recv(dealer, answer, sizeof answer, ZMQ_DONTWAIT);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return n == (int)sizeof answer && answer[1] == LINK_HELLO;
    }
    return false;
}

static int greet(struct leader_link *l, struct err *e)
{
    char host[LINK_HOST_BYTES] = "unknown-host";
    struct wire_out hello = {0};
    (void)gethostname(host, sizeof host - 1);
    wire_put_u8(&hello, 0);
    wire_put_u8(&hello, LINK_HELLO);
    wire_put_array(&hello, host, strlen(host), 1);
    if (!link_send(l->dealer, NULL, &hello) || !hear_hello(l->dealer))
        return ERR(e, ERR_COMM, "rank 0 does not answer on the link between replicas within %d s", HELLO_MS / 1000);
    return 0;
}

int leader_link_open(struct leader_link *l, const struct link_card *card, int replica, bool many, struct err *e)
{
    *l = (struct leader_link){.n_slots = card->n_slots, .many = many, .lost = -1};
    if (connect_rank0(l, card, replica, e) != 0 || greet(l, e) != 0)
        return -1;
    link_pulse_open(&l->pulse, card->timeout);
    return 0;
}

int leader_link_start(struct leader_link *l, struct err *e)
{
    if (pthread_create(&l->thread, NULL, run_link, l) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread for the link to rank 0");
    l->running = true;
    return 0;
}

int leader_link_check(struct leader_link *l, struct err *e)
{
    return link_check(&l->alarm, e);
}

void leader_link_close(struct leader_link *l)
{
    const int linger = LINGER_MS;
    if (l->running)
        (void)pthread_join(l->thread, NULL);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; l->slot != NULL && k < l->n_slots; k++)
            mailbox_close(&l->slot[k].end[i]);
        mailbox_close(&l->control[i]);
    }
    if (l->dealer != NULL) {
        (void)zmq_socket_monitor(l->dealer, NULL, 0);
        (void)zmq_setsockopt(l->dealer, ZMQ_LINGER, &linger, sizeof linger);
        (void)zmq_close(l->dealer);
    }
    if (l->monitor != NULL)
        (void)zmq_close(l->monitor);
    while (l->context != NULL && zmq_ctx_term(l->context) != 0 && errno == EINTR)
        continue;
    free(l->slot);
    free(l->item);
    memset(l, 0, sizeof *l);
}
