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
#define POOL_BUCKETS      16384 /* of calls by number: a power of two */
#define POOL_NAME_BYTES   100   /* of a client's name for its request */
#define POOL_ANY_MODEL    ""

enum backend_state {
    BACKEND_BROKEN,   /* its file makes no sense; it may be replaced */
    BACKEND_CONNECTS, /* it has not said yet what it serves */
    BACKEND_READY,
    BACKEND_DRAINS /* it gets nothing new */
};

struct call;

struct backend {
    struct backend *next;
    struct pool *pool;
    char name[512]; /* path or endpoint */
    bool is_file;
    struct file_mark mark;
    bool retired; /* its file is gone, or another one: what runs is finished */
    struct connection connection;
    struct fd_watch messages, state_changes;
    enum backend_state state;
    json_t *models; /* its reply to `models`; NULL: not yet */
    json_t *sent;   /* {model: when a request for it went there last}; NULL: none did */
    size_t max_message_bytes;
    struct call *first;
    int n_calls;
    double tokens;       /* that its calls may still cost */
    double asked, heard; /* its health: when */
    double asked_models;
    int n_lists;       /* of models, that were asked for and have not come */
    double list_asked; /* when the first of these was */
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
    long long n_lost, n_retried; /* connections that went; calls that were asked again elsewhere */
    bool said_full;
};

/* A question to a backend. The message has everything but request_id, which the pool adds. Borrowed: the model and
 * the name. */
struct call_setup {
    const char *model;       /* POOL_ANY_MODEL: the one that there is */
    const char *name;        /* of the request, as its client calls it; "" */
    json_t *message;         /* the pool decrefs it */
    double tokens;           /* the most tokens that it may cost */
    struct backend *backend; /* ask this one and no other; NULL: choose */
    /* Every message that comes back, borrowed; `last`: no more will come. Failures of the way look like the
     * backend's own errors (docs/protocol.md). It may be called before pool_ask returns; then that returns NULL. */
    void (*reply)(void *context, json_t *reply, bool last);
    void *context;
};

struct call {
    uint64_t serial;
    struct call *in_bucket, *next, *previous; /* previous and next: of the backend's */
    struct backend *backend;
    struct call_setup setup; /* message: NULL */
    char *text;              /* of the message; kept until something came back */
    size_t bytes;
    char id[128];
    char *model;
    bool is_fixed; /* no other backend will do */
    int n_tries;
};

int pool_open(struct pool *p, struct loop *l, const char *const *sources, int n, const char *client_key, struct err *e);
void pool_close(struct pool *p);

struct call *pool_ask(struct pool *p, const struct call_setup *s);

/* Its asker does not want to know any more: the backend is told, nothing is called. */
void call_cancel(struct call *c);

/* May something be asked of it? */
bool backend_takes(const struct backend *b);

/* The entry of a model in the backend's reply to `models`; NULL: it has none of this name. POOL_ANY_MODEL: the
 * first. */
const json_t *backend_model(const struct backend *b, const char *model);

/* Does it serve several models, which come and go? */
bool backend_is_shared(const struct backend *b);

/* The models of backends have changed: they are asked soon. */
void pool_refresh(struct pool *p);

/* Backends that take requests. */
int pool_n_ready(const struct pool *p);

#endif
