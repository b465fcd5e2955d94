/* tests/soak/test_serve_load.c - a thousand clients of `lockstep serve` at once, for minutes: requests of mixed
 * lengths, streamed or not; some are cancelled, some clients leave midway. Every request is answered once, in order and
 * with the tokens that its prompt always gets; at the end the server holds as much as before; health is answered
 * meanwhile. SOAK_SECONDS in the environment: duration of the load, 120 by default. SERVE_CLIENTS, SERVE_RANKS: 1000,
 * 2. */
#include "base/clock.h"
#include "client/ask.h"
#include "client/bench_figures.h"
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define N_PROMPTS      64
#define MAX_PROMPT     200
#define MAX_NEW        48
#define MAX_CLIENTS    4000
#define ANSWER_SECONDS 120.0 /* without an answer: then the request is lost */
#define KV_BYTES       "1M"  /* per rank: soon fully in use, so that sequences wait and are preempted */
#define HEALTH_MS      10    /* between two questions */
#define MAX_HEALTH     (1 << 20)
#define HEALTH_LIMIT   0.050                /* seconds, p99 */
#define HOST_SLACK     ((double)(24 << 20)) /* for the allocator's caches */

/* A client, with one request open or none. */
struct caller {
    void *socket;
    char name[48];            /* request_id */
    bool busy, stream, asked; /* asked: to cancel it */
    int prompt, max_tokens, got, seq;
    int cancel_after, leave_after; /* events; -1: never */
    int n_cancels;                 /* replies to `cancel` that may still come */
    char last_name[48];            /* the request of these replies */
    double sent;
};

/* The counters. */
struct tally {
    long sent, done, cancelled, refused, left, tokens;
    long strange, lost, unordered, changed, short_ones; /* all must stay 0 */
};

static struct {
    void *context;
    struct serving server;
    struct caller caller[MAX_CLIENTS];
    int n_callers;
    uint64_t random;
    long number;
    json_t *prompt[N_PROMPTS];
    int known[N_PROMPTS][MAX_NEW], n_known[N_PROMPTS]; /* tokens that each prompt gets */
    struct tally tally;
} load;

static int below(int n)
{
    uint64_t x = load.random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int)((x ^ x >> 31) % (uint64_t)n);
}

static void make_prompts(void)
{
    static const int length[] = {1, 3, 8, 20, 50, 120, MAX_PROMPT, 17};
    for (int i = 0; i < N_PROMPTS; i++) {
        load.prompt[i] = json_array();
        for (int k = 0; k < length[i % 8]; k++)
            (void)json_array_append_new(load.prompt[i], json_integer(below(1000)));
    }
}

static void open_socket(struct caller *c)
{
    const int none = 0;
    c->socket = zmq_socket(load.context, ZMQ_DEALER);
    if (c->socket == NULL || zmq_setsockopt(c->socket, ZMQ_LINGER, &none, sizeof none) != 0 ||
        zmq_connect(c->socket, load.server.endpoint) != 0) {
        printf("# no socket: %s\n", zmq_strerror(zmq_errno()));
        exit(1);
    }
}

/* Sends the message and frees it. */
static void send_json(struct caller *c, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    if (zmq_send(c->socket, text, strlen(text), 0) < 0)
        load.tally.strange++;
    free(text);
    json_decref(message);
}

static void begin(struct caller *c)
{
    int fate = below(100);
    c->prompt = below(N_PROMPTS);
    c->max_tokens = 1 + below(below(4) == 0 ? MAX_NEW : 12);
    c->stream = below(10) < 7;
    c->got = c->seq = 0;
    c->cancel_after = fate < 15 ? below(4) : -1;
    c->leave_after = fate >= 15 && fate < 25 ? below(4) : -1;
    c->busy = true;
    c->asked = false;
    c->sent = seconds_now();
    (void)snprintf(c->name, sizeof c->name, "load-%ld", load.number++);
    send_json(c, json_pack("{s:s, s:O, s:i, s:i, s:b, s:b}", "request_id", c->name, "prompt", load.prompt[c->prompt],
                           "max_tokens", c->max_tokens, "temperature", 0, "ignore_eos", 1, "stream", (int)c->stream));
    load.tally.sent++;
}

static void ask_cancel(struct caller *c)
{
    send_json(c, json_pack("{s:s, s:s}", "op", "cancel", "request_id", c->name));
    memcpy(c->last_name, c->name, sizeof c->name);
    c->asked = true;
    c->n_cancels++;
}

/* The client disconnects, and a new one replaces it. */
static void leave(struct caller *c)
{
    (void)zmq_close(c->socket);
    load.tally.left++;
    *c = (struct caller){0};
    open_socket(c);
}

/* The tokens must be those that this prompt got before. */
static void compare(struct caller *c, const json_t *message)
{
    const json_t *ids = json_object_get(json_array_get(json_object_get(message, "choices"), 0), "token_ids");
    for (size_t i = 0; i < json_array_size(ids); i++, c->got++) {
        int id = (int)json_integer_value(json_array_get(ids, i)), *known = load.known[c->prompt];
        if (c->got >= MAX_NEW)
            load.tally.strange++;
        else if (c->got == load.n_known[c->prompt])
            known[load.n_known[c->prompt]++] = id;
        else if (known[c->got] != id)
            load.tally.changed++;
    }
    load.tally.tokens += (long)json_array_size(ids);
}

static void finish(struct caller *c, const json_t *message, bool ok)
{
    json_int_t code = json_integer_value(json_object_get(message, "code"));
    compare(c, message);
    c->busy = false;
    if (ok) {
        load.tally.done++;
        load.tally.short_ones += c->got != c->max_tokens;
    } else if (code == 499 && c->asked) {
        load.tally.cancelled++;
    } else if (code == 429) {
        load.tally.refused++;
    } else {
        load.tally.strange++;
        char *text = json_dumps(message, JSON_COMPACT);
        printf("# strange: %.300s\n", text);
        free(text);
    }
}

static bool is(const json_t *message, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(message, key));
    return text != NULL && strcmp(text, value) == 0;
}

/* Tells whether this is the reply to `cancel`, which has neither choices nor an event: ok, or 404 if the request had
 * already ended. */
static bool answers_cancel(const struct caller *c, const json_t *message)
{
    return c->n_cancels > 0 && is(message, "request_id", c->last_name) && json_object_get(message, "choices") == NULL &&
           json_object_get(message, "event") == NULL &&
           (is(message, "status", "ok") || json_integer_value(json_object_get(message, "code")) == 404);
}

static void take_message(struct caller *c, const json_t *message)
{
    bool ok = is(message, "status", "ok"), event = json_object_get(message, "event") != NULL;
    if (answers_cancel(c, message)) {
        c->n_cancels--;
        return;
    }
    if (!c->busy || !is(message, "request_id", c->name)) {
        char *text = json_dumps(message, JSON_COMPACT);
        printf("# unexpected message: %.300s\n", text);
        free(text);
        load.tally.strange++;
        return;
    }
    if (event && json_integer_value(json_object_get(message, "seq")) != c->seq++)
        load.tally.unordered++;
    if (is(message, "event", "tokens"))
        compare(c, message);
    else
        finish(c, message, ok);
}

/* Takes all messages that wait for one client. */
static void drain(struct caller *c)
{
    zmq_msg_t frame;
    (void)zmq_msg_init(&frame);
    while (zmq_msg_recv(&frame, c->socket, ZMQ_DONTWAIT) >= 0) {
        json_t *message = json_loadb(zmq_msg_data(&frame), zmq_msg_size(&frame), JSON_ALLOW_NUL, NULL);
        if (message == NULL || zmq_msg_more(&frame))
            load.tally.strange++;
        else
            take_message(c, message);
        json_decref(message);
    }
    (void)zmq_msg_close(&frame);
}

/* Does a client's next action. more: it begins new requests. */
static void act(struct caller *c, bool more)
{
    if (c->busy && c->leave_after >= 0 && c->seq >= c->leave_after)
        leave(c);
    if (c->busy && c->cancel_after >= 0 && !c->asked && c->n_cancels == 0 && c->seq >= c->cancel_after)
        ask_cancel(c);
    if (c->busy && seconds_now() - c->sent > ANSWER_SECONDS) {
        printf("# no answer to %s\n", c->name);
        load.tally.lost++;
        c->busy = false;
    }
    if (!c->busy && more)
        begin(c);
}

/* Runs the load for this long, then until all requests are answered. */
static void run_load(double seconds)
{
    static zmq_pollitem_t item[MAX_CLIENTS];
    double until = seconds_now() + seconds, looked = 0;
    for (int open = 1; open > 0 && !load.server.p.ended;) {
        bool more = seconds_now() < until;
        open = 0;
        for (int i = 0; i < load.n_callers; i++) {
            act(&load.caller[i], more);
            open += load.caller[i].busy || load.caller[i].n_cancels > 0;
            item[i] = (zmq_pollitem_t){.socket = load.caller[i].socket, .events = ZMQ_POLLIN};
        }
        if (open > 0 && zmq_poll(item, load.n_callers, 100) > 0)
            for (int i = 0; i < load.n_callers; i++)
                if (item[i].revents != 0)
                    drain(&load.caller[i]);
        if (seconds_now() > looked + 1) { /* the server's answer, and whether there is one */
            looked = seconds_now();
            process_watch(&load.server.p, 0.001, (size_t)-1);
        }
    }
}

/* Asks for health on its own thread and connection. */
struct health {
    atomic_bool stop;
    pthread_t thread;
    double *seconds; /* [n] */
    int64_t n;
    bool failed;
};

static void *watch_health(void *context)
{
    struct health *h = context;
    struct connection c;
    struct err e = {0};
    h->failed = !serving_connect(&load.server, &c);
    while (!h->failed && !h->stop && h->n < MAX_HEALTH) {
        double started = seconds_now();
        json_t *reply = ask_op(&c, "health", ANSWER_SECONDS, &e);
        h->failed = reply == NULL;
        if (h->failed)
            printf("# health, after %lld answers: %s\n", (long long)h->n, e.text);
        h->seconds[h->n++] = seconds_now() - started;
        json_decref(reply);
        (void)zmq_poll(NULL, 0, HEALTH_MS);
    }
    connection_close(&c);
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_health(struct health *h)
{
    h->stop = true;
    (void)pthread_join(h->thread, NULL);
    qsort(h->seconds, (size_t)h->n, sizeof *h->seconds, ascending);
    double p99 = bench_percentile(h->seconds, h->n, 0.99);
    printf("# health: %lld answers, p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, worst %.2f ms\n", (long long)h->n,
           1e3 * bench_percentile(h->seconds, h->n, 0.5), 1e3 * bench_percentile(h->seconds, h->n, 0.9), 1e3 * p99,
           1e3 * bench_percentile(h->seconds, h->n, 1));
    case_begin("health within %.0f ms in 99 of 100 cases", 1e3 * HEALTH_LIMIT);
    case_check(!h->failed && h->n > 10, "%lld answers", (long long)h->n);
    case_check(process_in_time(p99, HEALTH_LIMIT), "p99 is %.1f ms", 1e3 * p99);
    case_end();
}

static void check_tally(double seconds)
{
    const struct tally *t = &load.tally;
    printf("# %.0f preemptions, %.0f of %.0f prompt tokens found in the prefix cache\n",
           serving_metric(&load.server, "num_preemptions_total"),
           serving_metric(&load.server, "prefix_cache_hits_total"),
           serving_metric(&load.server, "prefix_cache_queries_total"));
    printf("# %d clients, %.0f s: %ld requests, %ld done, %ld cancelled, %ld clients left, %ld refused; %ld tokens, "
           "%.0f/s\n",
           load.n_callers, seconds, t->sent, t->done, t->cancelled, t->left, t->refused, t->tokens,
           (double)t->tokens / seconds);
    case_begin("no reply is lost, doubled or out of order");
    case_check(t->done > load.n_callers / 2, "only %ld requests were done", t->done);
    case_check(t->sent == t->done + t->cancelled + t->left + t->refused + t->lost, "%ld were sent", t->sent);
    case_check(t->lost == 0 && t->strange == 0 && t->unordered == 0, "%ld lost, %ld unexpected, %ld out of order",
               t->lost, t->strange, t->unordered);
    case_check(t->refused == 0, "%ld refused: the queue has room for all", t->refused);
    case_check(!load.server.p.ended, "the server has ended");
    case_end();
    case_begin("cancelled requests and clients that leave are among them");
    case_check(t->cancelled > 0 && t->left > 0, "%ld and %ld", t->cancelled, t->left);
    case_end();
    case_begin("a prompt gets the same tokens every time, as many as it asked for");
    case_check(t->changed == 0 && t->short_ones == 0, "%ld tokens differ, %ld outputs are too short", t->changed,
               t->short_ones);
    case_end();
}

static void check_leaks(const double *before, int ranks)
{
    case_begin("the server holds what it held before");
    case_check(serving_await(&load.server, "open_requests", 1, 30),
               "requests are still open"); /* this question is one */
    case_check(serving_await(&load.server, "num_requests_running", 0, 30), "sequences still run");
    case_check(serving_await(&load.server, "num_requests_waiting", 0, 30), "sequences still wait");
    case_check(serving_await(&load.server, "kv_blocks_used", 0, 30), "KV blocks are still in use");
    case_check(serving_await(&load.server, "client_backlog_bytes", 0, 30), "replies are still queued");
    case_check(serving_await(&load.server, "clients", 2, 30), "clients are still connected");
    for (int r = 0; r < ranks; r++) {
        double now = serving_resident(&load.server, r);
        printf("# rank %d: %.1f MiB after the warm-up, %.1f MiB at the end\n", r, before[r] / (1 << 20),
               now / (1 << 20));
        case_check(now > 0 && (now - before[r] <= HOST_SLACK || process_sanitized()), "rank %d grew by %.1f MiB", r,
                   (now - before[r]) / (1 << 20));
    }
    case_end();
}

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL && atoi(text) > 0 ? atoi(text) : otherwise;
}

int main(void)
{
    double seconds = setting("SOAK_SECONDS", 120), resident[8] = {0};
    int ranks = setting("SERVE_RANKS", 2);
    struct health health = {.seconds = calloc(MAX_HEALTH, sizeof(double))};
    load.n_callers = setting("SERVE_CLIENTS", 1000);
    load.n_callers = load.n_callers < MAX_CLIENTS ? load.n_callers : MAX_CLIENTS;
    load.context = zmq_ctx_new();
    (void)zmq_ctx_set(load.context, ZMQ_MAX_SOCKETS, MAX_CLIENTS + 16);
    make_prompts();
    case_begin("serve on %d ranks", ranks);
    const char *const more[] = {"--kv-cache-memory-bytes", KV_BYTES, NULL};
    bool started = ranks <= 8 && serving_start_model(&load.server, models_shallow(), ranks, NULL, more);
    case_check(started, "no server");
    case_end();
    if (!started)
        return cases_done();
    for (int i = 0; i < load.n_callers; i++)
        open_socket(&load.caller[i]);
    (void)pthread_create(&health.thread, NULL, watch_health, &health);
    double begun = seconds_now();
    run_load(seconds / 4); /* every operation has been used once */
    for (int r = 0; r < ranks; r++)
        resident[r] = serving_resident(&load.server, r);
    run_load(seconds * 3 / 4);
    check_tally(seconds_now() - begun);
    check_health(&health);
    for (int i = 0; i < load.n_callers; i++)
        (void)zmq_close(load.caller[i].socket);
    (void)zmq_ctx_term(load.context);
    check_leaks(resident, ranks);
    case_begin("SIGUSR1 ends it");
    int status = serving_stop(&load.server);
    case_check(status == 0, "status %d", status);
    case_end();
    for (int i = 0; i < N_PROMPTS; i++)
        json_decref(load.prompt[i]);
    free(health.seconds);
    return cases_done();
}
