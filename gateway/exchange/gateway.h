/* gateway/exchange/gateway.h - the gateway's state, for the code that serves its requests. */
#ifndef EXCHANGE_GATEWAY_H
#define EXCHANGE_GATEWAY_H

#include "gateway/backend/pool.h"
#include "gateway/exchange/answer_counts.h"
#include "gateway/exchange/counters.h"
#include "gateway/exchange/key_counts.h"
#include "gateway/exchange/key_file.h"
#include "gateway/exchange/parties.h"
#include "gateway/exchange/request_log.h"
#include "gateway/http/server.h"
#include "gateway/loop/loop.h"

struct exchange;
struct fault;

/* The form of an API's failures. */
struct dialect {
    const char *type; /* of the content */
    void (*write)(const struct fault *f, struct bytes *to);
    const char *stream_end;               /* after a fault within a stream: "data: [DONE]\n\n"; NULL: nothing */
    const char *event;                    /* event name of a fault within a stream; NULL: none */
    const char *id_field;                 /* another header for x-request-id; NULL: none */
    int (*status)(const struct fault *f); /* of HTTP; NULL: the fault's own */
    void (*fields)(const struct fault *f, struct bytes *to); /* further header lines; NULL: none */
};

/* The packing of an answer's pieces, unless they are sent unpacked. */
struct framing {
    const char *type; /* of the content */
    void (*open)(struct bytes *to);
    void (*close)(struct bytes *to, size_t begin);          /* begin: offset in the bytes at which open wrote */
    void (*fault)(const struct fault *f, struct bytes *to); /* a complete failure after the first pieces */
};

/* A path that is served. "{}" in it matches one character or more: the exchange's `tail`, at most two of them. */
struct route {
    const char *method, *path;
    void (*start)(struct exchange *x);
    const struct dialect *dialect;
    enum { ROUTE_NEEDS_KEY, ROUTE_OPEN, ROUTE_METRICS, ROUTE_PAGE } access; /* the page needs no key; it may be off */
    const char *header; /* a request header, in lower case, that must be there; NULL: none */
};

/* The paths of an API: errors below them have its form even where no route fits. */
struct area {
    const char *prefix; /* one or more whole parts of a path: "/v2" */
    const char *header; /* a request header, in lower case, that must be there; NULL: none */
    const struct dialect *dialect;
};

struct gateway {
    struct loop loop;
    struct pool pool;
    struct http_server server;
    struct key_file keys;
    struct key_counts key_counts;
    struct parties parties;
    struct request_log log;
    struct counters counters;
    struct answer_counts models;
    const struct route *routes; /* [n_routes], the first match counts */
    size_t n_routes;
    const struct area *areas; /* [n_areas], likewise */
    size_t n_areas;
    const char *allow_origin; /* "*" or one origin; NULL: none */
    bool open_metrics;        /* /metrics without a key */
    bool no_page;             /* routes of ROUTE_PAGE are disabled */
    struct due_list comments; /* of streams: the time of the next comment */
    uint64_t serial;
    bool trims; /* something large was freed: memory goes back to the system when the gateway is idle */
    bool draining;
    int64_t started; /* seconds since 1970 */
};

/* For struct http_handler; context is the gateway. */
void gateway_request(void *context, struct http_conn *c);
void gateway_over(void *context, struct http_conn *c, bool left);
void gateway_refused(void *context, const struct http_conn *c, const struct http_refusal *r, struct bytes *to);

/* For gateway->comments. */
void gateway_comment(struct due *d);

#endif
