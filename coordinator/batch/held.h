/* coordinator/batch/held.h - lines that wait for their models, as texts, by model and in the order of the input. The
 * further a batch has read ahead, the more lines of a model run before another one replaces it. Pure. */
#ifndef BATCH_HELD_H
#define BATCH_HELD_H

#include "coordinator/batch/line.h"

struct held {
    struct held_queue {
        struct line *first, *last;
        int n_out; /* lines that have been taken and are under way */
    } * queue;     /* [n_models]; lines are linked by `next` */
    int n_models;
    int n;        /* lines of all */
    size_t bytes; /* approximate memory of them */
};

int held_open(struct held *h, int n_models, struct err *e);
/* Closes the remaining lines. Safe on a zeroed struct. */
void held_close(struct held *h);

/* Appends a line after all lines of its model, line.model. */
void held_put(struct held *h, struct line *l);
/* Removes and returns the first line of the model; NULL: there is none. */
struct line *held_take(struct held *h, int model);
/* A line that may have been taken from here is closed. */
void held_forget(struct held *h, struct line *l);

#endif
