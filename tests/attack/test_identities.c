/* tests/attack/test_identities.c - clients of one server that try to get each other's replies, or to end it: invented
 * identities, the ones that libzmq would assign next, thousands held at once, guessed request ids. Over plain sockets
 * and CURVE, on 1 and 3 ranks; an honest client's streams run meanwhile and must be complete. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define STREAMS  24
#define TOKENS   60
#define THIEVES  400
#define GUESSES  200
#define SECONDS  60.0
#define FIRST_ID 0x6b8b4567u /* the first value of an unseeded rand() */

static struct serving s;
static struct talk_keys keys, *k;
static char key[3][48];
static void *context;

static void *open_client(const void *id, size_t bytes)
{
    const int none = 0;
    void *socket = zmq_socket(context, ZMQ_DEALER);
    (void)zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    (void)zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
    if (bytes > 0)
        (void)zmq_setsockopt(socket, ZMQ_ROUTING_ID, id, bytes);
    if (k != NULL) {
        (void)zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, k->server, 41);
        (void)zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, k->public_key, 41);
        (void)zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, k->secret_key, 41);
    }
    case_check(zmq_connect(socket, s.endpoint) == 0, "cannot connect: %s", zmq_strerror(zmq_errno()));
    return socket;
}

static void say(void *socket, const char *text)
{
    (void)zmq_send(socket, text, strlen(text), 0);
}

static json_t *hear(void *socket, double seconds)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    zmq_msg_t frame;
    if (zmq_poll(&item, 1, (long)(1e3 * seconds)) != 1)
        return NULL;
    (void)zmq_msg_init(&frame);
    json_t *m = zmq_msg_recv(&frame, socket, 0) >= 0
                    ? json_loadb(zmq_msg_data(&frame), zmq_msg_size(&frame), JSON_ALLOW_NUL, NULL)
                    : NULL;
    (void)zmq_msg_close(&frame);
    return m;
}

static void say_stream(void *socket, const char *name)
{
    char text[300];
    (void)snprintf(
        text, sizeof text,
        "{\"request_id\": \"%s\", \"prompt\": \"Once upon a time\", \"max_tokens\": %d, \"ignore_eos\": true, "
        "\"temperature\": 0, \"stream\": true}",
        name, TOKENS);
    say(socket, text);
}

/* Reads all streams of an honest client, event by event. Returns the number of complete ones. */
static int read_streams(void *socket, int n)
{
    int seq[STREAMS] = {0}, tokens[STREAMS] = {0}, n_ended = 0, n_whole = 0;
    for (json_t *m; n_ended < n && (m = hear(socket, SECONDS)) != NULL; json_decref(m)) {
        int i = atoi(talk_text(m, "request_id") + strlen("honest-"));
        bool final = strcmp(talk_text(m, "event"), "final") == 0;
        if (strncmp(talk_text(m, "request_id"), "honest-", 7) != 0 || i < 0 || i >= n)
            continue;
        seq[i] += talk_number(m, "seq") == seq[i];
        tokens[i] +=
            (int)json_array_size(json_object_get(json_array_get(json_object_get(m, "choices"), 0), "token_ids"));
        n_ended += final;
        n_whole += final && strcmp(talk_text(m, "status"), "ok") == 0 && tokens[i] >= TOKENS && seq[i] > 1;
    }
    return n_whole;
}

/* Makes an id that a thief may try: one that libzmq would assign next, in its byte order or a similar one; another
 * client's; long ones. */
static size_t make_id(int i, unsigned char *id)
{
    uint32_t number = FIRST_ID + (uint32_t)(i / 3);
    if (i % 7 == 0) {
        memset(id, i % 2 ? 0 : 'x', 255);
        return 255;
    }
    if (i % 5 == 0) {
        memcpy(id, "victim", 6);
        return 6;
    }
    id[0] = 0;
    for (int b = 0; b < 4; b++)
        id[1 + b] = (unsigned char)(number >> (24 - 8 * b));
    return 5;
}

static void thieves(const char *where)
{
    static void *thief[THIEVES];
    unsigned char id[256];
    char name[32];
    int n_stolen = 0, n_heard = 0, n_own = 0;
    case_begin("%s: %d connections with others' ids receive no event of others' streams", where, THIEVES);
    void *honest = open_client(NULL, 0), *named = open_client("victim", 6);
    for (int i = 0; i < STREAMS; i++) {
        (void)snprintf(name, sizeof name, "honest-%d", i);
        say_stream(honest, name);
        if (i == STREAMS / 2)
            say_stream(named, "honest-named");
    }
    for (int i = 0; i < THIEVES; i++) {
        thief[i] = open_client(id, make_id(i, id));
        if (i % 2 == 0) /* the others only listen */
            say(thief[i], "{\"op\": \"health\", \"request_id\": \"own\"}");
    }
    case_check(read_streams(honest, STREAMS) == STREAMS, "an honest client's streams are incomplete");
    for (int i = 0; i < THIEVES; i++)
        for (json_t *m; (m = hear(thief[i], i % 2 == 0 && n_heard == 0 ? 1 : 0)) != NULL; json_decref(m)) {
            bool own = strcmp(talk_text(m, "request_id"), "own") == 0;
            n_own += own;
            n_stolen += !own;
            n_heard++;
        }
    json_t *m = NULL;
    bool final = false;
    while (!final && (m = hear(named, SECONDS)) != NULL) {
        final = strcmp(talk_text(m, "event"), "final") == 0;
        json_decref(m);
    }
    case_check(final, "the stream of a client with an id did not end");
    case_check(n_stolen == 0, "%d events were stolen", n_stolen);
    case_check(n_own > THIEVES / 4, "only %d of their own messages were answered", n_own);
    printf("# %s: %d events for other clients, %d stolen\n", where, STREAMS * TOKENS, n_stolen);
    for (int i = 0; i < THIEVES; i++)
        (void)zmq_close(thief[i]);
    (void)zmq_close(named);
    (void)zmq_close(honest);
    case_end();
}

/* libzmq asserts if it assigns an id that another connection holds. */
static void held_ids(const char *where)
{
    static void *holder[GUESSES], *ordinary[GUESSES];
    int n_answered = 0;
    case_begin("%s: clients that hold the next %d ids do not end the server", where, GUESSES);
    for (int i = 0; i < GUESSES; i++) {
        uint32_t number = FIRST_ID + (uint32_t)i;
        unsigned char id[5] = {0, (unsigned char)(number >> 24), (unsigned char)(number >> 16),
                               (unsigned char)(number >> 8), (unsigned char)number};
        holder[i] = open_client(id, sizeof id);
    }
    for (int i = 0; i < GUESSES; i++) {
        ordinary[i] = open_client(NULL, 0);
        say(ordinary[i], "{\"op\": \"health\"}");
    }
    for (int i = 0; i < GUESSES; i++) {
        json_t *m = hear(ordinary[i], SECONDS);
        n_answered += strcmp(talk_text(m, "state"), "ready") == 0;
        if (m == NULL)
            break;
        json_decref(m);
    }
    case_check(n_answered == GUESSES, "%d of %d ordinary clients were answered", n_answered, GUESSES);
    process_watch(&s.p, 0.05, (size_t)-1);
    case_check(!s.p.ended, "the server ended with status %d: %s", s.p.status, s.p.text[PROCESS_ERR]);
    for (int i = 0; i < GUESSES; i++) {
        (void)zmq_close(holder[i]);
        (void)zmq_close(ordinary[i]);
    }
    case_end();
}

/* Request ids that the server makes are unpredictable, and no client can cancel another one's request. */
static void guessed_names(const char *where)
{
    char text[200], name[64];
    int n_cancelled = 0, n_refused = 0;
    uint64_t made[8] = {0};
    case_begin("%s: no client cancels another one's request", where);
    void *honest = open_client(NULL, 0), *stranger = open_client(NULL, 0);
    for (int i = 0; i < STREAMS; i++) {
        (void)snprintf(name, sizeof name, "honest-%d", i);
        say_stream(honest, name);
        (void)snprintf(text, sizeof text, "{\"op\": \"cancel\", \"request_id\": \"%s\"}", name);
        say(stranger, text);
    }
    for (int i = 0; i < STREAMS; i++) {
        json_t *m = hear(stranger, SECONDS);
        n_cancelled += strcmp(talk_text(m, "status"), "ok") == 0;
        n_refused += talk_number(m, "code") == 404;
        json_decref(m);
    }
    case_check(n_cancelled == 0 && n_refused == STREAMS, "%d cancelled, %d heard 404", n_cancelled, n_refused);
    case_check(read_streams(honest, STREAMS) == STREAMS, "an honest client's streams are incomplete");
    say_stream(stranger, "honest-0"); /* also another connection's request id: names are per connection */
    say_stream(honest, "honest-0");
    case_check(read_streams(stranger, 1) == 1 && read_streams(honest, 1) == 1, "one request id on two connections");
    say_stream(honest, "honest-0");
    say(honest, "{\"op\": \"cancel\", \"request_id\": \"honest-0\"}");
    bool cancelled = false;
    for (json_t *m; !cancelled && (m = hear(honest, SECONDS)) != NULL; json_decref(m))
        cancelled = talk_number(m, "code") == 499;
    case_check(cancelled, "its owner cannot cancel it");
    for (int i = 0; i < 8; i++) {
        say(honest, "{\"prompt\": \"Once\", \"max_tokens\": 1}");
        json_t *m = hear(honest, SECONDS);
        while (m != NULL && strncmp(talk_text(m, "request_id"), "r-", 2) != 0) {
            json_decref(m);
            m = hear(honest, SECONDS);
        }
        made[i] = m != NULL ? strtoull(talk_text(m, "request_id") + 2, NULL, 16) : 0;
        json_decref(m);
    }
    for (int i = 1; i < 8; i++)
        case_check(made[i] != 0 && made[i] != made[i - 1] && made[i] - made[i - 1] != made[1] - made[0] + (i == 1),
                   "request ids are predictable: %llx %llx", (unsigned long long)made[i - 1],
                   (unsigned long long)made[i]);
    printf("# %s: %d cancels of others' requests, %d obeyed\n", where, STREAMS, n_cancelled);
    (void)zmq_close(stranger);
    (void)zmq_close(honest);
    case_end();
}

static void read_keys(void)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s.client", s.rendezvous);
    json_t *o = json_load_file(path, 0, NULL);
    static const char *const names[3] = {"server_public_key", "client_public_key", "client_secret_key"};
    for (int i = 0; i < 3; i++)
        (void)snprintf(key[i], sizeof key[i], "%s", talk_text(o, names[i]));
    json_decref(o);
    keys = (struct talk_keys){key[0], key[1], key[2]};
    k = &keys;
}

static void attack(int ranks, bool curve)
{
    char where[64];
    (void)snprintf(where, sizeof where, "%s, %d rank%s", curve ? "CURVE" : "plain", ranks, ranks == 1 ? "" : "s");
    k = NULL;
    case_begin("%s: serve", where);
    bool started = serving_start(&s, ranks, NULL, curve ? (const char *[]){"--curve", NULL} : NULL);
    case_check(started, "the server did not start");
    case_end();
    if (!started)
        return;
    if (curve)
        read_keys();
    held_ids(where);
    thieves(where);
    guessed_names(where);
    case_begin("%s: SIGUSR1 ends it", where);
    int status = serving_stop(&s);
    case_check(status == 0, "status %d", status);
    case_end();
}

int main(void)
{
    context = zmq_ctx_new();
    (void)zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 4096);
    /* Only rank 0 has connections: under sanitizers it runs alone. */
    for (int ranks = 1; ranks <= (process_sanitized() ? 1 : 3); ranks += 2)
        for (int curve = 0; curve < 2; curve++)
            attack(ranks, curve != 0);
    (void)zmq_ctx_term(context);
    return cases_done();
}
