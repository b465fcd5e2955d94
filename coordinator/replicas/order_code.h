/* coordinator/replicas/order_code.h - orders (coordinator/tasks/steps.h) as bytes, on their way from rank 0 to the
 * leader of a replica. Of a task only the scheduler's data are sent: token ids, rules, search, priority, remaining
 * time; there it becomes another struct task with the same number. */
#ifndef REPLICAS_ORDER_CODE_H
#define REPLICAS_ORDER_CODE_H

#include "coordinator/replicas/wire.h"
#include "coordinator/tasks/steps.h"

/* The second byte of every message on a link; the first one is the slot of the model in its set. */
enum link_kind {
    LINK_HELLO, /* a leader has connected: followed by its host's name, an array of bytes; rank 0's answer has none */
    LINK_BEAT,  /* a sign of life, both ways */
    LINK_SUBMIT,
    LINK_CANCEL,
    LINK_WITHDRAW,
    LINK_STOP,
    LINK_REPORT,      /* see report_code.h */
    LINK_MODEL_ORDER, /* these two: see model_code.h */
    LINK_MODEL_WORD
};

/* now: the time on the clock of the task's times. */
void order_encode(struct wire_out *w, const struct order *o, double now);

struct order_rules { /* limits for orders */
    int vocab, max_len;
};

/* Decode a message of LINK_SUBMIT, LINK_CANCEL, LINK_WITHDRAW or LINK_STOP. malloc'ed, with a new task if there is one;
 * NULL and *e if it does not fit. Any thread. */
struct order *order_decode(const void *data, size_t bytes, const struct order_rules *rules, double now, struct err *e);

/* With its task. */
void order_free(struct order *o);

#endif
