/* coordinator/tasks/model_orders.h - what the I/O thread and the main thread tell each other of models that come and
 * go, by a mailbox of its own. Who takes a message frees it. */
#ifndef TASKS_MODEL_ORDERS_H
#define TASKS_MODEL_ORDERS_H

#include "base/err.h"
#include "base/signals.h"
#include "plan/load_phases.h"

#include <stdint.h>

/* I/O thread to main thread. */
struct model_order {
    enum { MODEL_LOAD, MODEL_DROP, MODEL_STOP } kind;
    int slot;     /* number that plans have for it */
    void *handle; /* LOAD: of the model that is opened; borrowed until it has failed or gone */
};

/* Main thread to I/O thread. */
struct model_word {
    enum {
        MODEL_RUNNING, /* the loop has begun */
        MODEL_READY,
        MODEL_FAILED, /* to load; nothing of it is held */
        MODEL_GONE,
        MODEL_SIGNAL, /* another rank has got one */
        MODEL_ENDED   /* no more words, nor reports */
    } kind;
    int slot;
    struct err why;            /* FAILED */
    int64_t freed;             /* GONE: bytes that the device has more of, by its own number */
    enum signal_wish wish;     /* SIGNAL */
    struct load_phases phases; /* READY: of the load, GONE: since then */
};

#endif
