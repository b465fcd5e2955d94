/* tests/unit/test_links_opening.c - how a leader finds rank 0: the host's addresses, and an answer that it waits for,
 * with or without signals. */
#include "tests/unit/links.h"

#include "coordinator/replicas/leader.h"
#include "tests/support/models.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>

#define VOCAB 2048

static const struct limits limits = {
    .max_seqs = 8, .max_batch_tokens = 64, .max_len = 256, .max_logit_rows = 8, .n_blocks = 256};

static _Atomic int n_signals;

static void count_signal(int number)
{
    (void)number;
    n_signals++;
}

struct greeting { /* a leader's greeting, and its outcome */
    struct leader leader;
    struct link_card card;
    struct err err;
    _Atomic bool ended;
};

static void *open_leader(void *context)
{
    struct greeting *g = context;
    int opened = leader_open(&g->leader, &g->card, 1, &limits, &g->err);
    g->ended = true;
    return opened == 0 ? NULL : g;
}

/* Opens a rank 0 that does not answer by itself. */
static void *open_silent(void *context, struct curve *c, struct link_card *card)
{
    struct err e = {0};
    char endpoint[64];
    size_t bytes = sizeof endpoint;
    assert_int_equal(curve_open(c, context, NULL, &e), 0);
    void *router = zmq_socket(context, ZMQ_ROUTER);
    assert_int_equal(curve_apply(c, router, &e), 0);
    assert_int_equal(link_configure(router, &e), 0);
    assert_int_equal(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &bytes), 0);
    *card = (struct link_card){.n_replicas = 2, .replica_size = 2, .n_slots = 1, .vocab = VOCAB, .timeout = 300};
    card->port = atoi(strrchr(endpoint, ':') + 1);
    (void)snprintf(card->address[0], sizeof card->address[0], "127.0.0.1");
    (void)snprintf(card->model, sizeof card->model, "%s", models_demo());
    memcpy(card->server_key, c->public_key, CURVE_TEXT);
    memcpy(card->public_key, c->client_public, CURVE_TEXT);
    memcpy(card->secret_key, c->client_secret, CURVE_TEXT);
    return router;
}

/* Signals arrive while a leader waits for rank 0's answer: it goes on waiting. */
static void signals(void **state)
{
    (void)state;
    struct greeting g = {0};
    struct curve curve;
    struct sigaction old, count = {.sa_handler = count_signal};
    pthread_t thread;
    void *context = zmq_ctx_new(), *router = open_silent(context, &curve, &g.card), *failed = NULL;
    struct wire_out said = {0};
    int fd;
    assert_int_equal(sigaction(SIGUSR1, &count, &old), 0);
    assert_int_equal(pthread_create(&thread, NULL, open_leader, &g), 0);
    for (double until = seconds_now() + PATIENT; said.bytes == 0 && seconds_now() < until;) {
        char id[16];
        curve_answer(&curve);
        if (mailbox_wait(router, 5) && zmq_recv(router, id, sizeof id, ZMQ_DONTWAIT) == 1)
            (void)link_receive(router, &said, &fd);
    }
    assert_true(said.bytes > 1 && said.data[1] == LINK_HELLO);
    for (int i = 0; i < 200 && !g.ended; i++) {
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        while (n_signals <= i && !g.ended)
            (void)sched_yield();
    }
    wire_free(&said);
    wire_put_u8(&said, 0);
    wire_put_u8(&said, LINK_HELLO);
    assert_true(link_send(router, "1", &said));
    assert_int_equal(pthread_join(thread, &failed), 0);
    expect_none(&g.err);
    assert_null(failed);
    leader_close(&g.leader);
    (void)sigaction(SIGUSR1, &old, NULL);
    (void)zmq_close(router);
    curve_close(&curve);
    (void)zmq_ctx_term(context);
}

/* A host's addresses, only one of which has a listener. */
static void addresses(void **state)
{
    (void)state;
    struct link_card card = {.port = 1};
    char endpoint[128];
    struct err e = {0};
    (void)link_addresses(&card, false, &e); /* a machine without a network has none */
    for (int i = 0; i < LINK_ADDRESSES; i++)
        assert_int_not_equal(strncmp(card.address[i], "127.", 4), 0);
    card = (struct link_card){.address = {"127.0.0.1", "nonsense"}, .port = 1}; /* nothing listens */
    e = (struct err){0};
    assert_int_equal(link_find(&card, endpoint, sizeof endpoint, &e), -1);
    EXPECT_PARTS(&e, ERR_COMM, "rank 0 cannot be reached at port 1 of 127.0.0.1, or its other addresses");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
