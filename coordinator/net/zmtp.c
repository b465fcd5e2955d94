/* coordinator/net/zmtp.c - see zmtp.h. */
#include "coordinator/net/zmtp.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4 };        /* of a frame */
enum { SEALED_MORE = 1, SEALED_COMMAND = 2 };                   /* within a box */
enum { VERSION_AT = 10, MECHANISM_AT = 12, AS_SERVER_AT = 32 }; /* in the greeting */

#define FIRST_CAPACITY ((size_t)4096)
#define MAX_CONTEXT    16 /* of a PING */

static const unsigned char metadata[] = "\13Socket-Type\0\0\0\6ROUTER\10Identity\0\0\0";

void zmtp_message_free(struct zmtp_message *m)
{
    if (m != NULL)
        free(m->body);
    free(m);
}

/* ---- bytes to send ---- */

static int put_bytes(struct zmtp *z, const void *data, size_t n)
{
    if (z->n_out + n > z->out_capacity) {
        size_t capacity = 2 * (z->n_out + n);
        unsigned char *more = realloc(z->out, capacity);
        if (more == NULL)
            return -1;
        z->out = more;
        z->out_capacity = capacity;
    }
    memcpy(z->out + z->n_out, data, n);
    z->n_out += n;
    return 0;
}

static size_t frame_head(unsigned char *head, unsigned char flags, size_t n)
{
    if (n < 256) {
        head[0] = flags;
        head[1] = (unsigned char)n;
        return 2;
    }
    head[0] = flags | FLAG_LONG;
    for (int i = 8; i > 0; i--, n >>= 8)
        head[i] = (unsigned char)n;
    return ZMTP_HEAD_BYTES;
}

static int put_frame(struct zmtp *z, unsigned char flags, const void *body, size_t n)
{
    unsigned char head[ZMTP_HEAD_BYTES];
    size_t n_head = frame_head(head, flags, n);
    return put_bytes(z, head, n_head) == 0 && put_bytes(z, body, n) == 0 ? 0 : -1;
}

static int put_greeting(struct zmtp *z)
{
    unsigned char text[ZMTP_GREETING_BYTES] = {[0] = 0xff, [9] = 0x7f, [VERSION_AT] = 3, [VERSION_AT + 1] = 1};
    static const char mechanism[2][AS_SERVER_AT - MECHANISM_AT] = {"NULL", "CURVE"};
    memcpy(text + MECHANISM_AT, mechanism[z->keys != NULL], sizeof mechanism[0]);
    text[AS_SERVER_AT] = z->keys != NULL;
    return put_bytes(z, text, sizeof text);
}

/* ---- the handshake ---- */

static int refuse_peer(struct zmtp *z)
{
    z->state = ZMTP_REFUSED;
    return -1;
}

static int take_greeting(struct zmtp *z)
{
    const char *mechanism = z->keys != NULL ? "CURVE" : "NULL";
    char theirs[21] = "";
    memcpy(theirs, z->head + MECHANISM_AT, 20);
    if (z->head[VERSION_AT] < 3 || strcmp(theirs, mechanism) != 0)
        return refuse_peer(z);
    z->state = ZMTP_HANDSHAKE;
    z->n_head = 0;
    return 0;
}

/* READY's properties are pairs of name and value; only the socket type matters, which must be one that a ROUTER may
 * talk to. Identities are ignored. */
static bool good_metadata(const unsigned char *at, size_t n)
{
    bool good = false;
    while (n > 0) {
        size_t name = at[0], value = 0;
        if (name == 0 || n < 1 + name + 4)
            return false;
        for (int i = 0; i < 4; i++)
            value = value << 8 | at[1 + name + (size_t)i];
        if (value > n - 1 - name - 4)
            return false;
        const char *text = (const char *)at + 1 + name + 4;
        if (name == 11 && strncasecmp((const char *)at + 1, "Socket-Type", 11) == 0)
            good = (value == 6 && memcmp(text, "DEALER", 6) == 0) || (value == 3 && memcmp(text, "REQ", 3) == 0);
        at += 1 + name + 4 + value;
        n -= 1 + name + 4 + value;
    }
    return good;
}

/* READY of the NULL mechanism, both ways. */
static int shake_plain(struct zmtp *z, const unsigned char *command, size_t n)
{
    static const unsigned char name[] = {5, 'R', 'E', 'A', 'D', 'Y'};
    unsigned char ready[sizeof name + sizeof metadata];
    if (n < sizeof name || memcmp(command, name, sizeof name) != 0 ||
        !good_metadata(command + sizeof name, n - sizeof name))
        return refuse_peer(z);
    memcpy(ready, name, sizeof name);
    memcpy(ready + sizeof name, metadata, sizeof metadata);
    z->state = ZMTP_OPEN;
    return put_frame(z, FLAG_COMMAND, ready, sizeof ready);
}

static int shake_curve(struct zmtp *z, unsigned char *command, size_t n)
{
    static const unsigned char unknown[] = {5, 'E', 'R', 'R', 'O', 'R', 3, '4', '0', '0'};
    unsigned char reply[ZMTP_WELCOME], ready[sizeof metadata + ZMTP_READY_EXTRA];
    const unsigned char *theirs = NULL;
    size_t n_theirs = 0;
    if (z->curve.state == CURVE_HELLO)
        return zmtp_curve_hello(&z->curve, z->keys, command, n, reply) == 0
                   ? put_frame(z, FLAG_COMMAND, reply, sizeof reply)
                   : refuse_peer(z);
    int found = zmtp_curve_initiate(&z->curve, z->keys, command, n, &theirs, &n_theirs);
    if (found > 0) /* sent unencrypted, like ZAP's 400, so that lockstep-client can distinguish it from a server that
                      is gone */
        (void)put_frame(z, FLAG_COMMAND, unknown, sizeof unknown);
    if (found != 0 || !good_metadata(theirs, n_theirs))
        return refuse_peer(z);
    z->state = ZMTP_OPEN;
    return put_frame(z, FLAG_COMMAND, ready, zmtp_curve_ready(&z->curve, metadata, sizeof metadata, ready));
}

/* ---- frames ---- */

static int put_command(struct zmtp *z, const void *command, size_t n)
{
    unsigned char sealed[64 + ZMTP_BOX_BYTES];
    if (z->keys == NULL)
        return put_frame(z, FLAG_COMMAND, command, n);
    zmtp_curve_seal(&z->curve, SEALED_COMMAND, command, n, sealed);
    return put_frame(z, 0, sealed, n + ZMTP_BOX_BYTES);
}

/* A PING is answered, and tells how long the client may be silent. Other commands are ignored. */
static int take_command(struct zmtp *z, const unsigned char *command, size_t n)
{
    unsigned char pong[5 + MAX_CONTEXT] = "\4PONG";
    if (n < 7 || memcmp(command, "\4PING", 5) != 0)
        return n > 0 && n > command[0] ? 0 : refuse_peer(z);
    size_t context = n - 7 < MAX_CONTEXT ? n - 7 : MAX_CONTEXT;
    z->ttl_ms = 100 * (command[5] << 8 | command[6]);
    memcpy(pong + 5, command + 7, context);
    if (z->congested || z->n_out > ZMTP_MAX_COMMAND) /* answers do not queue up: waiting replies show as well that
                                                        the server is alive */
        return 0;
    return put_command(z, pong, 5 + context);
}

/* Adds a frame to the message: [n] at `at` within z->body, which becomes the message's body if the frame is one. */
static int take_part(struct zmtp *z, unsigned char *at, size_t n, bool more)
{
    struct zmtp_message *m = z->message;
    if (m == NULL && (m = z->message = calloc(1, sizeof *m)) == NULL)
        return refuse_peer(z);
    if (m->n_frames == 0 && !m->delimiter && n == 0 && more) {
        m->delimiter = true;
    } else if (m->n_frames++ == 0 && n > 0) {
        memmove(z->body, at, n);
        m->body = (char *)z->body;
        m->bytes = n;
        z->body = NULL;
        z->capacity = 0;
    }
    if (m->n_frames > ZMTP_MAX_FRAMES)
        return refuse_peer(z);
    z->message_bytes += n;
    if (more)
        return z->message_bytes > z->max_bytes ? refuse_peer(z) : 0;
    if (z->last != NULL)
        z->last->next = m;
    else
        z->first = m;
    z->last = m;
    z->whole_bytes += sizeof *m + m->bytes;
    z->message = NULL;
    z->message_bytes = 0;
    return 0;
}

static int take_frame(struct zmtp *z)
{
    unsigned char *at = z->body, flags = 0;
    size_t n = z->length;
    bool command = (z->flags & FLAG_COMMAND) != 0, more = (z->flags & FLAG_MORE) != 0;
    if (z->state == ZMTP_HANDSHAKE && !command)
        return refuse_peer(z);
    if (z->state == ZMTP_HANDSHAKE)
        return z->keys != NULL ? shake_curve(z, at, n) : shake_plain(z, at, n);
    if (z->keys != NULL) {
        if (zmtp_curve_open(&z->curve, at, n, &flags, &at, &n) != 0)
            return refuse_peer(z);
        command = (flags & SEALED_COMMAND) != 0;
        more = (flags & SEALED_MORE) != 0;
    }
    return command ? take_command(z, at, n) : take_part(z, at, n, more);
}

/* Flags and length have arrived: is such a frame allowed? */
static int begin_frame(struct zmtp *z)
{
    uint64_t length = 0;
    bool command = (z->head[0] & FLAG_COMMAND) != 0;
    for (size_t i = 1; i < z->n_head; i++)
        length = length << 8 | z->head[i];
    size_t box = z->keys != NULL ? ZMTP_BOX_BYTES : 0;
    uint64_t most = z->state == ZMTP_OPEN && !command ? z->max_bytes - z->message_bytes + box : ZMTP_MAX_COMMAND;
    if ((z->head[0] & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND)) != 0 || (command && (z->head[0] & FLAG_MORE) != 0) ||
        length > most)
        return refuse_peer(z);
    z->flags = z->head[0];
    z->length = (size_t)length;
    z->n_body = 0;
    z->in_body = true;
    return 0;
}

static size_t head_needed(const struct zmtp *z)
{
    if (z->state == ZMTP_GREETING)
        return ZMTP_GREETING_BYTES;
    return z->n_head == 0 ? 1 : (z->head[0] & FLAG_LONG) != 0 ? ZMTP_HEAD_BYTES : 2;
}

/* The first ten bytes of the greeting reveal a peer that does not speak ZMTP 3, before it sends more. */
static bool bad_signature(const struct zmtp *z)
{
    return (z->n_head > 0 && z->head[0] != 0xff) || (z->n_head > 9 && z->head[9] != 0x7f);
}

static int feed_head(struct zmtp *z, const unsigned char **at, size_t *n)
{
    while (*n > 0 && z->n_head < head_needed(z)) {
        size_t wanted = head_needed(z) - z->n_head, take = wanted < *n ? wanted : *n;
        memcpy(z->head + z->n_head, *at, take);
        z->n_head += take;
        *at += take;
        *n -= take;
    }
    if (z->state == ZMTP_GREETING && bad_signature(z))
        return refuse_peer(z);
    if (z->n_head < head_needed(z))
        return 0;
    return z->state == ZMTP_GREETING ? take_greeting(z) : begin_frame(z);
}

static int grow_body(struct zmtp *z, size_t wanted)
{
    if (wanted <= z->capacity)
        return 0;
    size_t capacity = 2 * z->capacity > wanted ? 2 * z->capacity : wanted;
    capacity = capacity < FIRST_CAPACITY ? FIRST_CAPACITY : capacity;
    capacity = capacity > z->length && z->length >= wanted ? z->length : capacity;
    unsigned char *more = realloc(z->body, capacity);
    if (more == NULL)
        return refuse_peer(z);
    z->body = more;
    z->capacity = capacity;
    return 0;
}

static void free_body(struct zmtp *z)
{
    free(z->body);
    z->body = NULL;
    z->capacity = 0;
}

static int feed_body(struct zmtp *z, const unsigned char **at, size_t *n)
{
    size_t wanted = z->length - z->n_body, take = wanted < *n ? wanted : *n;
    if (grow_body(z, z->n_body + take > 0 ? z->n_body + take : 1) != 0)
        return -1;
    if (take > 0)
        memcpy(z->body + z->n_body, *at, take);
    z->n_body += take;
    *at += take;
    *n -= take;
    if (z->n_body < z->length)
        return 0;
    z->in_body = false;
    z->n_head = 0;
    int rc = take_frame(z);
    if (z->capacity > FIRST_CAPACITY) /* otherwise a small message that follows would keep it allocated */
        free_body(z);
    return rc;
}

int zmtp_feed(struct zmtp *z, const void *data, size_t n)
{
    const unsigned char *at = data;
    if (z->state == ZMTP_REFUSED)
        return -1;
    while (n > 0 || (z->in_body && z->n_body == z->length)) {
        if ((z->in_body ? feed_body(z, &at, &n) : feed_head(z, &at, &n)) != 0)
            return refuse_peer(z);
    }
    return 0;
}

struct zmtp_message *zmtp_take(struct zmtp *z)
{
    struct zmtp_message *m = z->first;
    if (m == NULL)
        return NULL;
    z->first = m->next;
    if (z->first == NULL)
        z->last = NULL;
    m->next = NULL;
    z->whole_bytes -= sizeof *m + m->bytes;
    return m;
}

size_t zmtp_wanted(const struct zmtp *z)
{
    return z->in_body ? z->length - z->n_body : 0;
}

size_t zmtp_pending(const struct zmtp *z)
{
    return z->capacity + z->whole_bytes + (z->message != NULL ? z->message->bytes : 0);
}

size_t zmtp_reply(struct zmtp *z, bool delimiter, const char *text, size_t bytes, unsigned char *head,
                  unsigned char **body, size_t *body_bytes)
{
    size_t n = 0;
    *body = (unsigned char *)text;
    *body_bytes = bytes;
    if (z->keys == NULL) {
        if (delimiter)
            n += frame_head(head, FLAG_MORE, 0);
        return n + frame_head(head + n, 0, bytes);
    }
    *body_bytes = bytes + ZMTP_BOX_BYTES;
    *body = malloc(*body_bytes);
    if (*body == NULL)
        return 0;
    if (delimiter) {
        n += frame_head(head, 0, ZMTP_BOX_BYTES);
        zmtp_curve_seal(&z->curve, SEALED_MORE, "", 0, head + n);
        n += ZMTP_BOX_BYTES;
    }
    zmtp_curve_seal(&z->curve, 0, text, bytes, *body);
    return n + frame_head(head + n, 0, *body_bytes);
}

void zmtp_open(struct zmtp *z, const struct zmtp_keys *keys, size_t max_bytes)
{
    memset(z, 0, sizeof *z);
    z->keys = keys;
    z->max_bytes = max_bytes;
    if (put_greeting(z) != 0)
        z->state = ZMTP_REFUSED;
}

void zmtp_close(struct zmtp *z)
{
    for (struct zmtp_message *m; (m = zmtp_take(z)) != NULL;)
        zmtp_message_free(m);
    zmtp_message_free(z->message);
    free(z->body);
    free(z->out);
    zmtp_curve_close(&z->curve);
    memset(z, 0, sizeof *z);
}
