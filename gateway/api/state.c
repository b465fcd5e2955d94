/* gateway/api/state.c - see state.h. */
#include "gateway/api/state.h"
#include "gateway/api/samples.h"
#include "gateway/exchange/process_counts.h"

#include <stdlib.h>
#include <string.h>

void state_health(struct exchange *x)
{
    bool well = pool_n_ready(&x->gateway->pool) > 0 && !x->gateway->draining;
    exchange_answer(x, well ? 200 : 503, "text/plain", "", 0);
}

void state_ping(struct exchange *x)
{
    bool well = pool_n_ready(&x->gateway->pool) > 0 && !x->gateway->draining;
    exchange_answer_json(x, well ? 200 : 503, json_pack("{s:s}", "health", well ? "healthy!" : "no backend is ready"));
}

void state_version(struct exchange *x)
{
    exchange_answer_json(x, 200, json_pack("{s:s}", "version", LOCKSTEP_VERSION));
}

/* ---------------------------------------------------------------- metrics */

/* The backends' answers, until all have come. */
struct scrape {
    struct merged_samples samples;
    int n_open;
    bool all_asked;
};

static const char *route_name(const void *context, size_t i)
{
    const struct gateway *g = context;
    return i < g->n_routes ? g->routes[i].path : NULL;
}

static void write_own(struct exchange *x, struct bytes *b)
{
    const struct gateway *g = x->gateway;
    counters_write(&g->counters, route_name, g, b);
    key_counts_write(&g->key_counts, b);
    bytes_format(
        b,
        "# HELP lockstep_gateway_connections Open connections of clients.\n"
        "# TYPE lockstep_gateway_connections gauge\nlockstep_gateway_connections %d\n"
        "# HELP lockstep_gateway_bad_requests_total Requests that were not valid HTTP.\n"
        "# TYPE lockstep_gateway_bad_requests_total counter\nlockstep_gateway_bad_requests_total %lld\n"
        "# HELP lockstep_gateway_slow_clients_total Connections closed because the client did not read.\n"
        "# TYPE lockstep_gateway_slow_clients_total counter\nlockstep_gateway_slow_clients_total %lld\n"
        "# HELP lockstep_gateway_backends Backends that accept requests.\n"
        "# TYPE lockstep_gateway_backends gauge\nlockstep_gateway_backends %d\n"
        "# HELP lockstep_gateway_backends_lost_total Backends that went away.\n"
        "# TYPE lockstep_gateway_backends_lost_total counter\nlockstep_gateway_backends_lost_total %lld\n"
        "# HELP lockstep_gateway_retries_total Requests that were sent to another backend after a failure.\n"
        "# TYPE lockstep_gateway_retries_total counter\nlockstep_gateway_retries_total %lld\n"
        "# HELP lockstep_gateway_access_log_lost_lines_total Lines of --access-log that could not be written.\n"
        "# TYPE lockstep_gateway_access_log_lost_lines_total counter\n"
        "lockstep_gateway_access_log_lost_lines_total %llu\n"
        "# HELP lockstep_gateway_build_info The gateway's version.\n"
        "# TYPE lockstep_gateway_build_info gauge\nlockstep_gateway_build_info{version=\"%s\"} 1\n",
        g->server.n_connections, g->server.n_refused, g->server.n_slow, pool_n_ready(&g->pool), g->pool.n_lost,
        g->pool.n_retried, (unsigned long long)request_log_lost(&g->log), LOCKSTEP_VERSION);
    process_counts_write(g->started, b);
}

static void answer_metrics(struct exchange *x, struct scrape *s)
{
    struct bytes own = {0}, b = {0};
    write_own(x, &own);
    bytes_append(&own, "", 1);
    if (!own.failed)
        samples_add(&s->samples, NULL, bytes_start(&own));
    bytes_free(&own);
    samples_write(&s->samples, &b);
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", bytes_start(&b), bytes_count(&b));
    bytes_free(&b);
}

static void scraped(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct scrape *s = x->state;
    const struct backend *b = context;
    const json_t *text = json_object_get(reply, "text");
    (void)last;
    s->n_open--;
    if (json_is_string(text))
        samples_add(&s->samples, b->name, json_string_value(text));
    if (s->n_open == 0 && s->all_asked)
        answer_metrics(x, s);
}

static void drop_scrape(void *state)
{
    struct scrape *s = state;
    samples_free(&s->samples);
    free(s);
}

void state_metrics(struct exchange *x)
{
    struct scrape *s = exchange_state(x, sizeof *s, drop_scrape);
    if (s == NULL)
        return;
    for (struct backend *b = x->gateway->pool.first; b != NULL; b = b->next) {
        if (b->state != BACKEND_READY && b->state != BACKEND_DRAINS)
            continue;
        const struct exchange_question q = {.model = POOL_ANY_MODEL,
                                            .message = json_pack("{s:s}", "op", "metrics"),
                                            .backend = b,
                                            .reply = scraped,
                                            .context = b};
        s->n_open++;
        exchange_ask(x, &q);
    }
    s->all_asked = true;
    if (s->n_open == 0)
        answer_metrics(x, s);
}
