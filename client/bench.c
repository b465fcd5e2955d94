/* client/bench.c - see bench.h. */
#include "client/bench.h"
#include "base/clock.h"
#include "base/progress.h"
#include "client/bench_figures.h"
#include "client/bench_load.h"
#include "client/bench_model.h"
#include "client/bench_report.h"
#include "client/interrupt.h"
#include "client/message.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOLD_FAILURES  5   /* number of errors to print */
#define NOBODY_SECONDS 1.0 /* longest wait before arrivals are checked again */

struct bench {
    struct connection *c;
    const struct client_bench_options *o;
    struct bench_load load;
    struct bench_times *times; /* [load.n] */
    char prefix[40];           /* prefix of request ids, unique to this bench */
    int64_t n_sent, n_open, n_done, n_failed;
    double heard; /* time of the last message */
    struct progress bar;
};

static int send_wish(struct bench *b, int64_t i, const char *prefix, struct err *e)
{
    const struct bench_wish *w = &b->load.wish[i];
    char name[120];
    (void)snprintf(name, sizeof name, "%s%lld", prefix, (long long)i);
    json_t *request = json_copy(b->o->call.request); /* --field */
    json_t *more = json_pack("{s:s, s:O, s:I, s:f, s:b, s:b}", "request_id", name, "prompt", w->prompt, "max_tokens",
                             (json_int_t)w->n_output, "temperature", b->o->temperature, "stream", 1, "ignore_eos",
                             (int)b->load.exact);
    int status = request != NULL && more != NULL && json_object_update(request, more) == 0
                     ? connection_send(b->c, request, e)
                     : ERR(e, ERR_MEMORY, "out of host memory: a request");
    json_decref(more);
    json_decref(request);
    return status;
}

/* The request that a message belongs to; -1: none of this client. */
static int64_t number_of(const struct bench *b, const json_t *message)
{
    const char *name = json_string_value(json_object_get(message, "request_id"));
    size_t n = strlen(b->prefix);
    if (name == NULL || strncmp(name, b->prefix, n) != 0)
        return -1;
    char *end = NULL;
    long long i = strtoll(name + n, &end, 10);
    return *end == '\0' && end > name + n && i >= 0 && i < b->n_sent ? i : -1;
}

static void finish_request(struct bench *b, struct bench_times *t, const json_t *message)
{
    struct err why = {0};
    int64_t n_input = message_usage(message, "prompt_tokens"), n_output = message_usage(message, "completion_tokens");
    t->succeeded = message_check(message, &why) == 0;
    t->n_input = n_input > 0 ? n_input : 0;
    t->n_output = n_output > 0 ? n_output : 0;
    b->n_open--;
    b->n_done++;
    b->n_failed += !t->succeeded;
    if (!t->succeeded && b->n_failed <= TOLD_FAILURES) {
        progress_clear(&b->bar);
        (void)fprintf(stderr, "lockstep-client: request %lld: %s\n", (long long)(t - b->times), why.text);
    }
}

static int take_message(struct bench *b, const json_t *message, struct err *e)
{
    int64_t i = number_of(b, message);
    b->heard = seconds_now();
    if (i < 0)
        return message_check(message, e); /* an error that names no request concerns all of them */
    if (!message_is_event(message))
        finish_request(b, &b->times[i], message);
    else if (message_n_tokens(message) > 0)
        return bench_times_add(&b->times[i], b->heard, e);
    return 0;
}

/* Sends all requests that are due, up to the concurrency limit. Returns when the next one is due; INFINITY: none before
 * an answer. */
static double send_due(struct bench *b, double started, struct err *e)
{
    while (b->n_sent < b->load.n && e->code == ERR_NONE) {
        double due = started + b->load.wish[b->n_sent].at, now = seconds_now();
        if (b->o->max_concurrency > 0 && b->n_open >= b->o->max_concurrency)
            return INFINITY;
        if (due > now)
            return due;
        b->times[b->n_sent].sent = now;
        if (send_wish(b, b->n_sent, b->prefix, e) == 0) {
            b->n_sent++;
            b->n_open++;
        }
    }
    return INFINITY;
}

static int run_load(struct bench *b, double *seconds, struct err *e)
{
    double started = seconds_now();
    b->heard = started;
    while (b->n_done < b->load.n && e->code == ERR_NONE && !interrupt_came()) {
        double wait = send_due(b, started, e) - seconds_now();
        if (e->code != ERR_NONE)
            break;
        json_t *message = connection_receive(b->c, fmax(0, fmin(wait, NOBODY_SECONDS)), e);
        if (message != NULL)
            (void)take_message(b, message, e);
        else if (e->code == ERR_NONE && b->n_open > 0 && b->o->call.timeout > 0 &&
                 seconds_now() - b->heard > b->o->call.timeout)
            (void)ERR(e, ERR_COMM, "%s: no message for %g s, %lld requests open", b->c->endpoint, b->o->call.timeout,
                      (long long)b->n_open);
        json_decref(message);
        progress_update(&b->bar, (uint64_t)b->n_done, NULL);
    }
    *seconds = seconds_now() - started;
    return e->code == ERR_NONE ? 0 : -1;
}

/* Warm-up: requests like the first one, one after the other, unmeasured. */
static int warm_up(struct bench *b, struct err *e)
{
    double limit = b->o->call.timeout > 0 ? b->o->call.timeout : -1;
    for (int64_t i = 0; i < b->o->warmups && e->code == ERR_NONE && !interrupt_came(); i++) {
        char prefix[80];
        (void)snprintf(prefix, sizeof prefix, "%swarm-%lld-", b->prefix, (long long)i);
        bool ended = send_wish(b, 0, prefix, e) != 0;
        while (!ended && e->code == ERR_NONE && !interrupt_came()) {
            json_t *message = connection_receive(b->c, limit, e);
            if (message == NULL && e->code == ERR_NONE && !interrupt_came())
                (void)ERR(e, ERR_COMM, "%s: no answer within %g s", b->c->endpoint, limit);
            ended = message != NULL && !message_is_event(message);
            if (ended)
                (void)message_check(message, e);
            json_decref(message);
        }
    }
    return e->code == ERR_NONE ? 0 : -1;
}

static int measure_traffic(struct bench *b, const char *model, struct err *e)
{
    double seconds = 0;
    struct bench_figures f;
    if (warm_up(b, e) != 0 || interrupt_came())
        return -1;
    progress_open(&b->bar, (enum progress_mode)b->o->progress, "bench", "requests", (uint64_t)b->load.n);
    (void)run_load(b, &seconds, e);
    progress_close(&b->bar);
    if (e->code != ERR_NONE || interrupt_came() || bench_figures(&f, b->times, b->load.n, seconds, e) != 0)
        return -1;
    bench_report(&f, b->o, model);
    if (f.failed > 0)
        return ERR(e, ERR_REQUEST, "%lld of %lld requests failed", (long long)f.failed, (long long)b->load.n);
    return 0;
}

int client_bench(struct connection *c, const struct client_bench_options *o, struct err *e)
{
    struct bench b = {.c = c, .o = o};
    struct bench_model model;
    (void)snprintf(b.prefix, sizeof b.prefix, "bench-%ld-%.0f-", (long)getpid(), 1e3 * seconds_now());
    if (bench_model_find(&model, c, o, e) == 0 && bench_load_open(&b.load, o, model.vocab, e) == 0) {
        b.times = err_calloc(e, (size_t)b.load.n, sizeof *b.times, "times of requests");
        if (b.times != NULL)
            (void)measure_traffic(&b, model.name, e);
    }
    for (int64_t i = 0; b.times != NULL && i < b.load.n; i++)
        free(b.times[i].event);
    free(b.times);
    bench_load_close(&b.load);
    return e->code == ERR_NONE ? 0 : -1;
}
