/* coordinator/net/curve.c - see curve.h. */
#include "coordinator/net/curve.h"
#include "base/files.h"
#include "base/json.h"
#include "coordinator/net/zmtp_curve.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define MAX_CLIENT_FILE ((size_t)1 << 20)
#define ZAP_FRAMES      16 /* more than a question has */
#define DOMAIN          "lockstep"

static int allow(struct curve *c, const char *key, const char *where, int line, struct err *e)
{
    unsigned char(*allowed)[CURVE_BYTES] = realloc(c->allowed, (size_t)(c->n_allowed + 1) * sizeof *allowed);
    if (allowed == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: client keys");
    c->allowed = allowed;
    if (strlen(key) != CURVE_TEXT - 1 || zmq_z85_decode(c->allowed[c->n_allowed], key) == NULL)
        return ERR(e, ERR_INPUT, "%s: line %d: found \"%.60s\", expected a public key of %d Z85 characters", where,
                   line, key, CURVE_TEXT - 1);
    c->n_allowed++;
    return 0;
}

static int read_clients(struct curve *c, const char *path, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read(path, MAX_CLIENT_FILE, &bytes, e), *at = text;
    for (int line = 1; at != NULL && e->code == ERR_NONE; line++) {
        char *end = at + strcspn(at, "\n"), *next = *end == '\n' ? end + 1 : NULL;
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
        *end = '\0';
        if (*at != '\0' && !(at[0] == '#' && at[1] == ' '))
            (void)allow(c, at, path, line, e);
        at = next;
    }
    free(text);
    return e->code == ERR_NONE ? 0 : -1;
}

int curve_open(struct curve *c, void *zmq_context, const char *clients, struct err *e)
{
    const int none = 0;
    memset(c, 0, sizeof *c);
    if (!zmq_has("curve"))
        return ERR(e, ERR_UNSUPPORTED, "--curve: this libzmq was built without CURVE");
    if (zmq_curve_keypair(c->public_key, c->secret_key) != 0 ||
        zmq_curve_keypair(c->client_public, c->client_secret) != 0)
        return ERR(e, ERR_IO, "--curve: no key pair: %s", zmq_strerror(errno));
    if (allow(c, c->client_public, "the job's client", 0, e) != 0 ||
        (clients != NULL && read_clients(c, clients, e) != 0))
        return -1;
    if (zmq_context == NULL)
        return 0;
    c->zap = zmq_socket(zmq_context, ZMQ_REP);
    if (c->zap == NULL || zmq_setsockopt(c->zap, ZMQ_LINGER, &none, sizeof none) != 0 ||
        zmq_bind(c->zap, "inproc://zeromq.zap.01") != 0)
        return ERR(e, ERR_IO, "--curve: no socket for checking clients: %s", zmq_strerror(errno));
    return 0;
}

void curve_close(struct curve *c)
{
    if (c->zap != NULL)
        (void)zmq_close(c->zap);
    free(c->allowed);
    explicit_bzero(c, sizeof *c);
}

int curve_apply(const struct curve *c, void *socket, struct err *e)
{
    const int yes = 1;
    if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) != 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, c->secret_key, CURVE_TEXT) != 0 ||
        zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, DOMAIN, sizeof DOMAIN - 1) != 0)
        return ERR(e, ERR_IO, "--curve: %s", zmq_strerror(errno));
    return 0;
}

int curve_join(void *socket, const char *server_public, const char *public_key, const char *secret_key, struct err *e)
{
    if (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_public, CURVE_TEXT) != 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_key, CURVE_TEXT) != 0 ||
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_key, CURVE_TEXT) != 0)
        return ERR(e, ERR_IO, "CURVE: %s", zmq_strerror(errno));
    return 0;
}

static bool is_allowed(const struct curve *c, const void *key, size_t bytes)
{
    for (int i = 0; bytes == CURVE_BYTES && i < c->n_allowed; i++)
        if (memcmp(c->allowed[i], key, CURVE_BYTES) == 0)
            return true;
    return false;
}

static bool allows(void *context, const unsigned char key[ZMTP_KEY_BYTES])
{
    return is_allowed(context, key, CURVE_BYTES);
}

int curve_keys(const struct curve *c, struct zmtp_keys *keys, struct err *e)
{
    if (zmq_z85_decode(keys->public_key, c->public_key) == NULL ||
        zmq_z85_decode(keys->secret_key, c->secret_key) == NULL)
        return ERR(e, ERR_INTERNAL, "--curve: a key pair that libzmq made is not Z85");
    keys->allows = allows;
    keys->context = (void *)c;
    return 0;
}

/* Version, request id, domain, address, identity, mechanism, credentials: a reply repeats the first two. */
static bool answer_zap(struct curve *c)
{
    zmq_msg_t frame[ZAP_FRAMES];
    int n = 0, more = 1;
    for (; more && n < ZAP_FRAMES; n++) {
        (void)zmq_msg_init(&frame[n]);
        if (zmq_msg_recv(&frame[n], c->zap, ZMQ_DONTWAIT) < 0)
            break;
        more = zmq_msg_more(&frame[n]);
    }
    if (n == 0)
        return false;
    bool good = n == 7 && zmq_msg_size(&frame[5]) == 5 && memcmp(zmq_msg_data(&frame[5]), "CURVE", 5) == 0 &&
                is_allowed(c, zmq_msg_data(&frame[6]), zmq_msg_size(&frame[6]));
    c->n_refused += !good;
    (void)zmq_send(c->zap, "1.0", 3, ZMQ_SNDMORE);
    if (n > 1)
        (void)zmq_send(c->zap, zmq_msg_data(&frame[1]), zmq_msg_size(&frame[1]), ZMQ_SNDMORE);
    (void)zmq_send(c->zap, good ? "200" : "400", 3, ZMQ_SNDMORE);
    (void)zmq_send(c->zap, good ? "" : "unknown key", good ? 0 : 11, ZMQ_SNDMORE);
    (void)zmq_send(c->zap, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(c->zap, "", 0, 0);
    for (int i = 0; i < n; i++)
        (void)zmq_msg_close(&frame[i]);
    return true;
}

void curve_answer(struct curve *c)
{
    while (answer_zap(c))
        continue;
}

int curve_write_client(const struct curve *c, const char *path, struct err *e)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "server_public_key", c->public_key, "client_public_key", c->client_public,
                          "client_secret_key", c->client_secret);
    int written = files_replace_json(path, o, 0600, e);
    json_decref(o);
    return written;
}
