/* coordinator/replicas/leader.c - see leader.h. */
#include "coordinator/replicas/leader.h"
#include "base/clock.h"
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

static void fail(struct leader *l, enum err_code code, const char *what)
{
    struct err e = {0};
    ERR(&e, code, "the link to rank 0: %s", what);
    link_raise(&l->alarm, &e);
}

/* ---- messages ---- */

static void take_order(struct leader *l, const void *data, size_t bytes)
{
    struct err e = {0};
    struct order *o = order_decode(data, bytes, &l->rules, seconds_now(), &e);
    if (o == NULL) {
        fail(l, e.code, e.text);
        return;
    }
    l->told_to_stop = l->told_to_stop || o->kind == ORDER_STOP;
    (void)mailbox_post(l->end[0], o);
}

static void take_messages(struct leader *l)
{
    struct wire_out m = {0};
    for (int fd; link_receive(l->dealer, &m, &fd); wire_free(&m)) {
        l->silent = 0;
        if (m.failed)
            fail(l, ERR_MEMORY, "out of host memory for an order");
        else if (m.bytes > 0 && *m.data != LINK_BEAT)
            take_order(l, m.data, m.bytes);
    }
}

/* Messages to rank 0 are no longer needed here; neither are the tasks, of which rank 0 has its own copies. */
static void pass_report(struct leader *l, struct report *r)
{
    struct wire_out w = {0};
    report_encode(&w, r, seconds_now());
    l->ended = r->ended;
    for (struct task *j = r->done, *next; j != NULL; j = next) {
        next = j->work.next;
        task_close(j);
    }
    steps_report_free(r);
    bool lacks_memory = w.failed;
    if (!link_send(l->dealer, NULL, &w))
        fail(l, lacks_memory ? ERR_MEMORY : ERR_COMM, lacks_memory ? "out of host memory for a report" : "cannot send");
}

static void keep_time(struct leader *l)
{
    double passed = link_pulse_passed(&l->pulse);
    struct wire_out beat = {0};
    wire_put_u8(&beat, LINK_BEAT);
    if (link_pulse_due(&l->pulse))
        (void)link_send(l->dealer, NULL, &beat);
    wire_free(&beat);
    if (link_ended(l->monitor) >= 0 && l->lost < 0)
        l->lost = 0;
    l->silent += passed;
    l->lost += l->lost >= 0 ? passed : 0;
    if (l->lost >= LINK_PATIENCE && !l->told_to_stop)
        fail(l, ERR_COMM, "its connection has ended");
    if (l->pulse.timeout > 0 && l->silent >= l->pulse.timeout + LINK_PATIENCE) {
        char why[80];
        (void)snprintf(why, sizeof why, "no sign of life for %.4g s (--step-timeout)", l->silent);
        fail(l, ERR_COMM, why);
    }
}

static void *run_link(void *context)
{
    struct leader *l = context;
    zmq_pollitem_t item[] = {{.socket = l->dealer, .events = ZMQ_POLLIN},
                             {.socket = l->monitor, .events = ZMQ_POLLIN},
                             {.socket = l->end[0], .events = ZMQ_POLLIN}};
    while (!l->ended) {
        struct report *r;
        (void)zmq_poll(item, 3, (long)(1e3 * l->pulse.interval));
        take_messages(l);
        while ((r = mailbox_take(l->end[0])) != NULL)
            pass_report(l, r);
        keep_time(l);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static int connect_rank0(struct leader *l, const struct link_card *card, int replica, struct err *e)
{
    char endpoint[128], id[16];
    const int never = -1;
    (void)snprintf(id, sizeof id, "%d", replica);
    l->context = zmq_ctx_new();
    if (l->context == NULL || mailbox_open(l->context, "orders", l->end, e) != 0)
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

/* A signal is no reason to wait less. */
static bool hear_hello(void *dealer)
{
    unsigned char answer = 0;
    double until = seconds_now() + HELLO_MS / 1e3;
    zmq_pollitem_t item = {.socket = dealer, .events = ZMQ_POLLIN};
    for (double left; (left = until - seconds_now()) > 0;) {
        if (zmq_poll(&item, 1, (long)(1e3 * left) + 1) < 0 && errno != EINTR)
            return false;
        int n = zmq_recv(dealer, &answer, sizeof answer, ZMQ_DONTWAIT);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return n == (int)sizeof answer && answer == LINK_HELLO;
    }
    return false;
}

static int greet(struct leader *l, struct err *e)
{
    char host[LINK_HOST_BYTES] = "unknown-host";
    struct wire_out hello = {0};
    (void)gethostname(host, sizeof host - 1);
    wire_put_u8(&hello, LINK_HELLO);
    wire_put_array(&hello, host, strlen(host), 1);
    if (!link_send(l->dealer, NULL, &hello) || !hear_hello(l->dealer))
        return ERR(e, ERR_COMM, "rank 0 does not answer on the link between replicas within %d s", HELLO_MS / 1000);
    return 0;
}

int leader_open(struct leader *l, const struct link_card *card, int replica, const struct limits *limits, struct err *e)
{
    memset(l, 0, sizeof *l);
    l->lost = -1;
    if (tokenizer_open(&l->tokenizer, card->model, e) != 0 || connect_rank0(l, card, replica, e) != 0 ||
        greet(l, e) != 0)
        return -1;
    lexicon_keeper_open(&l->lexicon, l->tokenizer, card->vocab);
    const struct scheduler_setup setup = {.limits = *limits,
                                          .guesses = card->guesses,
                                          .tokenizer = l->tokenizer,
                                          .lexicon = &l->lexicon,
                                          .prefix_caching = card->prefix_caching != 0,
                                          .max_step = card->max_step,
                                          .rope_changes_at = card->rope_changes_at};
    if (steps_open(&l->steps, l->end[1], &setup, e) != 0)
        return -1;
    l->rules = (struct order_rules){card->vocab, scheduler_max_len(&l->steps.scheduler)};
    link_pulse_open(&l->pulse, card->timeout);
    if (pthread_create(&l->thread, NULL, run_link, l) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread for the link to rank 0");
    l->running = true;
    return 0;
}

int leader_next(void *context, struct plan *plan, struct err *e)
{
    struct leader *l = context;
    return link_check(&l->alarm, e) == 0 ? steps_next(&l->steps, plan, e) : -1;
}

void leader_masks(void *context, struct plan *plan)
{
    scheduler_masks(&((struct leader *)context)->steps.scheduler, plan);
}

int leader_accept(void *context, const struct step_result *result, struct err *e)
{
    return steps_accept(&((struct leader *)context)->steps, result, e);
}

void leader_ranks(void *context, const struct rank_report *report)
{
    steps_ranks(&((struct leader *)context)->steps, report);
}

void leader_close(struct leader *l)
{
    const int linger = LINGER_MS;
    steps_close(&l->steps);
    if (l->running)
        (void)pthread_join(l->thread, NULL);
    for (int i = 0; i < 2; i++)
        mailbox_close(&l->end[i]);
    if (l->dealer != NULL) {
        (void)zmq_socket_monitor(l->dealer, NULL, 0);
        (void)zmq_setsockopt(l->dealer, ZMQ_LINGER, &linger, sizeof linger);
        (void)zmq_close(l->dealer);
    }
    if (l->monitor != NULL)
        (void)zmq_close(l->monitor);
    while (l->context != NULL && zmq_ctx_term(l->context) != 0 && errno == EINTR)
        continue;
    lexicon_keeper_close(&l->lexicon);
    tokenizer_close(&l->tokenizer);
    memset(l, 0, sizeof *l);
}
