/* rank/watch/deadline.c - see deadline.h. */
#include "rank/watch/deadline.h"
#include "base/clock.h"
#include "rank/world/fatal.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK     0.2 /* s between two signs of life */
#define PATIENCE 2.0 /* s for the culprit's host to report first, and for the reporting rank */

int deadline_judge(const struct deadline_view *view, int n, int self, double seconds)
{
    int silent = self, behind = self;
    for (int i = 0; i < n; i++) {
        silent = view[i].silent > view[silent].silent ? i : silent;
        behind = view[i].part < view[behind].part ? i : behind;
    }
    return silent != self && view[silent].silent >= seconds / 2 ? silent : behind;
}

/* With the lock held. False: the deadline is being closed. */
static bool nap(struct deadline *d, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    long ns = until.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
    until.tv_sec += (time_t)seconds + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (!d->closing && pthread_cond_timedwait(&d->wake, &d->lock, &until) == 0)
        ;
    return !d->closing;
}

static void look(struct deadline *d, double passed)
{
    atomic_fetch_add(&d->mark[d->self].beats, 1);
    for (int i = 0; i < d->n; i++) {
        int32_t beats = atomic_load(&d->mark[i].beats);
        d->view[i] = (struct deadline_view){atomic_load(&d->mark[i].rank), atomic_load(&d->mark[i].part),
                                            beats == d->seen[i] ? d->view[i].silent + passed : 0};
        d->seen[i] = beats;
    }
}

static void end_job(struct deadline *d)
{
    struct err e = {0};
    int culprit = deadline_judge(d->view, d->n, d->self, d->seconds);
    const struct deadline_view *v = &d->view[culprit];
    const char *how = v->silent >= d->seconds / 2 ? "no sign of life from this rank"
                      : culprit != d->self        ? "the other ranks wait for this one"
                                                  : "a rank, a device or the link between them hangs";
    /* The culprit is not visible from here: a rank that sees more reports first. One rank of each host reports. */
    if ((culprit == d->self && d->other_hosts && !nap(d, PATIENCE)) ||
        (atomic_exchange(&d->mark[0].spoken, 1) != 0 && !nap(d, 5 * PATIENCE)))
        return;
    ERR(&e, ERR_COMM, "%s: %s has not ended within %g s: %s", d->what, d->part[v->part], d->seconds, how);
    fatal_for(v->rank, NULL, 0, false, &e);
}

static void *look_on(void *context)
{
    struct deadline *d = context;
    (void)pthread_mutex_lock(&d->lock);
    for (double last = seconds_now(), now; nap(d, TICK); last = now) {
        now = seconds_now();
        /* If this process was stopped itself, the others' silence and the elapsed time mean nothing. */
        double passed = now - last < 10 * TICK ? now - last : 0;
        look(d, passed);
        d->left -= passed;
        if (d->left <= 0)
            end_job(d);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void stop_thread(struct deadline *d)
{
    if (!d->running)
        return;
    (void)pthread_mutex_lock(&d->lock);
    d->closing = true;
    (void)pthread_cond_signal(&d->wake);
    (void)pthread_mutex_unlock(&d->lock);
    (void)pthread_join(d->thread, NULL);
    d->running = false;
}

/* Global, for rank/world/fatal.c, which has no pointer to it. */
static struct deadline *current;

static bool leave(bool all)
{
    if (!all)
        return atomic_exchange(&current->mark[0].spoken, 1) == 0;
    stop_thread(current); /* MPI_Finalize unmaps the memory that it reads */
    return true;
}

static void open_marks(struct deadline *d, const struct world *w)
{
    MPI_Aint bytes = (MPI_Aint)(w->node_rank == 0 ? (size_t)d->n * sizeof *d->mark : 0);
    int unit = 0;
    void *own = NULL;
    MPI_CHECK(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, w->node, &own, &d->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, d->window));
    MPI_CHECK(MPI_Win_shared_query(d->window, 0, &bytes, &unit, (void *)&d->mark));
    memset(&d->mark[d->self], 0, sizeof *d->mark);
    atomic_store(&d->mark[d->self].rank, w->rank);
    MPI_CHECK(MPI_Barrier(w->node));
}

/* The main thread handles signals. */
static int start_thread(struct deadline *d)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&d->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&d->thread, NULL, look_on, d);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int deadline_open(struct deadline *d, const struct world *w, const char *what, const char *const *part, double seconds,
                  struct err *e)
{
    memset(d, 0, sizeof *d);
    d->what = what;
    d->part = part;
    d->seconds = seconds;
    d->left = INFINITY;
    d->n = w->n_node_ranks;
    d->self = w->node_rank;
    d->other_hosts = w->n_node_ranks < w->n_ranks;
    d->view = err_calloc(e, (size_t)d->n, sizeof *d->view, what);
    d->seen = err_calloc(e, (size_t)d->n, sizeof *d->seen, what);
    fatal_agree((struct world *)w, e);
    open_marks(d, w);
    current = d;
    fatal_herald(leave);
    d->running = start_thread(d) == 0;
    return d->running ? 0 : ERR(e, ERR_MEMORY, "%s: cannot start the deadline thread", what);
}

void deadline_close(struct deadline *d)
{
    fatal_herald(NULL);
    stop_thread(d);
    (void)pthread_cond_destroy(&d->wake);
    (void)pthread_mutex_destroy(&d->lock);
    MPI_CHECK(MPI_Win_unlock_all(d->window));
    MPI_CHECK(MPI_Win_free(&d->window));
    free(d->view);
    free(d->seen);
}

void deadline_part(struct deadline *d, int i)
{
    (void)pthread_mutex_lock(&d->lock);
    atomic_store(&d->mark[d->self].part, i);
    d->left = d->seconds + TICK; /* the current tick is subtracted as a whole */
    (void)pthread_mutex_unlock(&d->lock);
}
