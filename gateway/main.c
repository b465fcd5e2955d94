/* gateway/main.c - lockstep-gateway: a program of its own, without MPI, that speaks HTTP to clients and ZeroMQ to
 * jobs. */
#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/standard_streams.h"
#include "gateway/options.h"
#include "gateway/routes.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#define ROUND_SECONDS 1.0
#define OTHER_FILES   1024      /* descriptors other than clients' connections */
#define MAPPED_BYTES  (1 << 20) /* larger buffers are mapped, and freed to the system */

/* Raises the number of descriptors to what the system allows. */
static void raise_files(int64_t connections)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur != RLIM_INFINITY && r.rlim_cur < (rlim_t)connections + OTHER_FILES)
        log_warn("%llu open files are allowed here: fewer than --max-connections %lld clients fit (ulimit -n)",
                 (unsigned long long)r.rlim_cur, (long long)connections);
}

static int open_server(struct gateway *g, const struct gateway_options *o, struct err *e)
{
    const struct http_setup setup = {.max_body = (size_t)o->max_body,
                                     .max_backlog = (size_t)o->max_backlog,
                                     .max_buffered = (size_t)o->max_buffered,
                                     .max_connections = (int)o->max_connections,
                                     .head_seconds = o->head_seconds,
                                     .body_seconds = o->body_seconds,
                                     .idle_seconds = o->idle_seconds};
    const struct http_handler handler = {g, gateway_request, gateway_over, gateway_refused};
    return http_server_open(&g->server, &g->loop, &setup, &handler, o->listen, o->n_listen, e);
}

static int open_gateway(struct gateway *g, const struct gateway_options *o, struct err *e)
{
    g->started = (int64_t)time(NULL);
    g->routes = gateway_routes;
    g->n_routes = gateway_n_routes;
    g->areas = gateway_areas;
    g->n_areas = gateway_n_areas;
    g->allow_origin = o->allow_origin;
    g->open_metrics = o->open_metrics;
    g->no_page = o->no_page;
    g->parties.most = (int)o->max_requests;
    g->comments = (struct due_list){.seconds = o->comment_seconds, .come = gateway_comment};
    if (loop_open(&g->loop, e) != 0 || key_file_open(&g->keys, o->api_keys, &g->loop, e) != 0 ||
        request_log_open(&g->log, o->access_log, e) != 0)
        return -1;
    loop_add_list(&g->loop, &g->comments);
    return pool_open(&g->pool, &g->loop, o->backend, o->n_backends, o->client_key, e) == 0 ? open_server(g, o, e) : -1;
}

static void close_gateway(struct gateway *g)
{
    http_server_close(&g->server);
    pool_close(&g->pool);
    request_log_close(&g->log);
    key_file_close(&g->keys);
    key_counts_free(&g->key_counts);
    loop_close(&g->loop);
}

/* The loop checks signals_take after every round: the descriptor only wakes it. */
static void wake(struct fd_watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

/* Megabytes of JSON consist of small allocations, which the C library would keep. */
static void give_memory_back(struct gateway *g)
{
    if (!g->trims || g->counters.running > 0)
        return;
    g->trims = false;
    (void)malloc_trim(0);
}

static void run_gateway(struct gateway *g, double grace)
{
    double until = 0;
    while (!g->draining || (g->server.n_connections > 0 && seconds_now() < until)) {
        loop_round(&g->loop, ROUND_SECONDS);
        give_memory_back(g);
        if (!signals_pending() || signals_take() < WISH_DRAIN)
            continue;
        if (g->draining)
            break;
        log_note("ending: %d connections have %g s", g->server.n_connections, grace);
        g->draining = true;
        until = seconds_now() + grace;
        http_server_drain(&g->server);
    }
    if (g->counters.running > 0)
        log_warn("%d requests are cut short, %s", g->counters.running,
                 seconds_now() < until ? "by a second signal" : "after --grace");
}

static int serve_backends(const struct gateway_options *o, struct err *e)
{
    static struct gateway g; /* large */
    struct fd_watch signals = {.fd = -1, .ready = wake};
    log_open(true, false);
    if (o->log_times)
        log_times();
    raise_files(o->max_connections);
    if (signals_open(false, e) == 0 && open_gateway(&g, o, e) == 0) {
        signals.fd = signals_fd();
        for (int i = 0; i < g.server.n_listeners; i++)
            log_note("listening at %s", g.server.listener[i].shown);
        if (loop_watch(&g.loop, &signals, EPOLLIN, e) == 0)
            run_gateway(&g, o->grace_seconds);
    }
    close_gateway(&g);
    return e->code == ERR_NONE ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct gateway_options o;
    struct err e = {0};
    standard_streams_hold();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (gateway_options_parse(&o, argc, argv, &e) == 0) {
        if (o.version)
            printf("lockstep-gateway %s\n", LOCKSTEP_VERSION);
        else if (o.help)
            gateway_options_help();
        else
            (void)serve_backends(&o, &e);
    }
    if (e.code != ERR_NONE)
        (void)fprintf(stderr, "lockstep-gateway: %s\n", e.text);
    return (int)e.code;
}
