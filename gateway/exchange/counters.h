/* gateway/exchange/counters.h - the gateway's own numbers, as Prometheus text. */
#ifndef EXCHANGE_COUNTERS_H
#define EXCHANGE_COUNTERS_H

#include "gateway/exchange/request_log.h"
#include "gateway/loop/bytes.h"

#define COUNTER_ROUTES  128
#define COUNTER_BUCKETS 20

struct seconds_histogram {
    uint64_t bucket[COUNTER_BUCKETS], count;
    double sum;
};

struct counters {
    uint64_t requests[COUNTER_ROUTES]
                     [6]; /* by route (the last: of none), by the status's first digit; 0: the client left */
    struct seconds_histogram total, first_token, queue, compute, backend, overhead;
    uint64_t asked, faults[2]; /* text requests: all; those answered 4xx, 5xx */
    uint64_t prompt_tokens, completion_tokens;
    uint64_t over_limit; /* requests beyond those that their party may have at once */
    int running;
};

/* route: its number; COUNTER_ROUTES - 1: none. */
void counters_take(struct counters *c, size_t route, const struct tally *t);

/* route_name: of route i, NULL after the last. */
void counters_write(const struct counters *c, const char *(*route_name)(const void *context, size_t i),
                    const void *context, struct bytes *to);

#endif
