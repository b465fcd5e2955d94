/* coordinator/batch/held.h - lines that wait for their models, as texts, by model and in the order of the input. The
 * further ahead a batch has read, the more lines of a model run before another one takes its place. Pure. */
#ifndef BATCH_HELD_H
#define BATCH_HELD_H

#include "coordinator/batch/line.h"

struct held {
    struct held_queue {
        struct line *first, *last;
        int n_out; /* lines that have left and are under way */
    } * queue;     /* [n_models]; lines are linked by `next` */
    int n_models;
    int n;        /* lines of all */
    size_t bytes; /* about what they take */
};

int held_open(struct held *h, int n_models, struct err *e);
/* The lines that are left are closed. Safe on a zeroed struct. */
void held_close(struct held *h);

/* Behind all lines of its model, line.model. */
void held_put(struct held *h, struct line *l);
/* The first line of the model, which leaves; NULL: there is none. */
struct line *held_take(struct held *h, int model);
/* The life of one that may have left is over. */
void held_forget(struct held *h, struct line *l);

#endif
