/* client/connection.c - see connection.h. */
#include "client/connection.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/json.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <zmq.h>

#define KEY_CHARS        40 /* Z85 of 32 bytes */
#define FILE_MAX_BYTES   ((size_t)1 << 16)
#define HEARTBEAT_MS     1000
#define HEARTBEAT_END_MS 3000
#define LINGER_MS        1000
#define SEND_MS          1000
#define MONITOR          "inproc://monitor"
#define NOT_SERVE        "this is not `lockstep serve`: lockstep-gateway speaks HTTP" /* libzmq cannot always tell */
#define LARGE_BYTES      ((size_t)1 << 20) /* size of a message that a server may have refused by hanging up */

struct curve_keys {
    char server[KEY_CHARS + 1], public[KEY_CHARS + 1], secret[KEY_CHARS + 1]; /* "": none */
};

static int copy_key(char *to, const char *from, const char *file, const char *name, struct err *e)
{
    if (from == NULL || strlen(from) != KEY_CHARS)
        return ERR(e, ERR_INPUT, "%s: \"%s\" is %s of %zu characters, expected a Z85 key of %d", file, name,
                   from == NULL ? "nothing," : "a text", from == NULL ? 0 : strlen(from), KEY_CHARS);
    memcpy(to, from, KEY_CHARS + 1);
    return 0;
}

/* Waits for the file; the server writes it when it is ready. */
static json_t *read_rendezvous(const char *path, double until, struct err *e)
{
    while (access(path, F_OK) != 0 && seconds_now() < until)
        (void)zmq_poll(NULL, 0, 50);
    return json_read_file(path, FILE_MAX_BYTES, e);
}

/* Our key pair, and the server's public key if the file has it. */
static int read_key_file(struct curve_keys *k, const char *path, struct err *e)
{
    (void)prctl(PR_SET_DUMPABLE, 0); /* keeps the secret key from core files and from debuggers of the same user */
    json_t *root = json_read_file(path, FILE_MAX_BYTES, e);
    const char *public = json_get_string(root, "client_public_key", NULL, path, e);
    const char *secret = json_get_string(root, "client_secret_key", NULL, path, e);
    const char *server = json_get_string(root, "server_public_key", NULL, path, e);
    if (e->code == ERR_NONE && copy_key(k->public, public, path, "client_public_key", e) == 0 &&
        copy_key(k->secret, secret, path, "client_secret_key", e) == 0 && server != NULL)
        (void)copy_key(k->server, server, path, "server_public_key", e);
    json_decref(root);
    return e->code == ERR_NONE ? 0 : -1;
}

/* From a rendezvous file: the endpoint, the server's key, and the file with the keys of the job's clients if no keys
 * were given. */
static int use_rendezvous(struct connection *c, struct curve_keys *k, const struct connection_setup *s, double until,
                          struct err *e)
{
    json_t *root = read_rendezvous(s->rendezvous, until, e);
    const char *endpoint = json_get_string(root, "endpoint", NULL, s->rendezvous, e);
    const char *key = json_get_string(root, "public_key", NULL, s->rendezvous, e);
    const char *own = json_get_string(root, "client_keys", NULL, s->rendezvous, e);
    if (e->code == ERR_NONE && (endpoint == NULL || strlen(endpoint) >= sizeof c->endpoint))
        (void)ERR(e, ERR_INPUT, "%s: \"endpoint\" is %s, expected a string of less than %zu bytes", s->rendezvous,
                  endpoint == NULL ? "nothing" : "longer", sizeof c->endpoint);
    if (e->code == ERR_NONE && key != NULL)
        (void)copy_key(k->server, key, s->rendezvous, "public_key", e);
    if (e->code == ERR_NONE && own != NULL && s->client_key == NULL)
        (void)read_key_file(k, own, e);
    if (e->code == ERR_NONE)
        memcpy(c->endpoint, endpoint, strlen(endpoint) + 1);
    json_decref(root);
    return e->code == ERR_NONE ? 0 : -1;
}

static int find_server(struct connection *c, struct curve_keys *k, const struct connection_setup *s, double until,
                       struct err *e)
{
    if (s->endpoint == NULL && s->rendezvous == NULL)
        return ERR(e, ERR_USAGE, "no server named: use --endpoint E or --rendezvous FILE");
    if (s->rendezvous != NULL && use_rendezvous(c, k, s, until, e) != 0)
        return -1;
    if (s->client_key != NULL && read_key_file(k, s->client_key, e) != 0)
        return -1;
    if (s->endpoint != NULL && strlen(s->endpoint) >= sizeof c->endpoint)
        return ERR(e, ERR_USAGE, "--endpoint: %zu bytes, at most %zu are accepted", strlen(s->endpoint),
                   sizeof c->endpoint - 1);
    if (s->endpoint != NULL && endpoint_check(s->endpoint, false, "--endpoint", e) != 0)
        return -1;
    if (s->endpoint != NULL)
        memcpy(c->endpoint, s->endpoint, strlen(s->endpoint) + 1);
    return 0;
}

static int set_option(struct connection *c, int option, const void *value, size_t bytes, const char *name,
                      struct err *e)
{
    return zmq_setsockopt(c->socket, option, value, bytes) == 0
               ? 0
               : ERR(e, ERR_COMM, "ZeroMQ rejects %s: %s", name, zmq_strerror(errno));
}

static int set_number(struct connection *c, int option, int value, const char *name, struct err *e)
{
    return set_option(c, option, &value, sizeof value, name, e);
}

static int set_keys(struct connection *c, const struct curve_keys *k, struct err *e)
{
    if (k->secret[0] == '\0')
        return 0;
    if (k->server[0] == '\0')
        return ERR(e, ERR_USAGE, "--curve-key FILE without \"server_public_key\" needs --rendezvous FILE");
    return set_option(c, ZMQ_CURVE_SERVERKEY, k->server, KEY_CHARS + 1, "the server's key", e) == 0 &&
                   set_option(c, ZMQ_CURVE_PUBLICKEY, k->public, KEY_CHARS + 1, "our public key", e) == 0 &&
                   set_option(c, ZMQ_CURVE_SECRETKEY, k->secret, KEY_CHARS + 1, "our secret key", e) == 0
               ? 0
               : -1;
}

/* HEARTBEAT detects a dead server, HEARTBEAT_TTL lets the server detect a dead client, and LINGER makes closing end.
 * Received messages are limited by their reader, since a bench may have thousands of requests open. No ZMQ_IMMEDIATE:
 * with it libzmq discards the server's last messages before it closes the connection (observed: the reply to
 * `shutdown`, one time in ten), and nothing is sent before the handshake anyway. */
static int open_socket(struct connection *c, const struct curve_keys *k, struct err *e)
{
    c->context = zmq_ctx_new();
    c->socket = c->context != NULL ? zmq_socket(c->context, ZMQ_DEALER) : NULL;
    if (c->socket == NULL)
        return ERR(e, ERR_COMM, "no ZeroMQ socket: %s", zmq_strerror(errno));
    if (set_number(c, ZMQ_LINGER, LINGER_MS, "ZMQ_LINGER", e) != 0 ||
        set_number(c, ZMQ_SNDTIMEO, SEND_MS, "ZMQ_SNDTIMEO", e) != 0 ||
        set_number(c, ZMQ_SNDHWM, 0, "ZMQ_SNDHWM", e) != 0 || set_number(c, ZMQ_RCVHWM, 0, "ZMQ_RCVHWM", e) != 0 ||
        set_number(c, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS, "ZMQ_HEARTBEAT_IVL", e) != 0 ||
        set_number(c, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_END_MS, "ZMQ_HEARTBEAT_TIMEOUT", e) != 0 ||
        set_number(c, ZMQ_HEARTBEAT_TTL, HEARTBEAT_END_MS, "ZMQ_HEARTBEAT_TTL", e) != 0 || set_keys(c, k, e) != 0)
        return -1;
    const int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_DISCONNECTED;
    c->monitor = zmq_socket_monitor(c->socket, MONITOR, events) == 0 ? zmq_socket(c->context, ZMQ_PAIR) : NULL;
    if (c->monitor == NULL || zmq_connect(c->monitor, MONITOR) != 0)
        return ERR(e, ERR_COMM, "no ZeroMQ monitor: %s", zmq_strerror(errno));
    return 0;
}

/* With ZMQ_IPV6, ZeroMQ would prefer the IPv6 address of a host that has both kinds, whose server may listen on IPv4
 * alone. */
static int connect_socket(struct connection *c, struct err *e)
{
    c->connects = true;
    if (set_number(c, ZMQ_IPV6, c->host.needs_ipv6 ? 1 : 0, "ZMQ_IPV6", e) != 0)
        return -1;
    return zmq_connect(c->socket, c->endpoint) == 0
               ? 0
               : ERR(e, ERR_USAGE, "endpoint \"%s\": %s", c->endpoint, zmq_strerror(errno));
}

/* Finds the server, and begins to connect to it. */
static int begin_connecting(struct connection *c, struct curve_keys *k, const struct connection_setup *s, double until,
                            struct err *e)
{
    if (find_server(c, k, s, until, e) != 0 || open_socket(c, k, e) != 0 ||
        resolve_begin(&c->host, c->endpoint, e) != 0)
        return -1;
    return c->host.known ? connect_socket(c, e) : 0;
}

/* Read one event of the monitor, if there is one. true: an event was read. */
static bool read_event(struct connection *c)
{
    uint8_t frame[6]; /* event: 16 bits; value: 32 bits */
    uint16_t event = 0;
    char address[ENDPOINT_BYTES];
    if (zmq_recv(c->monitor, frame, sizeof frame, ZMQ_DONTWAIT) < (int)sizeof frame)
        return false;
    (void)zmq_recv(c->monitor, address, sizeof address, ZMQ_DONTWAIT);
    memcpy(&event, frame, sizeof event);
    c->gone = c->gone || (c->up && event == ZMQ_EVENT_DISCONNECTED);
    c->up = c->up || event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        c->handshake = "the server does not accept this key";
    else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL || event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        c->handshake = "the handshake failed: one side wants CURVE, or has another key, or " NOT_SERVE;
    return true;
}

/* The reason for no connection at the end of the time. */
static int no_server(struct connection *c, double seconds, bool curve, struct err *e)
{
    if (!c->host.known && c->host.why[0] == '\0')
        resolve_late(&c->host, seconds);
    if (!c->host.known)
        return ERR(e, ERR_COMM, "%s: %s", c->endpoint, c->host.why);
    return ERR(e, ERR_COMM, "%s: no server answers within %g s%s", c->endpoint, seconds,
               curve ? " (or it does not accept this key)" : " (or it wants CURVE: --curve-key, or " NOT_SERVE ")");
}

/* Waits for the next event of connecting; false: a signal came. */
static bool await_event(struct connection *c, double seconds)
{
    zmq_pollitem_t item[2] = {{.socket = c->monitor, .events = ZMQ_POLLIN}, {.events = ZMQ_POLLIN}};
    bool resolves = c->host.lookup != NULL;
    if (resolves)
        item[1].fd = lookup_descriptor(c->host.lookup);
    if (!c->connects && seconds > RESOLVE_AGAIN)
        seconds = RESOLVE_AGAIN; /* until the next attempt */
    return zmq_poll(item, resolves ? 2 : 1, (long)(seconds * 1000) + 1) >= 0 || errno != EINTR;
}

/* Refused keys cause an event or, if the server hangs up silently, none at all. */
static int await_server(struct connection *c, double until, double seconds, bool curve, struct err *e)
{
    while (!c->up) {
        double left = until - seconds_now();
        if (c->handshake != NULL)
            return ERR(e, ERR_COMM, "%s: %s", c->endpoint, c->handshake);
        if (left <= 0 || resolve_failed(&c->host))
            return no_server(c, seconds, curve, e);
        if (!await_event(c, left))
            return ERR(e, ERR_COMM, "%s: interrupted while connecting", c->endpoint);
        connection_look(c);
    }
    return 0;
}

int connection_open(struct connection *c, const struct connection_setup *s, struct err *e)
{
    struct curve_keys k = {0};
    double until = seconds_now() + s->seconds;
    return begin_connecting(c, &k, s, until, e) == 0 ? await_server(c, until, s->seconds, k.secret[0] != '\0', e) : -1;
}

int connection_begin(struct connection *c, const struct connection_setup *s, struct err *e)
{
    struct curve_keys k = {0};
    return begin_connecting(c, &k, s, 0, e);
}

static int descriptor(void *socket)
{
    int fd = -1;
    size_t bytes = sizeof fd;
    return zmq_getsockopt(socket, ZMQ_FD, &fd, &bytes) == 0 ? fd : -1;
}

void connection_descriptors(const struct connection *c, int *messages, int *state)
{
    *messages = descriptor(c->socket);
    *state = descriptor(c->monitor);
}

void connection_look(struct connection *c)
{
    struct err e = {0};
    if (!c->connects && resolve_look(&c->host) && connect_socket(c, &e) != 0)
        c->handshake = "ZeroMQ does not connect to this endpoint";
    while (read_event(c))
        continue;
}

void connection_drop(struct connection *c)
{
    const int none = 0;
    if (c->socket != NULL)
        (void)zmq_setsockopt(c->socket, ZMQ_LINGER, &none, sizeof none);
    connection_close(c);
}

void connection_close(struct connection *c)
{
    resolve_end(&c->host);
    if (c->monitor != NULL) {
        (void)zmq_socket_monitor(c->socket, NULL, 0);
        (void)zmq_close(c->monitor);
    }
    if (c->socket != NULL)
        (void)zmq_close(c->socket);
    while (c->context != NULL && zmq_ctx_term(c->context) != 0 && errno == EINTR)
        continue;
    *c = (struct connection){0};
}

int connection_send_text(struct connection *c, const char *text, size_t bytes, struct err *e)
{
    if (zmq_send(c->socket, text, bytes, 0) < 0)
        return ERR(e, ERR_COMM, "%s: the server accepts no messages: %s", c->endpoint, zmq_strerror(errno));
    c->largest = bytes > c->largest ? bytes : c->largest;
    return 0;
}

int connection_send(struct connection *c, const json_t *message, struct err *e)
{
    char *text = json_text(message, JSON_COMPACT);
    if (text == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: a message");
    int sent = connection_send_text(c, text, strlen(text), e);
    free(text);
    return sent;
}

static int server_gone(const struct connection *c, struct err *e)
{
    if (c->largest >= LARGE_BYTES)
        return ERR(
            e, ERR_COMM,
            "%s: the server has closed the connection; a message of %zu bytes may exceed its --max-message-bytes",
            c->endpoint, c->largest);
    return ERR(e, ERR_COMM, "%s: the server is gone", c->endpoint);
}

/* The last frame of a pending message, if any; an empty one before it is the delimiter of REQ sockets. */
json_t *connection_take(struct connection *c, struct err *e)
{
    json_t *root = NULL;
    zmq_msg_t frame;
    bool more = true;
    (void)zmq_msg_init(&frame);
    while (more && zmq_msg_recv(&frame, c->socket, ZMQ_DONTWAIT) >= 0) {
        more = zmq_msg_more(&frame) != 0;
        if (!more)
            root = json_parse(zmq_msg_data(&frame), zmq_msg_size(&frame), c->endpoint, e);
    }
    (void)zmq_msg_close(&frame);
    if (e->code == ERR_INPUT)
        e->code = ERR_COMM;
    return root;
}

json_t *connection_receive(struct connection *c, double seconds, struct err *e)
{
    double until = seconds_now() + seconds;
    zmq_pollitem_t item[2] = {{.socket = c->socket, .events = ZMQ_POLLIN},
                              {.socket = c->monitor, .events = ZMQ_POLLIN}};
    for (;;) {
        json_t *message = connection_take(c, e);
        if (message != NULL || e->code != ERR_NONE)
            return message;
        if (c->gone) { /* its last messages were read above */
            (void)server_gone(c, e);
            return NULL;
        }
        double left = seconds < 0 ? 3600 : until - seconds_now();
        if (left <= 0 || zmq_poll(item, 2, (long)(left * 1000) + 1) < 0)
            return NULL;
        connection_look(c);
    }
}
