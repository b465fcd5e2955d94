/* tests/unit/test_links.c - the connection between rank 0 and the leader of another replica, in one process: orders and
 * reports over a real connection, their delay, admission, and messages about a leader that sends invalid data or
 * disconnects. The device is simulated: every step takes no time. */
#include "tests/unit/links.h"

#include "coordinator/replicas/leader.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define VOCAB   2048
#define N_TRIPS 200

static const struct limits limits = {
    .max_seqs = 8, .max_batch_tokens = 64, .max_len = 256, .max_logit_rows = 8, .n_blocks = 256};

static void open_rank0(struct rank0 *r)
{
    struct err e = {0};
    memset(r, 0, sizeof *r);
    r->context = zmq_ctx_new();
    r->card = (struct link_card){
        .n_replicas = 2, .replica_size = 2, .n_slots = 1, .vocab = VOCAB, .prefix_caching = 1, .timeout = 300};
    (void)snprintf(r->card.model, sizeof r->card.model, "%s", models_demo());
    assert_int_equal(replicas_open(&r->replicas, r->context, 2, 2, 4, &e), 0);
    assert_int_equal(hub_open(&r->hub, &r->replicas, NULL, &r->card, true, &e), 0);
    assert_string_equal(r->card.address[0], "127.0.0.1");
    assert_string_equal(r->card.address[1], "");
}

static void close_rank0(struct rank0 *r, struct err *e)
{
    (void)hub_close(&r->hub, e);
    replicas_close(&r->replicas);
    (void)zmq_ctx_term(r->context);
}

/* ---- a main thread without ranks ---- */

struct lead {
    struct leader leader; /* of replica 1, */
    struct steps steps;   /* or rank 0's own */
    bool local;
    pthread_t thread;
};

static void *lead(void *context)
{
    struct lead *l = context;
    struct plan plan;
    struct err e = {0};
    int asked = plan_open(&plan, &limits, &e);
    for (uint64_t step = 0; asked == 0 || asked == PLAN_IDLE; step++) {
        struct sampled sampled[8];
        plan_reset(&plan, step);
        do
            asked = l->local ? steps_next(&l->steps, &plan, &e) : leader_next(&l->leader, &plan, &e);
        while (asked == PLAN_IDLE);
        if (asked != 0 || plan.kind == PLAN_STOP)
            break;
        struct step_result result = {.step = step, .sampled = sampled};
        for (int i = 0; i < plan.n_seqs; i++)
            if (plan.seq[i].sample)
                sampled[result.n_sampled++] = (struct sampled){.token = 300 + i, .slot = plan.seq[i].slot};
        asked = l->local ? steps_accept(&l->steps, &result, &e) : leader_accept(&l->leader, &result, &e);
    }
    plan_close(&plan);
    if (l->local)
        steps_close(&l->steps);
    else
        leader_close(&l->leader);
    return asked == 0 ? NULL : l;
}

static void start_lead(struct lead *l, struct rank0 *r, bool local, const struct tokenizer *t)
{
    struct err e = {0};
    const struct scheduler_setup setup = {.limits = limits, .tokenizer = t, .prefix_caching = true};
    memset(l, 0, sizeof *l);
    l->local = local;
    int opened = local ? steps_open(&l->steps, r->replicas.replica[0].end[1], &setup, &e)
                       : leader_open(&l->leader, &r->card, 1, &limits, &e);
    expect_none(&e);
    assert_int_equal(opened, 0);
    assert_int_equal(pthread_create(&l->thread, NULL, lead, l), 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the milliseconds of a quick round trip (the last of the first quarter), from handing over a task to its
 * return, with one step between. */
static double trip_ms(struct rank0 *r, int replica)
{
    double took[N_TRIPS];
    for (int i = 0; i < N_TRIPS; i++) {
        struct task *task = make_task((uint64_t)i + 1, 1), *back = NULL;
        double began = seconds_now();
        replicas_submit(&r->replicas, task, replica);
        while (back == NULL) {
            struct report *report = hear(r, replica);
            assert_non_null(report);
            back = report->done;
            steps_report_free(report);
        }
        took[i] = 1e3 * (seconds_now() - began);
        assert_ptr_equal(back, task);
        assert_int_equal(task->choices[0].finish, FINISH_STOP);
        assert_int_equal(task->choices[0].choice[0]->finish, FINISH_LENGTH);
        assert_int_equal(task->choices[0].choice[0]->output.id[0], 300);
        assert_true(task->choices[0].choice[0]->text.bytes > 0);
        assert_true(task->choices[0].times.arrived >= task->arrived - 0.01);
        task_close(task);
    }
    qsort(took, N_TRIPS, sizeof *took, compare);
    return took[N_TRIPS / 4]; /* other work on the machine delays some of them */
}

static void expect_loaded(struct rank0 *r, int replica)
{
    struct report *report = hear(r, replica);
    assert_non_null(report);
    assert_true(report->loaded);
    steps_report_free(report);
}

/* Everything comes back in the last reports, including an unfinished task. */
static void stop(struct rank0 *r, struct task *open)
{
    int from = 0;
    replicas_stop(&r->replicas);
    for (double until = seconds_now() + PATIENT; !replicas_ended(&r->replicas) && seconds_now() < until;) {
        struct report *report = replicas_take(&r->replicas, &from);
        for (struct task *task = report != NULL ? report->done : NULL; task != NULL; task = task->work.next)
            open = task == open ? NULL : open;
        steps_report_free(report);
    }
    assert_true(replicas_ended(&r->replicas));
    assert_null(open);
}

static void trips(void **state)
{
    (void)state;
    struct rank0 r;
    struct lead near, far;
    struct err e = {0};
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&t, models_demo(), &e), 0);
    open_rank0(&r);
    start_lead(&near, &r, true, t);
    expect_loaded(&r, 0);
    start_lead(&far, &r, false, NULL);
    expect_loaded(&r, 1);
    double here = trip_ms(&r, 0), there = trip_ms(&r, 1);
    print_message("# a task with one step: %.3f ms in this process, %.3f ms over a link: the way is %.3f ms\n", here,
                  there, there - here);
    assert_true(process_in_time(1e-3 * (there - here), 0.5e-3)); /* both ways */
    /* A cancelled task comes back with its tokens so far; one that is open at the end, too. */
    struct task *task = make_task(5000, 200), *open = make_task(5001, 200);
    replicas_submit(&r.replicas, task, 1);
    replicas_cancel(&r.replicas, task, FINISH_CANCELLED);
    for (struct task *back = NULL; back == NULL;) {
        struct report *report = hear(&r, 1);
        assert_non_null(report);
        back = report->done;
        steps_report_free(report);
        assert_true(back == NULL || back == task);
    }
    assert_int_equal(task->choices[0].finish == FINISH_CANCELLED || task->choices[0].choice[0]->output.n == 200, 1);
    replicas_submit(&r.replicas, open, 1);
    stop(&r, open);
    void *failed = NULL;
    assert_int_equal(pthread_join(near.thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(pthread_join(far.thread, &failed), 0);
    assert_null(failed);
    close_rank0(&r, &e);
    expect_none(&e);
    task_close(task);
    task_close(open);
    tokenizer_close(&t);
}

/* ---- strangers ---- */

/* Connects to the hub with its own key pair, or the leaders'; *monitor shows the connection's events. */
static void *connect_raw(void *context, const struct link_card *card, bool own_keys, void **monitor)
{
    char public_key[CURVE_TEXT], secret_key[CURVE_TEXT], endpoint[64];
    const int zero = 0;
    struct err e = {0};
    void *socket = zmq_socket(context, ZMQ_DEALER);
    assert_int_equal(zmq_curve_keypair(public_key, secret_key), 0);
    assert_int_equal(curve_join(socket, card->server_key, own_keys ? public_key : card->public_key,
                                own_keys ? secret_key : card->secret_key, &e),
                     0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_ROUTING_ID, "1", 1), 0);
    assert_int_equal(zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero), 0);
    assert_int_equal(zmq_socket_monitor(socket, "inproc://raw",
                                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                            ZMQ_EVENT_HANDSHAKE_SUCCEEDED),
                     0);
    *monitor = zmq_socket(context, ZMQ_PAIR);
    assert_int_equal(zmq_setsockopt(*monitor, ZMQ_LINGER, &zero, sizeof zero), 0);
    assert_int_equal(zmq_connect(*monitor, "inproc://raw"), 0);
    (void)snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", card->port);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    return socket;
}

static unsigned next_event(void *monitor)
{
    unsigned char event[6] = {0}, address[100];
    uint16_t kind = 0;
    assert_true(mailbox_wait(monitor, (long)(1e3 * PATIENT)));
    assert_int_equal(zmq_recv(monitor, event, sizeof event, 0), sizeof event);
    (void)zmq_recv(monitor, address, sizeof address, 0);
    memcpy(&kind, event, sizeof kind);
    return kind;
}

static void close_raw(void *context, void *socket, void *monitor)
{
    (void)zmq_socket_monitor(socket, NULL, 0);
    (void)zmq_close(socket);
    (void)zmq_close(monitor);
    (void)zmq_ctx_term(context);
}

/* Connects a peer without a key that sends ZMTP up to the length of a first frame: a greeting, and "a long command of n
 * bytes". */
static int stranger(int port, uint64_t bytes)
{
    unsigned char greeting[64] = {0xFF, [9] = 0x7F, [10] = 3, [12] = 'C', 'U', 'R', 'V', 'E'}, theirs[64];
    unsigned char header[9] = {0x06};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 8; i++)
        header[8 - i] = (unsigned char)(bytes >> 8 * i);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    assert_int_equal(recv(fd, theirs, sizeof theirs, MSG_WAITALL), sizeof theirs);
    assert_int_equal(send(fd, header, sizeof header, MSG_NOSIGNAL), sizeof header);
    return fd;
}

/* Nothing is buffered for it: the connection ends at once, not when the handshake times out. */
static void check_long_frames(int port)
{
    const uint64_t bytes[] = {LINK_FRAME_BYTES + 100, (uint64_t)3 << 30, (uint64_t)1 << 62, 200};
    for (int i = 0; i < 4; i++) {
        bool fits = bytes[i] < LINK_FRAME_BYTES; /* only the length is wrong */
        unsigned char more;
        int fd = stranger(port, bytes[i]);
        struct pollfd end = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&end, 1, fits ? 200 : 5000), !fits);
        assert_true(fits || recv(fd, &more, 1, 0) <= 0);
        (void)close(fd);
    }
}

static void keys(void **state)
{
    (void)state;
    struct rank0 r;
    struct err e = {0};
    void *context = zmq_ctx_new(), *monitor;
    open_rank0(&r);
    check_long_frames(r.card.port);
    void *socket = connect_raw(context, &r.card, true, &monitor);
    assert_int_equal(next_event(monitor), ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    close_raw(context, socket, monitor);
    /* With the keys it is admitted: the refusal was due to the keys. */
    context = zmq_ctx_new();
    socket = connect_raw(context, &r.card, false, &monitor);
    assert_int_equal(next_event(monitor), ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    /* A message that is not a report ends the job and the thread, naming the replica. */
    static const char hello[] = {0, LINK_HELLO, 4, 0, 0, 0, 0, 0, 0, 0, 'h', 'o', 's', 't'};
    char answer[4];
    assert_int_equal(zmq_send(socket, hello, sizeof hello, 0), sizeof hello);
    assert_int_equal(zmq_recv(socket, answer, sizeof answer, 0), 2);
    assert_int_equal(answer[1], LINK_HELLO);
    static const char nonsense[] = {0, LINK_REPORT, 1, 1, 2, 3};
    assert_int_equal(zmq_send(socket, nonsense, sizeof nonsense, 0), sizeof nonsense);
    for (double until = seconds_now() + PATIENT; hub_check(&r.hub, &e) == 0 && seconds_now() < until;)
        (void)mailbox_wait(socket, 5);
    EXPECT_PARTS(&e, ERR_COMM, "replica 1 of 2 (ranks 2-3, led by rank 2 on host)",
                 "a report of a replica does not fit");
    /* Its disconnection is noticed as well, and nothing waits for it any more. */
    close_raw(context, socket, monitor);
    struct report *report = hear(&r, 1);
    assert_non_null(report);
    assert_true(report->ended);
    steps_report_free(report);
    e = (struct err){0};
    close_rank0(&r, &e);
    assert_int_equal(e.code, ERR_COMM);
}

/* A message longer than a frame arrives unchanged. */
static void long_messages(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, LINK_FRAME_BYTES, LINK_FRAME_BYTES + 1, 3 * LINK_FRAME_BYTES + 17};
    void *context = zmq_ctx_new(), *end[2];
    struct err e = {0};
    assert_int_equal(mailbox_open(context, "long", end, &e), 0);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct wire_out out = {0}, in = {0};
        int fd;
        for (size_t k = 0; k < lengths[i]; k++)
            wire_put_u8(&out, (unsigned)(k * 2654435761U >> 13));
        assert_true(link_send(end[0], NULL, &out));
        assert_true(mailbox_wait(end[1], (long)(1e3 * PATIENT)));
        assert_true(link_receive(end[1], &in, &fd));
        assert_int_equal(in.bytes, lengths[i]);
        for (size_t k = 0; k < in.bytes; k++)
            if (in.data[k] != (unsigned char)(k * 2654435761U >> 13))
                fail_msg("byte %zu of %zu differs", k, in.bytes);
        wire_free(&in);
        assert_false(link_receive(end[1], &in, &fd));
    }
    for (int i = 0; i < 2; i++)
        mailbox_close(&end[i]);
    (void)zmq_ctx_term(context);
}

static void lost(void **state)
{
    (void)state;
    struct rank0 r;
    struct err e = {0};
    void *context = zmq_ctx_new(), *monitor;
    static const char hello[] = {0, LINK_HELLO, 4, 0, 0, 0, 0, 0, 0, 0, 'h', 'o', 's', 't'};
    char answer[4];
    open_rank0(&r);
    void *socket = connect_raw(context, &r.card, false, &monitor);
    assert_int_equal(zmq_send(socket, hello, sizeof hello, 0), sizeof hello);
    assert_int_equal(zmq_recv(socket, answer, sizeof answer, 0), 2);
    double closed = seconds_now();
    close_raw(context, socket, monitor);
    struct report *report = hear(&r, 1);
    assert_non_null(report);
    assert_true(report->ended);
    steps_report_free(report);
    assert_int_equal(hub_check(&r.hub, &e), -1);
    EXPECT_PARTS(&e, ERR_COMM, "replica 1 of 2 (ranks 2-3, led by rank 2 on host): its connection has ended");
    double took = seconds_now() - closed;
    assert_true(took >= LINK_PATIENCE &&
                process_in_time(took - LINK_PATIENCE, 5)); /* the failed process prints its line first */
    e = (struct err){0};
    close_rank0(&r, &e);
    assert_int_equal(e.code, ERR_COMM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trips),
        cmocka_unit_test(keys),
        cmocka_unit_test(long_messages),
        cmocka_unit_test(lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
