/* coordinator/models/opener.h - a thread that opens models: headers, tokenizer, template. That takes tenths of a
 * second, too long for the I/O thread. One at a time, in order. */
#ifndef MODELS_OPENER_H
#define MODELS_OPENER_H

#include "coordinator/models/warmup.h"

#include <pthread.h>
#include <stdbool.h>

/* A model that is opened. */
struct opened {
    const struct served *served; /* belongs to the handle */
    const char *dir;             /* its folder; of the handle */
    int64_t bytes;               /* bytes that it takes when loaded, on the rank that holds most */
    int units;                   /* units of KV memory that it needs at least */
    double unpacking;            /* seconds of unpacking its archive */
    const struct warmup *warmup; /* [n_warmups] requests before it counts as loaded; of the handle */
    int n_warmups;
    struct json_t *made_of; /* the identity of its files; owned; NULL: not asked for */
    void *handle;
};

/* Implemented where the models' files are known: commands/models/. */
struct models_source {
    void *context;
    int (*open)(void *context, int model, struct opened *o, struct err *e); /* the opener's thread */
    void (*close)(void *context, void *handle);                             /* any thread, when it is loaded no more */
};

/* A model to open, returned with the result. */
struct opening {
    int model, set; /* set: of ranks, that it is to be loaded on */
    struct opened opened;
    struct err why; /* it could not be */
};

struct opener {
    struct models_source source;
    void *end[2]; /* mailbox: the I/O thread's, this thread's */
    pthread_t thread;
    bool running;
};

int opener_open(struct opener *o, void *zmq_context, const struct models_source *source, struct err *e);
/* Waits for the one being opened. Safe on a zeroed struct. */
void opener_close(struct opener *o);

/* Queue this model to be opened; false: out of memory. */
bool opener_ask(struct opener *o, int model, int set);
/* The next finished one, which the caller frees; NULL: none. */
struct opening *opener_take(struct opener *o);

#endif
