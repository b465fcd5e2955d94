/* gateway/loop/loop.h - the gateway's one event loop: descriptors under epoll, timeouts, and steps that run after
 * every round of events. One thread. */
#ifndef LOOP_LOOP_H
#define LOOP_LOOP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A watched descriptor. Part of a larger struct. */
struct fd_watch {
    int fd;          /* -1: not watched */
    uint32_t events; /* of epoll */
    void (*ready)(struct fd_watch *w, uint32_t events);
};

/* A timeout `seconds` after it was set, the same for all members of a list: so the list stays sorted. */
struct due {
    struct due *next, *previous; /* NULL: not set */
    double at;
};

struct due_list {
    double seconds; /* 0: never */
    void (*come)(struct due *d);
    struct due end;
    struct due_list *next;
};

/* Run after every round. true: there is more to do, do not sleep. */
struct loop_step {
    bool (*run)(struct loop_step *s);
    struct loop_step *next;
};

struct loop {
    int epoll;
    double now; /* seconds_now at the start of this round */
    struct due_list *lists;
    struct loop_step *steps, **last_step;
    void **buried; /* [n_buried], freed at the end of the round */
    size_t n_buried, capacity;
};

int loop_open(struct loop *l, struct err *e);
void loop_close(struct loop *l);

int loop_watch(struct loop *l, struct fd_watch *w, uint32_t events, struct err *e);
void loop_change(struct loop *l, struct fd_watch *w, uint32_t events);

/* The descriptor stays open. w may be freed by loop_bury at once. */
void loop_unwatch(struct loop *l, struct fd_watch *w);

/* Frees it when it can no longer be referenced. */
void loop_bury(struct loop *l, void *memory);

void loop_add_list(struct loop *l, struct due_list *d);
void loop_add_step(struct loop *l, struct loop_step *s);

/* Sets or restarts the timeout. */
void due_set(struct loop *l, struct due_list *list, struct due *d);
void due_unset(struct due *d);

/* Waits for events, at most `seconds`, and handles them. */
void loop_round(struct loop *l, double seconds);

#endif
