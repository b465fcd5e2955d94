/* tests/e2e/test_serve_pitfalls.c - pitfalls of ZeroMQ servers, each tried on `lockstep serve` under mpirun: replies
 * that a default ROUTER drops in silence, clients that do not read, that are gone, frozen or flooding, two of one
 * identity, linger at the end. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/serving.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define RANKS   2
#define SECONDS 60.0 /* for steps that should take a few seconds at most */
#define LONG    900  /* tokens: more than any client waits for */

static struct serving server;
static void *context;

/* id: the routing id, or NULL. small: its receive buffers are as small as possible. */
static void *open_client(const char *id, bool small)
{
    const int none = 0, one = 1, bytes = 4096;
    void *socket = zmq_socket(context, ZMQ_DEALER);
    (void)zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    if (id != NULL)
        (void)zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, strlen(id));
    if (small) {
        (void)zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof one);
        (void)zmq_setsockopt(socket, ZMQ_RCVBUF, &bytes, sizeof bytes);
    }
    case_check(zmq_connect(socket, server.endpoint) == 0, "cannot connect: %s", zmq_strerror(zmq_errno()));
    return socket;
}

/* Requests a stream of n_tokens x n_choices, each event large because of its log-probabilities. */
static void send_generate(void *socket, const char *name, int n_tokens, int n_choices, int n_top, bool stream)
{
    json_t *m =
        json_pack("{s:s, s:s, s:i, s:b, s:i, s:b, s:i}", "request_id", name, "prompt", "Once upon a time", "max_tokens",
                  n_tokens, "ignore_eos", 1, "temperature", 0, "stream", (int)stream, "n", n_choices);
    if (n_top > 0)
        (void)json_object_set_new(m, "logprobs", json_integer(n_top));
    char *text = json_dumps(m, JSON_COMPACT);
    (void)zmq_send(socket, text, strlen(text), 0);
    free(text);
    json_decref(m);
}

/* Returns the next message; NULL: none in time. The caller decrefs it. */
static json_t *receive(void *socket, double seconds)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    zmq_msg_t frame;
    json_t *m = NULL;
    if (zmq_poll(&item, 1, (long)(1000 * seconds)) != 1)
        return NULL;
    (void)zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, 0) >= 0)
        m = json_loadb(zmq_msg_data(&frame), zmq_msg_size(&frame), JSON_ALLOW_NUL, NULL);
    (void)zmq_msg_close(&frame);
    return m;
}

static bool is_tokens(const json_t *m)
{
    const char *event = json_string_value(json_object_get(m, "event"));
    return event != NULL && strcmp(event, "tokens") == 0;
}

/* Reads the remainder of a stream from event `seq` on; returns the last message, which the caller decrefs. *n_tokens:
 * received tokens; *gaps: events out of order. */
static json_t *read_stream(void *socket, int seq, long *n_tokens, int *gaps)
{
    json_t *m = NULL;
    *n_tokens = 0;
    *gaps = 0;
    for (; (m = receive(socket, SECONDS)) != NULL; seq++) {
        *gaps += json_integer_value(json_object_get(m, "seq")) != seq;
        if (!is_tokens(m))
            return m;
        const json_t *choices = json_object_get(m, "choices");
        for (size_t i = 0; i < json_array_size(choices); i++)
            *n_tokens += (long)json_array_size(json_object_get(json_array_get(choices, i), "token_ids"));
        json_decref(m);
    }
    return NULL;
}

static bool is_ok(const json_t *m)
{
    const char *status = json_string_value(json_object_get(m, "status"));
    return status != NULL && strcmp(status, "ok") == 0;
}

/* Checks that another client is served meanwhile. */
static void check_served(void)
{
    char *story = serving_story(&server, "Once upon a time", 5);
    case_check(story != NULL, "another client is not served");
    free(story);
}

static void check_empty(void)
{
    case_check(serving_await(&server, "num_requests_running", 0, SECONDS), "sequences still run");
    case_check(serving_await(&server, "kv_blocks_used", 0, SECONDS), "blocks are still held");
    case_check(serving_await(&server, "open_requests", 1, SECONDS), "requests are still open");
}

/* A default ROUTER drops messages that do not fit into a client's queue, and reports them as sent. Here a client reads
 * nothing until all events are made: none may be missing. */
static void late_reader(void)
{
    long n_tokens = 0;
    int gaps = 0;
    case_begin("a client that reads late misses nothing");
    void *socket = open_client(NULL, true);
    send_generate(socket, "late", 400, 2, 0, true);
    json_t *first = receive(socket, SECONDS); /* the request runs */
    case_check(is_tokens(first), "no first event");
    json_decref(first);
    case_check(serving_await(&server, "num_requests_running", 0, SECONDS), "the request does not finish");
    json_t *last = read_stream(socket, 1, &n_tokens, &gaps);
    case_check(is_ok(last) && gaps == 0, "%d gaps, %s end", gaps, is_ok(last) ? "a good" : "no good");
    case_check(n_tokens > 2 * 399 - 4 && n_tokens <= 2 * 400, "%ld tokens", n_tokens);
    json_decref(last);
    (void)zmq_close(socket);
    check_empty();
    case_end();
}

/* flags: ZMQ_DONTWAIT, or 0 */
static void send_op(void *socket, const char *op, const char *name, int number, int flags)
{
    char text[128];
    (void)snprintf(text, sizeof text, "{\"op\": \"%s\", \"request_id\": \"%s-%d\"}", op, name, number);
    (void)zmq_send(socket, text, strlen(text), flags);
}

/* Returns the number after the request_id's dash; -1: it is not in [0, n). */
static int number_of(const json_t *m, int n)
{
    const char *name = json_string_value(json_object_get(m, "request_id"));
    const char *dash = name != NULL ? strrchr(name, '-') : NULL;
    int number = dash != NULL ? atoi(dash + 1) : -1;
    return number < n ? number : -1;
}

/* A client that resumes reading receives the last messages of requests 0 to n - 1, each once. Returns the number of
 * those that report a slow client. */
static int read_last_messages(void *socket, int n)
{
    int *heard = calloc((size_t)n, sizeof *heard), n_slow = 0;
    for (int last = 0; last < n;) {
        json_t *m = receive(socket, SECONDS);
        int i = number_of(m, n);
        if (!case_check(i >= 0, "%d of %d last messages have come", last, n)) {
            json_decref(m);
            break;
        }
        last += !is_tokens(m);
        heard[i] += !is_tokens(m);
        n_slow += json_integer_value(json_object_get(m, "code")) == 499;
        json_decref(m);
    }
    int bad = 0;
    for (int i = 0; i < n; i++)
        bad += heard[i] != 1;
    case_check(bad == 0, "%d requests have no last message or several", bad);
    free(heard);
    return n_slow;
}

/* More than --max-client-backlog waits for a client: its streams are cancelled, others are served, and it learns of
 * this when it reads. All its events would be about 30 MB: it reads a few MB a second, and some streams may still
 * finish. */
static void client_that_does_not_read(void)
{
    enum { N = 16, TOKENS = 100 };
    case_begin("a client that does not read is cancelled and told so, others are served");
    double cut = serving_metric(&server, "slow_clients_total");
    void *socket = open_client(NULL, true);
    for (int i = 0; i < N; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "deaf-%d", i);
        send_generate(socket, name, TOKENS, 8, 20, true);
    }
    double until = seconds_now() + SECONDS;
    while (!(serving_metric(&server, "slow_clients_total") > cut) && seconds_now() < until)
        check_served();
    case_check(serving_metric(&server, "slow_clients_total") > cut, "nothing was cancelled");
    int n_slow = read_last_messages(socket, N);
    case_check(n_slow > 0, "%d streams end with 499", n_slow);
    (void)zmq_close(socket);
    check_empty();
    case_end();
}

/* Whole replies are not dropped either: short ones replace them, and the connection stays open. */
static void client_that_asks_too_much(void)
{
    enum { N = 1500 };
    case_begin("a client that reads late after many large requests gets one reply to each");
    double slow = serving_metric(&server, "slow_clients_total"), cut = serving_metric(&server, "cut_clients_total");
    void *socket = open_client(NULL, true);
    for (int i = 0; i < N; i++)
        send_op(socket, "metrics", "much", i, 0);
    double until = seconds_now() + SECONDS;
    while (!(serving_metric(&server, "slow_clients_total") > slow) && seconds_now() < until)
        continue;
    int n_slow = read_last_messages(socket, N);
    slow = serving_metric(&server, "slow_clients_total") - slow;
    case_check(n_slow > 0 && n_slow < N && n_slow == slow, "%d of %d were refused, %g counted", n_slow, N, slow);
    send_op(socket, "health", "then", 0, 0);
    json_t *m = receive(socket, SECONDS);
    case_check(is_ok(m), "the connection no longer works");
    json_decref(m);
    case_check(serving_metric(&server, "cut_clients_total") == cut, "the client was disconnected");
    (void)zmq_close(socket);
    check_empty();
    case_end();
}

/* Tells whether the monitor reports that the server has closed the connection. */
static bool hears_disconnect(void *monitor, double seconds)
{
    zmq_pollitem_t item = {.socket = monitor, .events = ZMQ_POLLIN};
    bool heard = zmq_poll(&item, 1, (long)(1000 * seconds)) == 1;
    char part[256];
    for (int more = heard; more;) {
        size_t bytes = sizeof more;
        (void)zmq_recv(monitor, part, sizeof part, 0);
        (void)zmq_getsockopt(monitor, ZMQ_RCVMORE, &more, &bytes);
    }
    return heard;
}

/* A client at twice its backlog keeps asking and never reads: its connection is closed, and the next one works. */
static void client_that_only_asks(void)
{
    case_begin("a client that only asks is disconnected, and may reconnect");
    double cut = serving_metric(&server, "cut_clients_total");
    void *socket = open_client(NULL, true), *monitor = zmq_socket(context, ZMQ_PAIR);
    case_check(zmq_socket_monitor(socket, "inproc://cut", ZMQ_EVENT_DISCONNECTED) == 0 &&
                   zmq_connect(monitor, "inproc://cut") == 0,
               "no monitor");
    double until = seconds_now() + SECONDS;
    for (int i = 0; serving_metric(&server, "cut_clients_total") == cut && seconds_now() < until; i++)
        for (int k = 0; k < 500; k++)
            send_op(socket, i < 4 ? "metrics" : "health", "only", k, ZMQ_DONTWAIT);
    case_check(serving_metric(&server, "cut_clients_total") == cut + 1, "%g connections were cut",
               serving_metric(&server, "cut_clients_total") - cut);
    bool gone = false; /* libzmq notices only when it has room for incoming messages */
    while (!(gone = hears_disconnect(monitor, 0.01)) && seconds_now() < until)
        json_decref(receive(socket, 0.1));
    case_check(gone, "the client does not learn that it was disconnected");
    (void)zmq_socket_monitor(socket, NULL, 0);
    (void)zmq_close(monitor);
    (void)zmq_close(socket);
    check_served();
    check_empty();
    case_end();
}

/* Clients disconnect: their requests end long before their last token. */
static void client_that_leaves(void)
{
    case_begin("a client that leaves frees its resources");
    double made = serving_metric(&server, "generation_tokens_total");
    void *socket = open_client(NULL, false);
    send_generate(socket, "leaves", LONG, 16, 0, true);
    json_t *first = receive(socket, SECONDS);
    case_check(is_tokens(first), "no first event");
    json_decref(first);
    (void)zmq_close(socket);
    check_empty();
    made = serving_metric(&server, "generation_tokens_total") - made;
    case_check(made < LONG * 16 / 2, "%.0f tokens were made for nobody", made);
    case_end();
}

/* A frozen process keeps its connection: only missing heartbeats reveal it, so one must have arrived, a second after
 * the beginning. */
static void client_that_is_frozen(void)
{
    struct process p;
    case_begin("a frozen client is detected by its missing heartbeats");
    double lost = serving_metric(&server, "lost_clients_total");
    process_start(&p, &(struct process_setup){.program = "lockstep-client"},
                  (const char *[]){"--endpoint", server.endpoint, "--stream", "--max-tokens", "900", "--field", "n=64",
                                   "--ignore-eos", "--json", "Once upon a time", NULL});
    process_watch(&p, SECONDS, 1);
    case_check(p.bytes[PROCESS_OUT] > 0, "no first event: %s", p.text[PROCESS_ERR] != NULL ? p.text[PROCESS_ERR] : "");
    process_watch(&p, 1.5, (size_t)-1);
    (void)kill(p.pid, SIGSTOP);
    double until = seconds_now() + SECONDS;
    while (!(serving_metric(&server, "lost_clients_total") > lost) && seconds_now() < until)
        process_watch(&p, 0.05, (size_t)-1);
    case_check(serving_metric(&server, "lost_clients_total") > lost, "the frozen client is not detected");
    check_empty();
    (void)kill(p.pid, SIGCONT);
    process_wait(&p);
    case_check(p.status == 8, "the client ended with status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

/* libzmq's ROUTER silently ignores a second client of an identity, or hands it the replies to the first.
 * tests/attack/test_identities.c covers hostile clients. */
static void same_identity(void)
{
    void *client[2];
    case_begin("identities do not matter: two clients with the same one get their own replies");
    for (int i = 0; i < 2; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "mine-%d", i);
        client[i] = open_client("gateway", false);
        send_generate(client[i], name, 5, 1, 0, false);
    }
    for (int i = 0; i < 2; i++) {
        json_t *m = receive(client[i], SECONDS);
        const char *name = json_string_value(json_object_get(m, "request_id"));
        case_check(is_ok(m) && name != NULL && name[5] == '0' + i, "client %d: %s", i, name);
        json_decref(m);
        (void)zmq_close(client[i]);
    }
    check_empty();
    case_end();
}

/* The server reads their messages after libzmq has learnt that they have gone. */
static void clients_that_ask_and_leave(void)
{
    case_begin("clients that ask and leave at once leave nothing running");
    double made = serving_metric(&server, "generation_tokens_total");
    for (int i = 0; i < 100; i++) {
        void *socket = open_client(NULL, false);
        int linger = 1000;
        (void)zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
        char name[32];
        (void)snprintf(name, sizeof name, "left-%d", i);
        send_generate(socket, name, LONG, 1, 0, false);
        (void)zmq_close(socket);
    }
    check_empty();
    made = serving_metric(&server, "generation_tokens_total") - made;
    printf("# %.0f tokens were made for nobody\n", made);
    case_check(made < 100 * LONG / 20, "%.0f tokens were made for nobody", made);
    case_end();
}

/* The clients send more messages than libzmq reads at once, and disconnect before they are read, while another client
 * is served: heartbeats of the server's own would make libzmq abort it within a second or two. */
static void clients_that_flood_and_vanish(void)
{
    enum { N = 40, EACH = 3000, TIMES = 4 };
    void *socket[N];
    case_begin("clients that flood and vanish do not end the server");
    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < N; k++)
            socket[k] = open_client(NULL, true);
        for (int m = 0; m < EACH; m++)
            for (int k = 0; k < N; k++)
                send_op(socket[k], "metrics", "flood", m, ZMQ_DONTWAIT);
        check_served();
        for (int k = 0; k < N; k++)
            (void)zmq_close(socket[k]);
    }
    check_served();
    check_empty();
    case_end();
}

/* A REQ socket gets one reply, with its delimiter; it cannot stream. */
static void req_socket(void)
{
    const int none = 0;
    static const char *const text[] = {"{\"prompt\": \"Hi\", \"max_tokens\": 2}",
                                       "{\"prompt\": \"Hi\", \"max_tokens\": 2, \"stream\": true}"};
    case_begin("a REQ socket gets one reply to each request");
    void *socket = zmq_socket(context, ZMQ_REQ);
    (void)zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    case_check(zmq_connect(socket, server.endpoint) == 0, "cannot connect");
    for (int i = 0; i < 4; i++) {
        (void)zmq_send(socket, text[i % 2], strlen(text[i % 2]), 0);
        json_t *m = receive(socket, SECONDS);
        case_check(m != NULL && is_ok(m) == (i % 2 == 0), "reply %d", i);
        case_check(i % 2 == 0 || json_integer_value(json_object_get(m, "code")) == 400, "a stream is not refused");
        json_decref(m);
    }
    (void)zmq_close(socket);
    case_end();
}

/* Even with unread replies and open requests the server ends at once. */
static void linger(void)
{
    case_begin("a client that does not read cannot delay the end");
    void *deaf = open_client(NULL, true), *open = open_client(NULL, false);
    long n_tokens = 0;
    int gaps = 0;
    send_generate(deaf, "unread", LONG, 8, 20, true);
    send_generate(open, "open", LONG, 4, 0, true);
    json_t *m = receive(deaf, SECONDS);
    json_decref(m);
    double started = seconds_now();
    (void)kill(server.p.pid, SIGTERM);
    m = read_stream(open, 0, &n_tokens, &gaps);
    case_check(m != NULL && !is_ok(m) && json_integer_value(json_object_get(m, "code")) == 503,
               "an open request is not answered with an error");
    json_decref(m);
    while (!server.p.ended && seconds_now() - started < SECONDS)
        process_watch(&server.p, 0.05, (size_t)-1);
    double took = seconds_now() - started;
    printf("# ended %.2f s after SIGTERM\n", took);
    case_check(server.p.ended && process_in_time(took, 3), "it took %.1f s", took);
    (void)zmq_close(deaf);
    (void)zmq_close(open);
    case_end();
}

int main(void)
{
    context = zmq_ctx_new();
    case_begin("serve on %d ranks", RANKS);
    bool started = serving_start(&server, RANKS, NULL, (const char *[]){"--max-client-backlog", "256K", NULL});
    case_check(started, "no server");
    case_end();
    if (!started)
        return cases_done();
    late_reader();
    client_that_does_not_read();
    client_that_asks_too_much();
    client_that_only_asks();
    client_that_leaves();
    client_that_is_frozen();
    same_identity();
    clients_that_ask_and_leave();
    clients_that_flood_and_vanish();
    req_socket();
    linger();
    (void)serving_stop(&server);
    (void)zmq_ctx_term(context);
    return cases_done();
}
