/* coordinator/tasks/task.h - a request (a message of a server's client, a line of a batch) on its way through the
 * threads, and the structs that they exchange. One thread at a time owns a task: the I/O thread (the server's, or the
 * batch's), a worker, or (while it generates) the main thread. */
#ifndef TASKS_TASK_H
#define TASKS_TASK_H

#include "coordinator/schedule/choices.h"
#include "coordinator/tasks/served.h"

#include <stdatomic.h>
#include <zmq.h>

struct client;
struct party;

/* The main thread's state of a choice while it is generated. */
struct choice_progress {
    size_t text_sent, tokens_sent; /* sent to the I/O thread in deltas */
    double last_token;             /* when; 0: none yet */
};

/* A text escaped for JSON. */
struct characters {
    char *text; /* malloc'ed */
    size_t bytes;
};

/* The I/O thread's notes on a task, which no other thread reads, whoever owns the task. */
struct ticket {
    struct client *client; /* NULL: gone, nothing is to be sent */
    struct party *party;   /* of the client */
    struct task *previous, *next;
    struct protocol_error verdict; /* the reason of its cancellation; becomes its error when it returns */
    bool submitted, in_replica;    /* handed to a replica, and not returned yet */
    int replica;                   /* to which one */
    uint64_t cancel_step; /* 1 + the steps that its replica had reported when it was cancelled; 0: not cancelled */
    bool named;           /* request_id is in the server's list */
    bool waits;           /* in a struct turns, linked by these two */
    int waits_for;        /* enum turn_kind */
    struct task *turn_previous, *turn_next;
    double queued;     /* when it began to wait for a replica; 0: it has not */
    int n_sequences;   /* counted by the server */
    int model;         /* number of its model; -1: none */
    bool entered;      /* it uses that model, which stays loaded meanwhile, */
    int set;           /* on this set of ranks */
    bool awaits_model; /* it waits until that model is loaded */
    bool warms;        /* without a client: it warms the model up (coordinator/models/warmup.h) */
    bool answered;     /* its last reply has been sent: results that return are dropped */
    bool writes;       /* finished, at a worker which writes its large reply */
    bool unread;       /* being parsed by the worker for large messages: only its client is known */
    bool *echoed;      /* [n_prompts * n_choices] of a stream with echo: the prompt's text has been sent */
    uint64_t n_events; /* of a stream */
};

/* The main thread's notes on a task while it generates. */
struct work {
    struct choice_progress *progress; /* [n_prompts * n_choices] */
    int n_open;                       /* prompts whose choices the scheduler refers to */
    struct task *previous, *next;
};

struct task {
    uint64_t number; /* from 1; names the task to a thread that does not own it */
    uint64_t asker;  /* a server's: number of the connection that asked. Names of requests are each connection's own */
    uint64_t party;  /* number of the one on whose behalf it asked, of that connection's; 0: none */
    double arrived;
    size_t message_bytes;  /* as it came */
    size_t held_bytes;     /* approximate memory of the task and its message; counted by the server */
    void *owner;           /* of a batch: its line; the batch thread's */
    atomic_bool abandoned; /* its client is gone: a worker need not begin */

    /* The message, first as received, then parsed. */
    zmq_msg_t body;
    bool parsed, checked, delimiter; /* parsed: it is valid JSON; checked: its fields are valid */
    const struct served *served;     /* borrowed: its model; NULL: not known yet, or it needs none */
    struct protocol_message message;
    struct protocol_error error; /* code 0: none */

    /* A worker's results. */
    struct token_list *ids; /* [n_ids] of the prompts */
    int n_ids;
    struct token_list prediction; /* of every answer; empty: none */
    char *reply;                  /* whole, to tokenize and detokenize; malloc'ed */
    size_t reply_bytes;
    struct characters *echo; /* [n_ids] of a stream with echo: the escaped prompts with which first events begin */
    int max_len; /* for the worker: limit of prompt and output tokens together, 0: the model is being loaded */

    /* generate */
    char request_id[PROTOCOL_MAX_ID_BYTES + 1];
    uint64_t seed;                /* of the first candidate */
    struct calls_way calls;       /* how an answer is parsed, if calls_any */
    struct calls_reader **reader; /* [n_prompts * n_choices] of a stream of such; the I/O thread's */
    struct form *form;            /* NULL: any text will do */
    struct request_rules *rules;  /* [n_prompts] with max_tokens and seed filled in */
    struct choices *choices;      /* [n_prompts] one a prompt */
    int n_prompts, n_choices;     /* n_choices: of each prompt */
    int64_t prompt_tokens;        /* of all prompts together */
    size_t result_bytes;          /* that its results may take; task_prepare */

    struct ticket ticket;
    struct work work;
};

/* Takes over the body (NULL: none). NULL: out of memory, the body is closed. */
struct task *task_open(uint64_t number, zmq_msg_t *body, bool delimiter, double now);
void task_close(struct task *task);

/* Parse the body and free it; afterwards op and model of the message are known. On failure task->error. Any
 * thread. */
void task_read(struct task *task);
/* Finds its request_id in the body, if it is in front there, for the refusal of a message that is not parsed. */
void task_find_id(struct task *task);
/* Check its fields, against the limits of its model, if it has one. On failure task->error. Any thread. */
void task_check(struct task *task);

/* Make the choices for the encoded prompts of a generate. max_len: limit of prompt and output tokens together.
 * max_reply: limit of its reply, checked before anything is computed. On failure task->error. */
int task_prepare(struct task *task, int max_len, int64_t max_reply, uint64_t seed);

/* The approximate size of the reply to a finished task, or of a stream's last event. */
size_t task_reply_bytes(const struct task *task);

/* The bytes that prompt i takes where it is repeated: an estimate if it came as ids. */
int64_t task_echo_bytes(const struct task *task, int i);

/* The bytes of a text as a JSON string, without its quotes. */
int64_t task_text_bytes(const char *text, size_t bytes);

/* Whether a choice that stopped, and not at a text, ended because its form was complete. */
bool task_is_whole(const struct task *task, int32_t last_token);

/* The prefix of its calls' ids, which must differ from those of other tasks, including earlier servers' tasks. */
uint64_t task_salt(const struct task *task);

/* The stop text of this number, counted from 1; NULL: 0, none. */
const char *task_stop_text(const struct task *task, int number);

/* Main thread to I/O thread: a choice of a stream has grown. */
struct delta {
    struct task *task;
    int prompt_index, choice;
    char *text;               /* [bytes] */
    int32_t *id;              /* [n_ids] */
    struct sampled *logprobs; /* [n_ids] or NULL */
    struct err *error;        /* FINISH_ERROR: why */
    size_t bytes, n_ids;
    enum finish_reason finish; /* the choice ends with this delta; FINISH_NONE: it does not */
    int stop_text;             /* 1 + the number of the stop text that ended it; 0: none did */
    struct delta *next;
};
void delta_free(struct delta *p);

#endif
