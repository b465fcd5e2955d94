/* gateway/backend/pool.h - the jobs behind the gateway: found by endpoint or rendezvous file, asked over one ZeroMQ
 * connection each, chosen by model and load. */
#ifndef BACKEND_POOL_H
#define BACKEND_POOL_H

#include "base/err.h"
#include "base/files.h"
#include "client/connection.h"
#include "gateway/loop/loop.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX_SOURCES  64
#define POOL_MAX_BACKENDS 256
#define POOL_BUCKETS      16384 /* size of the hash of calls: a power of two */
#define POOL_NAME_BYTES   100   /* bytes of a client's name for its request */
#define POOL_PARTY_BYTES  64    /* of the name on whose behalf a call is made, its NUL included */
#define POOL_ANY_MODEL    ""

enum backend_state {
    BACKEND_BROKEN,   /* its file is invalid; it may be replaced */
    BACKEND_CONNECTS, /* its list of models has not come yet */
    BACKEND_READY,
    BACKEND_DRAINS /* it gets no new requests */
};

struct call;

struct backend {
    struct backend *next;
    struct pool *pool;
    char name[512]; /* path or endpoint */
    bool is_file;
    struct file_mark mark;
    bool retired; /* its file is gone or was replaced: running calls are finished */
    struct connection connection;
    struct fd_watch messages, state_changes;
    enum backend_state state;
    bool said_unresolved; /* the log has the reason why its host cannot be resolved */
    json_t *models;       /* its reply to `models`; NULL: not yet */
    json_t *sent;         /* {model: time of the last request sent for it}; NULL: none */
    size_t max_message_bytes;
    struct call *first;
    int n_calls;
    double tokens;       /* tokens that its calls may still cost */
    double asked, heard; /* when its health was last asked for */
    double asked_models;
    int n_lists;       /* lists of models asked for that have not come */
    double list_asked; /* when the first of these was requested */
};

struct pool {
    struct loop *loop;
    const char *source[POOL_MAX_SOURCES];
    const char *client_key;
    int n_sources, n_backends;
    struct backend *first;
    struct call *bucket[POOL_BUCKETS];
    uint64_t serial;
    struct loop_step step;
    struct due_list ticks;
    struct due tick;
    long long n_lost, n_retried;  /* lost connections; calls retried elsewhere */
    bool said_full, said_waiting; /* the log says so */
    double was_ready;             /* when a backend was ready last */
};

/* A question to a backend. The message has everything but request_id and on_behalf_of, which the pool adds.
 * Borrowed: the model, the name and the party. */
struct call_setup {
    const char *model;       /* POOL_ANY_MODEL: the only one */
    const char *name;        /* the client's name for the request; "" */
    const char *party;       /* on whose behalf, in printable ASCII without quotes and backslashes; "": nobody's */
    json_t *message;         /* the pool decrefs it */
    double tokens;           /* maximum number of tokens that it may cost */
    struct backend *backend; /* ask only this one; NULL: choose */
    /* Called with every message that comes back, borrowed; `last`: no more will come. Failures in transit look like the
     * backend's own errors (docs/protocol.md). It may be called before pool_ask returns, which then returns NULL. */
    void (*reply)(void *context, json_t *reply, bool last);
    void *context;
};

struct call {
    uint64_t serial;
    struct call *in_bucket, *next, *previous; /* previous and next of the backend's calls */
    struct backend *backend;
    struct call_setup setup; /* message: NULL */
    char *text;              /* of the message, which is kept until something comes back */
    size_t bytes;
    size_t party_bytes; /* of the text up to the comma after on_behalf_of, which not every backend gets; 0: none */
    char id[128], party[POOL_PARTY_BYTES];
    char *model;
    bool is_fixed; /* no other backend will do */
    int n_tries;
};

int pool_open(struct pool *p, struct loop *l, const char *const *sources, int n, const char *client_key, struct err *e);
void pool_close(struct pool *p);

struct call *pool_ask(struct pool *p, const struct call_setup *s);

/* The asker gave up: the backend is told, and no callback follows. */
void call_cancel(struct call *c);

/* Does it take requests? */
bool backend_takes(const struct backend *b);

/* The entry of a model in the backend's reply to `models`; NULL: it has none of this name. POOL_ANY_MODEL: the
 * first. */
const json_t *backend_model(const struct backend *b, const char *model);

/* Does it serve several models, which it loads and unloads? */
bool backend_is_shared(const struct backend *b);

/* Writes that no backend serves the model, and the names of a few that are: `"gpt-4" is not served here, expected
 * "stories"`. Long names are cut, perhaps within a character. */
#define POOL_UNKNOWN_BYTES 480
void pool_say_unknown(const struct pool *p, const char *model, char *text, size_t bytes);

/* The models of backends have changed: their lists are requested soon. */
void pool_refresh(struct pool *p);

/* The number of backends that take requests. */
int pool_n_ready(const struct pool *p);

#endif
