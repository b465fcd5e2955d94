/* coordinator/tasks/model_orders.h - messages between the I/O thread and the main thread of a set of ranks about
 * loading and unloading models, over a separate mailbox. The thread that takes a message frees it. */
#ifndef TASKS_MODEL_ORDERS_H
#define TASKS_MODEL_ORDERS_H

#include "base/err.h"
#include "base/signals.h"
#include "plan/load_phases.h"

#include <stdint.h>

#define MODEL_NAME_BYTES 128  /* of a model's name, and */
#define MODEL_DIR_BYTES  4096 /* of its folder's path, with the NUL */

/* I/O thread to main thread. */
struct model_order {
    enum model_order_kind { MODEL_LOAD, MODEL_DROP, MODEL_STOP } kind;
    int slot;     /* number that plans have for it */
    void *handle; /* LOAD: of the opened model; borrowed until it has failed or gone. NULL: the receiver opens it */
    /* LOAD of a model that another process opens. */
    char name[MODEL_NAME_BYTES], dir[MODEL_DIR_BYTES];
    int vocab;
};

/* Main thread to I/O thread. */
struct model_word {
    enum model_word_kind {
        MODEL_RUNNING, /* the loop has begun */
        MODEL_READY,
        MODEL_FAILED, /* loading failed; nothing is held */
        MODEL_GONE,
        MODEL_SIGNAL, /* another rank has received a signal */
        MODEL_ENDED   /* no more messages or reports */
    } kind;
    int slot;
    struct err why;             /* FAILED */
    int64_t free_before, freed; /* GONE: free bytes before, and their growth, as the device reports them */
    enum signal_wish wish;      /* SIGNAL */
    struct load_phases phases;  /* READY: of the load, GONE: since then */
};

#endif
