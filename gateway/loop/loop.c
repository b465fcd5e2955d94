/* gateway/loop/loop.c - see loop.h. */
#include "gateway/loop/loop.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ROUND_EVENTS 256

int loop_open(struct loop *l, struct err *e)
{
    *l = (struct loop){.epoll = epoll_create1(EPOLL_CLOEXEC), .now = seconds_now()};
    l->last_step = &l->steps;
    return l->epoll >= 0 ? 0 : ERR(e, ERR_IO, "epoll: %s", strerror(errno));
}

static void free_buried(struct loop *l)
{
    for (size_t i = 0; i < l->n_buried; i++)
        free(l->buried[i]);
    l->n_buried = 0;
}

void loop_close(struct loop *l)
{
    free_buried(l);
    free(l->buried);
    if (l->epoll > 0)
        (void)close(l->epoll);
    *l = (struct loop){0};
}

int loop_watch(struct loop *l, struct fd_watch *w, uint32_t events, struct err *e)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    w->events = events;
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, w->fd, &event) == 0
               ? 0
               : ERR(e, ERR_IO, "epoll does not take a descriptor: %s", strerror(errno));
}

void loop_change(struct loop *l, struct fd_watch *w, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    if (w->fd < 0 || w->events == events)
        return;
    w->events = events;
    (void)epoll_ctl(l->epoll, EPOLL_CTL_MOD, w->fd, &event);
}

void loop_unwatch(struct loop *l, struct fd_watch *w)
{
    if (w->fd >= 0)
        (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
}

/* Without memory for the list the object leaks, which is safe. */
void loop_bury(struct loop *l, void *memory)
{
    if (l->n_buried == l->capacity) {
        size_t wanted = l->capacity > 0 ? 2 * l->capacity : 64;
        void **buried = realloc(l->buried, wanted * sizeof *buried);
        if (buried == NULL)
            return;
        l->buried = buried;
        l->capacity = wanted;
    }
    l->buried[l->n_buried++] = memory;
}

void loop_add_list(struct loop *l, struct due_list *d)
{
    d->end.next = d->end.previous = &d->end;
    d->next = l->lists;
    l->lists = d;
}

void loop_add_step(struct loop *l, struct loop_step *s)
{
    s->next = NULL;
    *l->last_step = s;
    l->last_step = &s->next;
}

void due_set(struct loop *l, struct due_list *list, struct due *d)
{
    due_unset(d);
    if (list->seconds <= 0)
        return;
    d->at = l->now + list->seconds;
    d->previous = list->end.previous;
    d->next = &list->end;
    d->previous->next = d;
    list->end.previous = d;
}

void due_unset(struct due *d)
{
    if (d->next == NULL)
        return;
    d->previous->next = d->next;
    d->next->previous = d->previous;
    d->next = d->previous = NULL;
}

/* Seconds until the earliest timeout of all lists, at most `most`. */
static double time_left(const struct loop *l, double most)
{
    for (const struct due_list *d = l->lists; d != NULL; d = d->next)
        if (d->end.next != &d->end)
            most = fmin(most, d->end.next->at - l->now);
    return fmax(most, 0);
}

static void call_due(struct loop *l)
{
    for (struct due_list *d = l->lists; d != NULL; d = d->next)
        while (d->end.next != &d->end && d->end.next->at <= l->now) {
            struct due *first = d->end.next;
            due_unset(first);
            d->come(first);
        }
}

/* Runs all steps; if a step wakes an earlier one, the loop does not sleep. */
static bool run_steps(struct loop *l)
{
    bool more = false;
    for (struct loop_step *s = l->steps; s != NULL; s = s->next)
        more = s->run(s) || more;
    return more;
}

void loop_round(struct loop *l, double seconds)
{
    struct epoll_event event[ROUND_EVENTS];
    bool more = run_steps(l);
    l->now = seconds_now();
    double left = more ? 0 : time_left(l, seconds);
    int n = epoll_wait(l->epoll, event, ROUND_EVENTS, (int)ceil(left * 1000));
    l->now = seconds_now();
    for (int i = 0; i < n; i++) {
        struct fd_watch *w = event[i].data.ptr;
        if (w->fd >= 0)
            w->ready(w, event[i].events);
    }
    call_due(l);
    free_buried(l);
}
