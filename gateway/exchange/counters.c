/* gateway/exchange/counters.c - see counters.h. */
#include "gateway/exchange/counters.h"

static const double bounds[COUNTER_BUCKETS - 1] = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                                   0.2,    0.5,    1,      2,     5,     10,    30,   60,   300};

static void add_seconds(struct seconds_histogram *h, double seconds)
{
    size_t i = 0;
    if (seconds < 0)
        return;
    while (i < COUNTER_BUCKETS - 1 && seconds > bounds[i])
        i++;
    h->bucket[i]++;
    h->count++;
    h->sum += seconds;
}

void counters_take(struct counters *c, size_t route, const struct tally *t)
{
    int digit = t->left ? 0 : t->status / 100 % 6;
    c->requests[route < COUNTER_ROUTES ? route : COUNTER_ROUTES - 1][digit]++;
    c->over_limit += t->over_limit;
    c->asked += t->is_generate;
    if (t->is_generate && digit >= 4)
        c->faults[digit - 4]++;
    if (!t->is_generate || t->left || t->status != 200)
        return;
    add_seconds(&c->total, t->total);
    add_seconds(&c->first_token, t->first_token);
    add_seconds(&c->queue, t->queue);
    add_seconds(&c->compute, t->compute);
    add_seconds(&c->backend, t->upstream);
    if (t->upstream >= 0)
        add_seconds(&c->overhead, t->total > t->upstream ? t->total - t->upstream : 0);
    c->prompt_tokens += (uint64_t)t->prompt_tokens;
    c->completion_tokens += (uint64_t)t->completion_tokens;
}

static void write_histogram(const struct seconds_histogram *h, const char *name, const char *help, struct bytes *to)
{
    uint64_t sum = 0;
    bytes_format(to, "# HELP lockstep_gateway_%s %s\n# TYPE lockstep_gateway_%s histogram\n", name, help, name);
    for (int i = 0; i < COUNTER_BUCKETS - 1; i++) {
        sum += h->bucket[i];
        bytes_format(to, "lockstep_gateway_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)sum);
    }
    bytes_format(to, "lockstep_gateway_%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)h->count);
    bytes_format(to, "lockstep_gateway_%s_sum %.9g\nlockstep_gateway_%s_count %llu\n", name, h->sum, name,
                 (unsigned long long)h->count);
}

static void write_requests(const struct counters *c, size_t i, const char *route, struct bytes *to)
{
    static const char *const ends[] = {"left", "1xx", "2xx", "3xx", "4xx", "5xx"};
    for (int k = 0; k < 6; k++)
        if (c->requests[i][k] > 0)
            bytes_format(to, "lockstep_gateway_requests_total{route=\"%s\",end=\"%s\"} %llu\n", route, ends[k],
                         (unsigned long long)c->requests[i][k]);
}

static void write_counter(const char *name, const char *help, uint64_t value, struct bytes *to)
{
    bytes_format(to, "# HELP %s %s\n# TYPE %s counter\n%s %llu\n", name, help, name, name, (unsigned long long)value);
}

static void write_microseconds(const struct seconds_histogram *h, const char *name, const char *help, struct bytes *to)
{
    bytes_format(to, "# HELP %s %s\n# TYPE %s summary\n%s_sum %.0f\n%s_count %llu\n", name, help, name, name,
                 1e6 * h->sum, name, (unsigned long long)h->count);
}

/* The same with CloudWatch's names for a SageMaker endpoint, in its units. */
static void write_sagemaker(const struct counters *c, struct bytes *to)
{
    write_counter("Invocations", "Requests for text.", c->asked, to);
    write_counter("Invocation4XXErrors", "Requests for text answered with a status 4xx.", c->faults[0], to);
    write_counter("Invocation5XXErrors", "Requests for text answered with a status 5xx.", c->faults[1], to);
    write_microseconds(&c->backend, "ModelLatency", "Microseconds that requests spent in the backend.", to);
    write_microseconds(&c->overhead, "OverheadLatency", "Microseconds that requests spent outside of the backend.", to);
}

void counters_write(const struct counters *c, const char *(*route_name)(const void *context, size_t i),
                    const void *context, struct bytes *to)
{
    const char *name;
    bytes_text(to, "# HELP lockstep_gateway_requests_total Requests by route and outcome.\n"
                   "# TYPE lockstep_gateway_requests_total counter\n");
    for (size_t i = 0; i < COUNTER_ROUTES - 1 && (name = route_name(context, i)) != NULL; i++)
        write_requests(c, i, name, to);
    write_requests(c, COUNTER_ROUTES - 1, "", to);
    bytes_format(to,
                 "# HELP lockstep_gateway_requests_running Requests that are being answered.\n"
                 "# TYPE lockstep_gateway_requests_running gauge\nlockstep_gateway_requests_running %d\n"
                 "# HELP lockstep_gateway_tokens_total Tokens of answered requests.\n"
                 "# TYPE lockstep_gateway_tokens_total counter\n"
                 "lockstep_gateway_tokens_total{kind=\"prompt\"} %llu\n"
                 "lockstep_gateway_tokens_total{kind=\"completion\"} %llu\n",
                 c->running, (unsigned long long)c->prompt_tokens, (unsigned long long)c->completion_tokens);
    write_counter("lockstep_gateway_over_limit_total", "Requests beyond --max-requests-per-party.", c->over_limit, to);
    write_histogram(&c->total, "request_seconds", "Time from the complete request to the end of its answer.", to);
    write_histogram(&c->first_token, "first_token_seconds", "Time from the complete request to the first token.", to);
    write_histogram(&c->queue, "queue_seconds", "Time that a request waited in the backend.", to);
    write_histogram(&c->compute, "compute_seconds", "Time that the backend computed for a request.", to);
    write_histogram(&c->backend, "backend_seconds",
                    "Time of a request in the backend: queue_seconds, compute_seconds and its overhead.", to);
    write_histogram(&c->overhead, "overhead_seconds",
                    "The part of request_seconds that was spent outside of the backend.", to);
    write_sagemaker(c, to);
}
