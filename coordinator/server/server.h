/* coordinator/server/server.h - the I/O thread of the server and all that belongs to it. It owns the transport: it
 * takes messages, sends them through workers and the replicas (coordinator/replicas/replicas.h), and writes the
 * replies. Cut into io.c (the thread, its loop and how it ends), dispatch.c (what each message leads to), admission.c
 * (what is accepted), enter.c and models.c (models that come and go), ending.c and answer.c (replies). */
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
     << 10) /* a message above is parsed, and a reply written, by a worker: it takes more than a millisecond */

struct server_setup { /* constant; what it points to is borrowed */
    const struct serve_options *o;
    const char *name;            /* of the model, or what stands for several in logs and metrics */
    const struct served *served; /* of the one model; NULL: there are several */
    struct models_setup models;  /* of several */
    int n_ranks, n_replicas;
    double end_seconds; /* after SIGTERM and SIGINT: what is left for open requests, 0 where the launcher kills soon */
};

enum server_state {
    SERVER_LOADING,
    SERVER_READY,
    SERVER_DRAINING, /* nothing new; what is open may finish */
    SERVER_STOPPING, /* all is answered; the main thread was told to stop */
    SERVER_ENDED     /* it has; what is left is to send */
};

struct server {
    struct server_setup setup;
    struct transport transport;
    struct curve curve;
    bool has_curve;
    struct worker worker[2];  /* for texts of small messages; for large messages */
    struct replicas replicas; /* whole models on ranks of their own; of several models one each */
    struct models models;
    zmq_pollitem_t *poll; /* descriptors that the thread waits for; owned */
    pthread_t thread;
    bool running;

    /* The I/O thread's from here on. */
    enum server_state state;
    double drain_until, end_asked, ended_at, file_due; /* end_asked: by SIGTERM or SIGINT, the first time; 0: not */
    struct clients clients;
    void *names; /* of tsearch(3): tasks by connection and request_id */
    uint64_t last_number;
    int n_open, n_sequences; /* tasks; sequences of those that generate */
    size_t open_bytes;
    bool trims; /* when nothing is open, memory of large messages goes back to the system */
    struct turns turns[N_TURNS];
    int n_at_replicas;    /* clients of which replicas have something */
    int at_worker[2];     /* tasks that each has now */
    double times_checked; /* time limits of tasks that wait for a replica */
    int n_cut_short;      /* tasks answered with an error because the server ended */
    struct metrics metrics;
    struct access_log log;
    struct err file_error;                       /* of --metrics-file: said once */
    struct file_mark rendezvous_file, keys_file; /* that rendezvous.c wrote */
};

/* Sockets, keys, threads; on the socket from now on, as "loading". Errors of a bad start are in *e. */
int server_open(struct server *s, const struct server_setup *setup, struct err *e);

/* Waits for the I/O thread, which ends after the replicas' last reports, and for replies under way. Returns the exit
 * status: ERR_REQUEST when open requests were cut short. Safe on a zeroed struct. */
int server_close(struct server *s);

/* enter.c: who waits for a model enters it, is refused; who waited for its end hears of it. */
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
void server_returned(struct server *s, struct task *j, int worker);
void server_report(struct server *s, struct report *r, int replica);
void server_client_left(void *server, struct client *c);
void server_drain(struct server *s, double seconds);
/* A signal that this process has got, or (own: false) another rank, which may be the same one once more. */
void server_signal(struct server *s, enum signal_wish wish, bool own);
/* Answer all that is open with this error; the main thread is told to stop. */
void server_stop(struct server *s, enum protocol_code code, const char *why);
/* The task's life is over: names and counts are given back. */
void server_finish(struct server *s, struct task *j, const struct outcome *o);
void server_cancel(struct server *s, struct task *j, enum finish_reason why);
/* Does more than --max-client-backlog wait for this client to read? *error says so. */
bool server_too_slow(const struct server *s, const struct client *c, struct protocol_error *error);

void server_refuse(struct server *s, struct task *j); /* with its error */

/* feed.c: starts tasks that wait for their turn, as far as workers and replicas have room. */
void server_feed(struct server *s);
/* Ends tasks whose time limit has passed while they waited for a replica. */
void server_check_times(struct server *s);

/* admission.c. Functions that return int return 0, or -1 with the task's error. */
/* Can anything be generated, tokenized, told now? */
int server_check_state(const struct server *s, struct protocol_error *error);
/* The task takes so many bytes from now on, its results apart. */
void server_hold(struct server *s, struct task *j, size_t bytes);
/* All tasks may hold a gigabyte; those of one client half of it, or one message. */
int server_check_bytes(struct server *s, struct task *j);
/* The queue is full, as this tells. */
int server_busy(struct server *s, struct protocol_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A task without a name gets one, under which a cancellation finds it. */
int server_name(struct server *s, struct task *j);
/* A parsed `generate` gets its places and its name. */
int server_admit(struct server *s, struct task *j);
/* Its results, as task_prepare says, count beside messages. */
int server_reserve_results(struct server *s, struct task *j);
/* Name, places and bytes are given back. */
void server_unlist(struct server *s, struct task *j);
/* The task of this connection that generates under this name, or NULL. */
struct task *server_find(struct server *s, uint64_t asker, const char *name);
/* A client's replies must not reveal those of others: names and seeds are random. */
uint64_t server_random(void);

/* answer.c: each sends the one or last reply of a task, if its client is there; they take text over. */
void answer_text(struct server *s, struct task *j, char *text, size_t bytes);
void answer_error(struct server *s, struct task *j, const struct protocol_error *error);
/* A task that the main thread has given back; what came of it is in *o. */
void answer_generate(struct server *s, struct task *j, struct outcome *o);
void answer_delta(struct server *s, const struct delta *p);
void answer_health(struct server *s, struct task *j);
void answer_metrics(struct server *s, struct task *j);
void answer_models(struct server *s, struct task *j);
/* To load, unload, pin: the model's state now. */
void answer_model(struct server *s, struct task *j, int model);

#endif
