/* coordinator/server/io.c - the I/O thread: its sockets, its loop, its end. See server.h. */
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "coordinator/metrics/metrics_text.h"
#include "coordinator/server/rendezvous.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/mailbox.h"

#include <malloc.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define DEFAULT_ENDPOINT "tcp://127.0.0.1:5555"

#define FILE_SECONDS    5.0   /* between two --metrics-file */
#define TURN_SECONDS    0.005 /* messages per round, before replies and signals are handled again */
#define FLUSH_SECONDS   2.0   /* time for replies to slow readers once the engine has ended */
#define LINGER_MS       1000  /* and for the transport's unsent bytes, if there is time */
#define LINGER_SHORT_MS 200   /* and when mpirun kills in a second */
#define FEW_DESCRIPTORS 1024  /* worth a warning */
#define MAPPED_BYTES    (1 << 20)

enum poll_item { POLL_SIGNAL, POLL_TRANSPORT, POLL_WORKERS, POLL_REPLICAS = POLL_WORKERS + 2 };
#define POLL_MODELS 1 /* with several models: their opener, and each set's main thread */

/* Every connection takes a descriptor; the usual limit of 1024 is less than the clients of a job array. Beyond the
 * limit clients wait without an answer, hence the warning at start. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_max < FEW_DESCRIPTORS)
        log_warn("at most %llu open files are allowed (ulimit -Hn): more clients than that get no answer",
                 (unsigned long long)limit.rlim_max);
}

/* Reported at the first one, and at each doubling. */
static void count_refused(struct server *s)
{
    uint64_t n = ++s->metrics.n_refused_connections;
    if ((n & (n - 1)) == 0)
        log_warn("%llu connection%s refused: a handshake failed (%s)", (unsigned long long)n,
                 n == 1 ? " was" : "s were",
                 s->has_curve ? "no CURVE, other keys, or a client that is not on the list"
                              : "CURVE, which this server does not speak, or something that is not ZeroMQ");
}

/* Reported only once: clients reconnect ten times a second. */
static void count_turned_away(struct server *s)
{
    uint64_t n = s->transport.n_turned_away;
    if (n > 0 && s->metrics.n_turned_away == 0)
        log_warn("a connection was closed at once: %d are open already (--max-connections)",
                 s->transport.n_connections);
    s->metrics.n_turned_away = n;
}

static void take_happenings(struct server *s)
{
    count_turned_away(s);
    struct channel_name channel;
    for (enum happening h; (h = transport_happening(&s->transport, &channel)) != HAPPENING_NONE;) {
        if (h == HAPPENING_GONE)
            clients_gone_channel(&s->clients, &channel);
        if (h == HAPPENING_REFUSED)
            count_refused(s);
    }
}

void server_take_reports(struct server *s)
{
    struct report *r;
    int replica = 0;
    while ((r = replicas_take(&s->replicas, &replica)) != NULL) {
        bool loaded = r->loaded;
        server_report(s, r, replica);
        if (loaded && s->state == SERVER_READY && !models_are_many(&s->models))
            rendezvous_ready(s);
    }
}

static void take_tasks(struct server *s)
{
    struct task *task;
    for (int i = 0; i < 2; i++)
        while ((task = mailbox_take(s->worker[i].end[0])) != NULL)
            server_returned(s, task, i);
    server_take_reports(s);
    models_take(&s->models);
}

static void take_messages(struct server *s)
{
    double until = seconds_now() + TURN_SECONDS;
    struct incoming m;
    do {
        if (!transport_receive(&s->transport, &m))
            return;
        if (transport_connected(&s->transport, &m.channel))
            server_receive(s, &m);
        else
            (void)zmq_msg_close(&m.body);
    } while (seconds_now() < until);
}

int server_write_metrics(struct server *s, struct text_buffer *text, struct err *e)
{
    if (metrics_write(&s->metrics, text, e) == 0)
        models_write_metrics(&s->models, text, e);
    return e->code == ERR_NONE ? 0 : -1;
}

/* For node_exporter's textfile collector; replaced atomically, so it never reads a partial file. */
static void write_file(struct server *s)
{
    struct text_buffer text = {0};
    struct err e = {0};
    const char *path = s->setup.o->service.metrics_file;
    s->file_due = seconds_now() + FILE_SECONDS;
    if (path != NULL && server_write_metrics(s, &text, &e) == 0)
        (void)files_replace(path, text.data, text.bytes, 0644, &e);
    if (e.code != ERR_NONE && s->file_error.code == ERR_NONE) {
        s->file_error = e;
        log_warn("--metrics-file: %s", e.text);
    }
    text_free(&text);
}

static void set_gauges(struct server *s)
{
    s->metrics.n_clients = s->clients.n;
    s->metrics.n_open_tasks = s->n_open;
    s->metrics.n_unassigned = s->turns[TURN_REPLICA].all.n_sequences;
    s->metrics.backlog = s->clients.backlog;
    s->metrics.draining = s->state >= SERVER_DRAINING;
    s->metrics.n_lost_log_lines = access_log_lost(&s->log);
}

/* Handles everything that is due. */
static void keep_time(struct server *s)
{
    double now = seconds_now();
    if (s->setup.o->service.metrics_file != NULL && now >= s->file_due)
        write_file(s);
    server_check_times(s);
    if ((s->trims || s->transport.held_much) && s->n_open == 0 && s->transport.pending < MAPPED_BYTES) {
        s->trims = s->transport.held_much = false;
        (void)malloc_trim(0);
    }
    if (s->state != SERVER_DRAINING)
        return;
    if (s->n_open == 0 && s->clients.backlog == 0)
        server_stop(s, PROTOCOL_UNAVAILABLE, "");
    else if (now >= s->drain_until)
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server has ended: its time to drain has passed");
}

static long poll_ms(const struct server *s)
{
    double now = seconds_now(), wait = transport_due(&s->transport);
    if (s->setup.o->service.metrics_file != NULL)
        wait = fmin(wait, s->file_due - now);
    if (s->state == SERVER_DRAINING)
        wait = fmin(wait, s->drain_until - now);
    if (models_are_many(&s->models))
        wait = fmin(wait, placement_due(&s->models.placement) - now);
    return wait > 0 ? (long)(1e3 * wait) + 1 : 0;
}

static bool is_over(const struct server *s)
{
    return s->state == SERVER_ENDED && (s->clients.backlog == 0 || seconds_now() > s->ended_at + FLUSH_SECONDS);
}

/* Returns how many there are. */
static int fill_poll(struct server *s, zmq_pollitem_t *item)
{
    int n = POLL_REPLICAS;
    item[POLL_SIGNAL] = (zmq_pollitem_t){.fd = signals_fd(), .events = ZMQ_POLLIN};
    item[POLL_TRANSPORT] = (zmq_pollitem_t){.fd = s->transport.poll, .events = ZMQ_POLLIN};
    for (int i = 0; i < 2; i++)
        item[POLL_WORKERS + i] = (zmq_pollitem_t){.socket = s->worker[i].end[0], .events = ZMQ_POLLIN};
    for (int i = 0; i < s->replicas.n; i++)
        item[n++] = (zmq_pollitem_t){.socket = s->replicas.replica[i].end[0], .events = ZMQ_POLLIN};
    if (models_are_many(&s->models)) {
        item[n++] = (zmq_pollitem_t){.socket = s->models.opener.end[0], .events = ZMQ_POLLIN};
        for (int k = 0; k < s->models.setup.n_sets; k++)
            item[n++] = (zmq_pollitem_t){.socket = s->models.control[k].end[0], .events = ZMQ_POLLIN};
    }
    return n;
}

/* Whether the job has failed: the clients are told in this turn. */
static bool take_signals(struct server *s, const zmq_pollitem_t *item)
{
    enum signal_wish wish = (item->revents & ZMQ_POLLIN) != 0 ? signals_take() : WISH_NONE;
    server_signal(s, wish, true);
    return wish == WISH_FAIL;
}

static void *run_io(void *context)
{
    struct server *s = context;
    zmq_pollitem_t *item = s->poll;
    int n = fill_poll(s, item);
    signals_listen(true);
    while (!is_over(s)) {
        (void)zmq_poll(item, n, poll_ms(s));
        bool failed = take_signals(s, &item[POLL_SIGNAL]);
        transport_turn(&s->transport);
        take_happenings(s);
        take_tasks(s);
        set_gauges(s);
        take_messages(s);
        if (s->state == SERVER_READY || s->state == SERVER_DRAINING)
            models_decide(&s->models);
        server_feed(s);
        transport_flush(&s->transport);
        clients_flush(&s->clients, &s->transport);
        transport_flush(&s->transport);
        s->metrics.n_cut_clients += clients_cut(&s->clients, &s->transport, 2 * (size_t)s->setup.o->max_client_backlog);
        clients_sweep(&s->clients, server_client_left, s);
        set_gauges(s);
        keep_time(s);
        if (failed)
            signals_reported();
    }
    signals_listen(false);
    return NULL;
}

static int open_sockets(struct server *s, struct err *e)
{
    const struct serve_options *o = s->setup.o;
    const char *endpoint = o->endpoint != NULL ? o->endpoint : DEFAULT_ENDPOINT;
    if (transport_check(endpoint, o->curve, o->insecure, e) != 0 || transport_context(&s->transport, e) != 0)
        return -1;
    s->has_curve = o->curve;
    if (o->curve && curve_open(&s->curve, NULL, o->curve_clients, e) != 0)
        return -1;
    return transport_open(&s->transport, endpoint, o->max_message_bytes, o->max_connections,
                          o->curve ? &s->curve : NULL, e);
}

/* ---- struct models_owner ---- */

static void take_reports(void *s)
{
    server_take_reports(s);
}

static void models_running(void *context)
{
    struct server *s = context;
    if (s->state != SERVER_LOADING)
        return;
    s->state = SERVER_READY;
    rendezvous_ready(s);
    models_start(&s->models);
}

static void admit_model(void *s, int model)
{
    server_admit_model(s, model);
}

static void refuse_model(void *s, int model, const struct protocol_error *why)
{
    server_refuse_model(s, model, why);
}

static void unloaded_model(void *s, int model)
{
    server_unloaded_model(s, model);
}

static void hear_signal(void *s, enum signal_wish wish)
{
    server_signal(s, wish, false);
}

static void hear_end(void *s)
{
    server_ended(s);
}

/* Sockets and threads; libzmq makes its own with the first socket. */
static int open_threads(struct server *s, struct err *e)
{
    const struct server_setup *setup = &s->setup;
    const struct worker_setup work = {setup->o->service.max_reply_bytes};
    const struct models_owner owner = {
        s, take_reports, models_running, admit_model, refuse_model, unloaded_model, hear_signal, hear_end};
    int places = setup->models.n > 0 ? setup->models.deploy.n_slots : 1, n_replicas = setup->n_replicas * places;
    s->poll = err_calloc(e, POLL_REPLICAS + (unsigned long)(n_replicas + setup->n_replicas) + POLL_MODELS + 1,
                         sizeof *s->poll, "sockets");
    if (s->poll == NULL || access_log_open(&s->log, setup->o->access_log, setup->o->access_log_prompts, e) != 0 ||
        open_sockets(s, e) != 0 ||
        replicas_open(&s->replicas, s->transport.context, n_replicas, setup->n_replicas, setup->n_ranks, e) != 0 ||
        models_open(&s->models, s->transport.context, &setup->models, setup->served, &owner, &s->replicas, e) != 0 ||
        metrics_open(&s->metrics, (enum metrics_names)setup->o->metrics_names, setup->name, &s->replicas,
                     !setup->o->service.run.no_prefix_caching, e) != 0 ||
        worker_open(&s->worker[0], s->transport.context, "texts", &work, e) != 0 ||
        worker_open(&s->worker[1], s->transport.context, "large-messages", &work, e) != 0)
        return -1;
    if (pthread_create(&s->thread, NULL, run_io, s) != 0)
        return ERR(e, ERR_MEMORY, "cannot start the I/O thread");
    s->running = true;
    return 0;
}

/* Returns memory of messages and replies of megabytes to the system when they are freed; glibc would otherwise adapt
 * and keep it. */

int server_open(struct server *s, const struct server_setup *setup, struct err *e)
{
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    memset(s, 0, sizeof *s);
    s->setup = *setup;
    for (int i = 0; i < N_TURNS; i++)
        s->turns[i].kind = (enum turn_kind)i;
    raise_descriptors();
    if (sodium_init() < 0)
        return ERR(e, ERR_IO, "libsodium: no random numbers");
    return open_threads(s, e);
}

int server_close(struct server *s)
{
    if (s->running)
        (void)pthread_join(s->thread, NULL);
    if (s->transport.context == NULL)
        return 0;
    rendezvous_remove(s);
    if (s->setup.o->service.metrics_file != NULL)
        write_file(s);
    clients_sweep(&s->clients, server_client_left, s);
    for (int i = 0; i < 2; i++)
        worker_close(&s->worker[i]);
    clients_close(&s->clients);
    models_close(&s->models);
    replicas_say(&s->replicas);
    replicas_close(&s->replicas);
    curve_close(&s->curve);
    transport_close(&s->transport, s->n_cut_short > 0 ? LINGER_SHORT_MS : LINGER_MS);
    metrics_close(&s->metrics);
    access_log_close(&s->log);
    free(s->poll);
    int status = s->n_cut_short > 0 ? ERR_REQUEST : ERR_NONE;
    memset(s, 0, sizeof *s);
    return status;
}
