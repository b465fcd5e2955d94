/* rank/watch.c - see watch.h. */
#include "rank/watch.h"
#include "base/clock.h"
#include "rank/comm.h"
#include "rank/fatal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICKS_OF_TIMEOUT 10   /* looks during a deadline, */
#define LONGEST_TICK     1.0  /* s; but at least one a second, */
#define SHORTEST_TICK    0.02 /* s; and not more than 50 */
#define PATIENCE         2.0  /* s that the host of the culprit gets to speak first */

/* A rank, as the others of its host see it. Written by that rank alone, but for `spoken`. */
struct watch_slot {
    _Atomic int32_t rank, leader, phase;
    _Atomic uint64_t step, progress, beats;
    _Atomic int32_t spoken; /* in the first slot: somebody of this host is ending the job */
    char pad[64 - 4 * 5 - 8 * 3];
};
_Static_assert(sizeof(struct watch_slot) == 64, "a cache line of its own");

struct watch {
    struct comm *comm; /* borrowed */
    double timeout, tick;
    int n, self; /* ranks of this host, and which of them this one is */
    bool other_hosts;
    MPI_Win window;
    struct watch_slot *slot; /* [n] */
    struct watch_view *view; /* [n] the thread's */
    struct seen {
        uint64_t progress, beats;
    } * seen; /* [n] the thread's */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of `closing` */
    pthread_cond_t wake;
    bool closing;
};

void watch_phase(struct watch *w, enum watch_phase phase)
{
    if (w == NULL)
        return;
    struct watch_slot *mine = &w->slot[w->self];
    atomic_store_explicit(&mine->phase, (int32_t)phase, memory_order_relaxed);
    atomic_fetch_add_explicit(&mine->progress, 1, memory_order_release);
}

void watch_enter(struct watch *w, enum watch_phase phase, uint64_t step)
{
    if (w == NULL)
        return;
    atomic_store_explicit(&w->slot[w->self].step, step, memory_order_relaxed);
    watch_phase(w, phase);
}

/* ---- judging ---- */

/* Has this rank a deadline, and has it passed? */
static bool is_late(const struct watch_view *view, int n, int self, double timeout)
{
    const struct watch_view *me = &view[self];
    if (me->phase == WATCH_OFF || me->phase == WATCH_COORDINATOR || me->stalled < timeout)
        return false;
    if (me->phase != WATCH_PLAN || me->rank == me->leader)
        return true;
    for (int i = 0; i < n;
         i++) /* it may take its time, but it must be alive; unseen, it is for its own host to judge */
        if (view[i].rank == me->leader)
            return view[i].silent >= timeout;
    return false;
}

int watch_judge(const struct watch_view *view, int n, int self, double timeout)
{
    int most_silent = self;
    if (!is_late(view, n, self, timeout))
        return -1;
    for (int i = 0; i < n; i++)
        if (i != self && view[i].leader == view[self].leader && view[i].silent > view[most_silent].silent)
            most_silent = i;
    if (view[most_silent].silent >= timeout / 2)
        return most_silent;
    for (int i = 0; i < n; i++) /* who still works while others wait for it */
        if (view[i].leader == view[self].leader && view[i].phase == WATCH_STEP && view[i].stalled >= timeout / 2)
            return i;
    return self;
}

static const char *phase_words(enum watch_phase phase)
{
    static const char *const words[] = {"outside of steps", "between steps",           "waiting for the plan",
                                        "computing",        "waiting in a collective", "waiting for the device"};
    return words[phase];
}

void watch_say(char *text, size_t bytes, const struct watch_view *culprit, bool is_self, double timeout)
{
    char what[160];
    if (culprit->silent >= timeout / 2)
        (void)snprintf(what, sizeof what, "no sign of life for %.0f s, it was %s", culprit->silent,
                       phase_words(culprit->phase));
    else if (is_self && culprit->phase != WATCH_STEP)
        (void)snprintf(what, sizeof what, "%s, and no rank of this host is seen to be at fault",
                       phase_words(culprit->phase));
    else
        (void)snprintf(what, sizeof what, "still %s", phase_words(culprit->phase));
    (void)snprintf(text, bytes, "step %llu has made no progress for %.4g s (--step-timeout): %s",
                   (unsigned long long)culprit->step, timeout, what);
}

/* ---- the thread ---- */

/* False: the watch is being closed. */
static bool nap(struct watch *w, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    long ns = until.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
    until.tv_sec += (time_t)seconds + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->closing && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
        ;
    bool closing = w->closing;
    (void)pthread_mutex_unlock(&w->lock);
    return !closing;
}

/* `passed`: seconds since the look before. */
static void look(struct watch *w, double passed)
{
    atomic_fetch_add(&w->slot[w->self].beats, 1);
    for (int i = 0; i < w->n; i++) {
        struct watch_slot *slot = &w->slot[i];
        struct watch_view *view = &w->view[i];
        uint64_t progress = atomic_load_explicit(&slot->progress, memory_order_acquire),
                 beats = atomic_load(&slot->beats);
        view->rank = atomic_load(&slot->rank);
        view->leader = atomic_load(&slot->leader);
        view->phase = (enum watch_phase)atomic_load_explicit(&slot->phase, memory_order_relaxed);
        view->step = atomic_load_explicit(&slot->step, memory_order_relaxed);
        view->stalled = progress == w->seen[i].progress ? view->stalled + passed : 0;
        view->silent = beats == w->seen[i].beats ? view->silent + passed : 0;
        w->seen[i] = (struct seen){progress, beats};
    }
}

/* The first of this host to come here ends the job; the others wait for that, but not for ever. */
static void claim(struct watch *w)
{
    if (atomic_exchange(&w->slot[0].spoken, 1) != 0)
        (void)nap(w, 5 * PATIENCE);
}

static void end_late_job(struct watch *w, int culprit)
{
    struct err e = {0};
    char text[300];
    const struct watch_view *view = &w->view[culprit];
    bool is_self = culprit == w->self;
    /* Whoever is to blame is on another host: that one knows more. */
    if (is_self && view->phase != WATCH_STEP && w->other_hosts && !nap(w, PATIENCE))
        return;
    watch_say(text, sizeof text, view, is_self, w->timeout);
    claim(w);
    ERR(&e, w->comm->n_ranks == 1 && view->phase == WATCH_DEVICE ? ERR_DEVICE : ERR_COMM, "%s", text);
    fatal_for(view->rank, &e);
}

static void end_failed_job(struct watch *w, const struct err *e)
{
    if (!nap(w, PATIENCE)) /* a failure elsewhere: its origin speaks first */
        return;
    claim(w);
    fatal_for(w->view[w->self].rank, e);
}

static void *look_on(void *context)
{
    struct watch *w = context;
    double before = seconds_now();
    while (nap(w, w->tick)) {
        struct err e = {0};
        double now = seconds_now(), passed = now - before;
        before = now;
        look(w, passed < 3 * w->tick ? passed : 3 * w->tick); /* more: all of the job was stopped */
        if (w->view[w->self].phase == WATCH_OFF)
            continue;
        int culprit = watch_judge(w->view, w->n, w->self, w->timeout);
        if (culprit >= 0)
            end_late_job(w, culprit);
        else if (comm_check(w->comm, &e) != 0)
            end_failed_job(w, &e);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static void open_slots(struct watch *w, const struct world *world)
{
    MPI_Aint bytes = (MPI_Aint)(world->node_rank == 0 ? (size_t)w->n * sizeof *w->slot : 0);
    int unit = 0;
    void *own = NULL;
    MPI_CHECK(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, world->node, &own, &w->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, w->window));
    MPI_CHECK(MPI_Win_shared_query(w->window, 0, &bytes, &unit, (void *)&w->slot));
    memset(&w->slot[w->self], 0, sizeof *w->slot);
    atomic_store(&w->slot[w->self].rank, world->job_rank);
    atomic_store(&w->slot[w->self].leader, world->job_rank - world->rank);
    MPI_CHECK(MPI_Barrier(world->node));
}

/* Signals are the main thread's. */
static int start_thread(struct watch *w)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, look_on, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int watch_open(struct watch **watch, const struct world *world, struct comm *comm, double timeout, struct err *e)
{
    *watch = NULL;
    if (timeout <= 0)
        return 0;
    struct watch *w = err_calloc(e, 1, sizeof *w, "watch");
    if (w != NULL) {
        w->view = err_calloc(e, (size_t)world->n_node_ranks, sizeof *w->view, "watch");
        w->seen = err_calloc(e, (size_t)world->n_node_ranks, sizeof *w->seen, "watch");
    }
    fatal_agree((struct world *)world, e);
    w->comm = comm;
    w->timeout = timeout;
    w->tick = timeout / TICKS_OF_TIMEOUT;
    w->tick = w->tick > LONGEST_TICK ? LONGEST_TICK : w->tick < SHORTEST_TICK ? SHORTEST_TICK : w->tick;
    w->n = world->n_node_ranks;
    w->self = world->node_rank;
    w->other_hosts = !world->on_one_host;
    open_slots(w, world);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&w->lock, NULL);
    *watch = w;
    w->running = start_thread(w) == 0;
    return w->running ? 0 : ERR(e, ERR_MEMORY, "no thread for --step-timeout can be started");
}

void watch_close(struct watch **watch)
{
    struct watch *w = *watch;
    if (w == NULL)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->closing = true;
    (void)pthread_cond_signal(&w->wake);
    (void)pthread_mutex_unlock(&w->lock);
    if (w->running)
        (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->wake);
    (void)pthread_mutex_destroy(&w->lock);
    MPI_CHECK(MPI_Win_unlock_all(w->window));
    MPI_CHECK(MPI_Win_free(&w->window));
    free(w->view);
    free(w->seen);
    free(w);
    *watch = NULL;
}
