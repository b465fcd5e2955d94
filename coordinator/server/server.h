/* coordinator/server/server.h - the I/O thread of the server and its data. It owns the transport: it receives messages,
 * sends them through workers and the replicas (coordinator/replicas/replicas.h), and writes the replies. The code is in
 * io.c (the thread, its loop and its end), dispatch.c (handling of messages), admission.c (limits), enter.c and
 * models.c (models loaded and unloaded), ending.c and answer.c (replies). */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/files.h"
#include "base/signals.h"
#include "coordinator/models/models.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/server/access_log.h"
#include "coordinator/server/clients.h"
#include "coordinator/server/serve_options.h"
#include "coordinator/server/turns.h"
#include "coordinator/tasks/worker.h"
#include "protocol/reply.h"

#include <pthread.h>

#define LARGE_BYTES \
    ((size_t)64     \
     << 10) /* larger messages are parsed, and larger replies written, by a worker, since that takes more than 1 ms */

struct server_setup { /* constant; its pointers are borrowed */
    const struct serve_options *o;
    const char *name;            /* of the model, or of several in logs and metrics */
    const struct served *served; /* of the single model; NULL: several */
    struct models_setup models;  /* of several */
    int n_ranks, n_replicas;
    double end_seconds; /* after SIGTERM and SIGINT: time for open requests, 0 if the launcher kills soon */
};

enum server_state {
    SERVER_LOADING,
    SERVER_READY,
    SERVER_DRAINING, /* no new requests; open ones may finish */
    SERVER_STOPPING, /* all requests are answered; the main thread was told to stop */
    SERVER_ENDED     /* it has stopped; replies remain to be sent */
};

struct server {
    struct server_setup setup;
    struct transport transport;
    struct curve curve;
    bool has_curve;
    struct worker worker[2];  /* worker for texts of small messages, worker for large messages */
    struct replicas replicas; /* whole models on ranks of their own; of several models one each */
    struct models models;
    zmq_pollitem_t *poll; /* descriptors on which the thread waits; owned */
    pthread_t thread;
    bool running;

    /* Used by the I/O thread only from here on. */
    enum server_state state;
    double drain_until, end_asked, ended_at, file_due; /* end_asked: time of the first SIGTERM or SIGINT; 0: none */
    struct clients clients;
    void *names; /* of tsearch(3): tasks by connection and request_id */
    uint64_t last_number;
    int n_open, n_sequences; /* tasks; sequences of those that generate */
    size_t open_bytes;
    bool trims; /* when no request is open, memory of large messages is returned to the system */
    struct turns turns[N_TURNS];
    int n_at_replicas;    /* clients with tasks at replicas */
    int at_worker[2];     /* tasks that each has now */
    double times_checked; /* time limits of tasks that wait for a replica */
    int n_cut_short;      /* tasks answered with an error because the server ended */
    struct metrics metrics;
    struct access_log log;
    struct err file_error;                       /* a failure of --metrics-file was reported */
    struct file_mark rendezvous_file, keys_file; /* that rendezvous.c wrote */
};

/* Opens sockets, keys and threads; the server answers from now on, as "loading". Errors are in *e. */
int server_open(struct server *s, const struct server_setup *setup, struct err *e);

/* Waits for the I/O thread, which ends after the replicas' last reports, and for replies under way. Returns the exit
 * status: ERR_REQUEST when open requests were cut short. Safe on a zeroed struct. */
int server_close(struct server *s);

/* enter.c: waiters of a model enter it, or are refused; operators who waited for its unloading are answered. */
void server_admit_model(struct server *s, int model);
void server_refuse_model(struct server *s, int model, const struct protocol_error *why);
void server_unloaded_model(struct server *s, int model);

/* io.c: all metrics as Prometheus text. */
int server_write_metrics(struct server *s, struct text_buffer *text, struct err *e);
/* Takes the reports of replicas. */
void server_take_reports(struct server *s);

/* dispatch.c */
/* The main thread has ended. */
void server_ended(struct server *s);
void server_receive(struct server *s, struct incoming *m);
void server_returned(struct server *s, struct task *task, int worker);
void server_report(struct server *s, struct report *r, int replica);
void server_client_left(void *server, struct client *c);
void server_drain(struct server *s, double seconds);
/* A signal that this process or (own: false) another rank has received; the launcher may have sent it to several
 * ranks. */
void server_signal(struct server *s, enum signal_wish wish, bool own);
/* Answer all open requests with this error, and tell the main thread to stop. */
void server_stop(struct server *s, enum protocol_code code, const char *why);
/* Close a task: release its name and counts. */
void server_finish(struct server *s, struct task *task, const struct outcome *o);
void server_cancel(struct server *s, struct task *task, enum finish_reason why);
/* Does this client have more than --max-client-backlog unread? If so, *error is set. */
bool server_too_slow(const struct server *s, const struct client *c, struct protocol_error *error);

void server_refuse(struct server *s, struct task *task); /* with its error */

/* feed.c: starts waiting tasks as far as workers and replicas have room. */
void server_feed(struct server *s);
/* Ends tasks whose time limit has passed while they waited for a replica. */
void server_check_times(struct server *s);

/* admission.c. Functions that return int return 0, or -1 with the task's error. */
/* Can the server generate, tokenize and report limits now? */
int server_check_state(const struct server *s, struct protocol_error *error);
/* The task counts this many bytes from now on, without its results. */
void server_hold(struct server *s, struct task *task, size_t bytes);
/* All tasks may hold a gigabyte; those of one client half of it, or one message. */
int server_check_bytes(struct server *s, struct task *task);
/* The error of a full queue. */
int server_busy(struct server *s, struct protocol_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Gives a task without a request_id one, by which it can be cancelled. */
int server_name(struct server *s, struct task *task);
/* Gives a parsed `generate` its places in the queue and its name. */
int server_admit(struct server *s, struct task *task);
/* Counts its possible results, from task_prepare, in addition to messages. */
int server_reserve_results(struct server *s, struct task *task);
/* Releases name, places and bytes. */
void server_unlist(struct server *s, struct task *task);
/* The task of this connection that generates under this name, or NULL. */
struct task *server_find(struct server *s, uint64_t asker, const char *name);
/* Random names and seeds, so that a client's replies do not reveal anything about others. */
uint64_t server_random(void);

/* answer.c: each function sends the only or last reply of a task if its client still exists, and takes over text. */
void answer_text(struct server *s, struct task *task, char *text, size_t bytes);
void answer_error(struct server *s, struct task *task, const struct protocol_error *error);
/* A task that the main thread has returned, with its outcome in *o. */
void answer_generate(struct server *s, struct task *task, struct outcome *o);
void answer_delta(struct server *s, const struct delta *p);
void answer_health(struct server *s, struct task *task);
void answer_metrics(struct server *s, struct task *task);
void answer_models(struct server *s, struct task *task);
/* Replies to load, unload and pin: the model's present state. */
void answer_model(struct server *s, struct task *task, int model);

#endif
