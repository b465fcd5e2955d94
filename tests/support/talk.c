/* tests/support/talk.c - see talk.h. */
#include "tests/support/talk.h"
#include "tests/support/cases.h"
#include "tests/support/process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

static void must(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(99);
}

void talk_open(struct talk *t, int type, const char *endpoint, const char *id, const struct talk_keys *keys)
{
    const int none = 0;
    t->context = zmq_ctx_new();
    t->socket = zmq_socket(t->context, type);
    must(t->socket != NULL && zmq_setsockopt(t->socket, ZMQ_LINGER, &none, sizeof none) == 0, "socket");
    if (id != NULL)
        must(zmq_setsockopt(t->socket, ZMQ_ROUTING_ID, id, strlen(id)) == 0, "routing id");
    if (keys != NULL)
        must(zmq_setsockopt(t->socket, ZMQ_CURVE_SERVERKEY, keys->server, 41) == 0 &&
                 zmq_setsockopt(t->socket, ZMQ_CURVE_PUBLICKEY, keys->public_key, 41) == 0 &&
                 zmq_setsockopt(t->socket, ZMQ_CURVE_SECRETKEY, keys->secret_key, 41) == 0,
             "curve");
    must(zmq_connect(t->socket, endpoint) == 0, endpoint);
}

void talk_close(struct talk *t)
{
    (void)zmq_close(t->socket);
    (void)zmq_ctx_term(t->context);
}

void talk_send(struct talk *t, const void *data, size_t bytes, bool more)
{
    must(zmq_send(t->socket, data, bytes, more ? ZMQ_SNDMORE : 0) >= 0, "send");
}

void talk_say(struct talk *t, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    must(n >= 0, "vasprintf");
    talk_send(t, text, (size_t)n, false);
    free(text);
}

json_t *talk_hear(struct talk *t, double seconds)
{
    zmq_pollitem_t item = {.socket = t->socket, .events = ZMQ_POLLIN};
    if (zmq_poll(&item, 1, (long)(1e3 * process_patience(seconds))) < 1)
        return NULL;
    for (;;) {
        zmq_msg_t m;
        (void)zmq_msg_init(&m);
        must(zmq_msg_recv(&m, t->socket, 0) >= 0, "receive");
        bool more = zmq_msg_more(&m) != 0;
        json_t *o = more ? NULL : json_loadb(zmq_msg_data(&m), zmq_msg_size(&m), JSON_ALLOW_NUL, NULL);
        (void)zmq_msg_close(&m);
        if (!more)
            return o;
    }
}

json_t *talk_ask(const char *endpoint, const char *json)
{
    struct talk t;
    talk_open(&t, ZMQ_REQ, endpoint, NULL, NULL);
    talk_say(&t, "%s", json);
    json_t *reply = talk_hear(&t, 30);
    talk_close(&t);
    return reply;
}

void talk_refused(const char *endpoint, const char *json, const char *field, const char *part)
{
    json_t *reply = talk_ask(endpoint, json);
    case_check(talk_number(reply, "code") == 400 && strcmp(talk_text(reply, "error/field"), field) == 0 &&
                   strstr(talk_text(reply, "error/message"), part) != NULL,
               "%s: %g, %s: %s", json, talk_number(reply, "code"), talk_text(reply, "error/field"),
               talk_text(reply, "error/message"));
    json_decref(reply);
}

const unsigned char talk_greeting[TALK_GREETING_BYTES] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};
const unsigned char talk_ready[TALK_READY_BYTES] = {4,   28,  5,   'R', 'E', 'A', 'D', 'Y', 11,  'S',
                                                    'o', 'c', 'k', 'e', 't', '-', 'T', 'y', 'p', 'e',
                                                    0,   0,   0,   6,   'D', 'E', 'A', 'L', 'E', 'R'};

int talk_connect(const char *endpoint)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static const json_t *at(const json_t *o, const char *path)
{
    char name[64];
    while (o != NULL && *path != '\0') {
        size_t n = strcspn(path, "/");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(name)) : json_object_get(o, name);
        path += n + (path[n] == '/');
    }
    return o;
}

double talk_number(const json_t *reply, const char *path)
{
    const json_t *o = at(reply, path);
    return json_is_number(o) ? json_number_value(o) : -1;
}

const char *talk_text(const json_t *reply, const char *path)
{
    const char *text = json_string_value(at(reply, path));
    return text != NULL ? text : "";
}
