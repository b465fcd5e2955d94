/* coordinator/tasks/lanes.h - the main thread's part for several models: each has steps (coordinator/tasks/steps.h)
 * of its own, which alternate. The model whose sequences have received the fewest tokens since it was last idle is
 * next, so all get the same number of tokens, whatever their steps take. One model is one lane. */
#ifndef TASKS_LANES_H
#define TASKS_LANES_H

#include "coordinator/schedule/units.h"
#include "coordinator/tasks/steps.h"

struct lanes {
    int n;
    struct lane {
        struct steps steps;
        bool open, tried, shares;
        double served;    /* tokens */
    } * lane;             /* [n], by the model's number in plans */
    double clock;         /* tokens served of the lane that had the last step */
    struct units units;   /* of KV memory that lanes share; none: each has its own */
    void *control;        /* borrowed: a mailbox that also ends a sleep; NULL: none */
    zmq_pollitem_t *item; /* [n + 1] */
};

/* None is open. */
int lanes_open(struct lanes *l, int n, void *control, struct err *e);
/* All are ended. Safe on a zeroed struct. */
void lanes_close(struct lanes *l);

/* Makes models share this many units of KV memory. The lanes must not move afterwards. */
int lanes_share(struct lanes *l, int n_units, struct err *e);

/* Add a loaded model, with a share of the units for each kind of blocks or (NULL) its own blocks; remove one when none
 * of its steps is under way: its open tasks return unfinished. */
int lanes_start(struct lanes *l, int i, void *mailbox, const struct scheduler_setup *setup,
                const struct unit_share *share, struct err *e);
void lanes_end(struct lanes *l, int i);

/* Like steps_next and steps_accept, for all lanes. hurry: other work is under way, so sleep only briefly. */
int lanes_next(struct lanes *l, struct plan *plan, bool hurry, struct err *e);
int lanes_accept(struct lanes *l, const struct step_result *result, struct err *e);
void lanes_masks(struct lanes *l, struct plan *plan);

/* Every lane's last plan. */
int lanes_stop(struct lanes *l, struct plan *plan, struct err *e);

/* Does any of them have work? */
bool lanes_busy(const struct lanes *l);

/* The first open one; NULL: none is. */
struct steps *lanes_first(struct lanes *l);

#endif
