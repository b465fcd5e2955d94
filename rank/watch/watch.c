/* rank/watch/watch.c - see watch.h. */
#include "rank/watch/watch.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/signals.h"
#include "rank/watch/lifeline.h"
#include "rank/watch/verdict.h"
#include "rank/world/fatal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICKS_OF_TIMEOUT 10   /* checks per deadline, */
#define LONGEST_TICK     1.0  /* s; but at least one a second, */
#define SHORTEST_TICK    0.02 /* s; and not more than 50 */
#define PATIENCE         2.0  /* s for the culprit's host to report first */
#define LEAVE            5.0  /* s for a rank that has announced its end, or its launcher, to end the job */

#define HANDLER  0.005 /* s for a handler that a thread is about to run */
#define LAUNCHER 5.0   /* s for mpirun to end the job after the loss of a host */

/* A rank, as seen by the others of its host. Written only by that rank, except `spoken`. */
struct watch_slot {
    _Atomic int32_t rank, leader, activity, last; /* last: enum collective, the n_last-th of its kind in last_step */
    _Atomic uint64_t step, progress, beats, last_step;
    _Atomic uint32_t n_last;
    _Atomic int32_t spoken; /* in the first slot: a rank of this host is ending the job */
    char pad[64 - 4 * 6 - 8 * 4];
};
_Static_assert(sizeof(struct watch_slot) == 64, "a cache line of its own");

/* The identity of a rank, for messages. Flat: gathered. */
struct watch_identity {
    char host[64], device[72];
    int32_t slot; /* its index among the ranks of its host */
    int32_t node; /* the lowest rank of its host */
};

struct watch {
    struct observer observer;
    struct watch_question question;
    bool is_alone; /* no other rank works on its steps */
    struct lifeline *lifeline;
    struct watch_identity *identity; /* [n_ranks] */
    int rank, deputy;                /* deputy: reports when rank 0 cannot */
    double timeout, tick;
    int n, self; /* ranks of this host, and which of them this one is */
    bool other_hosts;
    MPI_Comm all; /* borrowed: all ranks */
    MPI_Win window;
    struct watch_slot *slot; /* [n] */
    struct watch_view *view; /* [n] the thread's */
    struct seen {
        uint64_t progress, beats;
    } * seen; /* [n] the thread's */
    pthread_t thread;
    bool running;
    atomic_bool closing;
};

/* Global, for signal handlers and rank/world/fatal.c, which have no pointer to it. */
static _Atomic(struct watch *) current;

static const int ending_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
#define N_ENDING_SIGNALS (sizeof ending_signals / sizeof ending_signals[0])
static atomic_bool ends_by_signal; /* leave_by_signal has been called */

static void begin_activity(struct observer *o, enum rank_activity activity)
{
    struct watch *w = (struct watch *)o;
    struct watch_slot *mine = &w->slot[w->self];
    atomic_store_explicit(&mine->activity, (int32_t)activity, memory_order_relaxed);
    atomic_fetch_add_explicit(&mine->progress, 1, memory_order_release);
}

static void begin_step(struct observer *o, enum rank_activity activity, uint64_t step)
{
    struct watch *w = (struct watch *)o;
    atomic_store_explicit(&w->slot[w->self].step, step, memory_order_relaxed);
    begin_activity(o, activity);
}

static void begin_collective(struct observer *o, enum collective kind)
{
    struct watch *w = (struct watch *)o;
    struct watch_slot *mine = &w->slot[w->self];
    uint64_t step = atomic_load_explicit(&mine->step, memory_order_relaxed);
    bool more = atomic_load_explicit(&mine->last_step, memory_order_relaxed) == step &&
                atomic_load_explicit(&mine->last, memory_order_relaxed) == (int32_t)kind;
    uint32_t n = more ? atomic_load_explicit(&mine->n_last, memory_order_relaxed) : 0;
    atomic_store_explicit(&mine->last_step, step, memory_order_relaxed);
    atomic_store_explicit(&mine->last, (int32_t)kind, memory_order_relaxed);
    atomic_store_explicit(&mine->n_last, n + 1, memory_order_relaxed);
    begin_activity(o, kind == COLLECTIVE_PLAN ? RANK_AWAITS_PLAN : RANK_IN_COLLECTIVE);
}

static const struct observer_hooks hooks = {
    .activity = begin_activity,
    .collective = begin_collective,
    .next_step = begin_step,
};

struct observer *watch_observer(struct watch *w)
{
    return w != NULL ? &w->observer : NULL;
}

/* ---- the thread ---- */

static void read_slot(const struct watch_slot *slot, struct lifeline_state *s)
{
    s->activity = atomic_load_explicit(&slot->activity, memory_order_relaxed);
    s->step = atomic_load_explicit(&slot->step, memory_order_relaxed);
    s->last = atomic_load_explicit(&slot->last, memory_order_relaxed);
    s->n_last = atomic_load_explicit(&slot->n_last, memory_order_relaxed);
    s->last_step = atomic_load_explicit(&slot->last_step, memory_order_relaxed);
}

static void tell_state(void *context, struct lifeline_state *s)
{
    const struct watch *w = context;
    read_slot(&w->slot[w->self], s);
}

/* Only serves the lifeline. False: the watch is being closed. */
static bool rest(struct watch *w, double seconds)
{
    int rank;
    double end = seconds_now() + seconds;
    for (double now = seconds_now(); now < end && !atomic_load(&w->closing); now = seconds_now())
        (void)lifeline_wait(w->lifeline, end - now, &rank);
    return !atomic_load(&w->closing);
}

/* `passed`: seconds since the previous check. */
static void look_around(struct watch *w, double passed)
{
    atomic_fetch_add(&w->slot[w->self].beats, 1);
    for (int i = 0; i < w->n; i++) {
        struct watch_slot *slot = &w->slot[i];
        struct watch_view *view = &w->view[i];
        uint64_t progress = atomic_load_explicit(&slot->progress, memory_order_acquire),
                 beats = atomic_load(&slot->beats);
        view->rank = atomic_load(&slot->rank);
        view->leader = atomic_load(&slot->leader);
        view->activity = (enum rank_activity)atomic_load_explicit(&slot->activity, memory_order_relaxed);
        view->step = atomic_load_explicit(&slot->step, memory_order_relaxed);
        view->stalled = progress == w->seen[i].progress ? view->stalled + passed : 0;
        view->silent = beats == w->seen[i].beats ? view->silent + passed : 0;
        w->seen[i] = (struct seen){progress, beats};
    }
}

/* Is this rank the first of its host to report? */
static bool is_first(struct watch *w)
{
    return atomic_exchange(&w->slot[0].spoken, 1) == 0;
}

/* The first rank of this host to come here reports and ends the job; the others wait for that, but not forever. */
static _Noreturn void end_job(struct watch *w, int culprit, double launcher, const struct err *e)
{
    lifeline_leave(w->lifeline);
    bool first = is_first(w);
    if (!first)
        (void)rest(w, 2 * PATIENCE);
    fatal_for(culprit, w->identity[culprit].host, launcher, !first, e);
}

static void end_late_job(struct watch *w, int culprit)
{
    struct err e = {0};
    char text[300];
    const struct watch_view *view = &w->view[culprit];
    bool is_self = culprit == w->self;
    /* The rank at fault is on another host, which knows more. */
    if (is_self && view->activity != RANK_WORKS && w->other_hosts && !rest(w, PATIENCE))
        return;
    verdict_say(text, sizeof text, view, is_self, w->timeout);
    ERR(&e, w->is_alone && view->activity == RANK_AWAITS_DEVICE ? ERR_DEVICE : ERR_COMM, "%s", text);
    end_job(w, view->rank, 0, &e);
}

static void end_failed_job(struct watch *w, const struct err *e)
{
    if (!rest(w, PATIENCE)) /* a failure elsewhere: its origin reports first */
        return;
    end_job(w, w->rank, 0, e);
}

/* Seconds for mpirun to end the job when a host is lost. After MPI_Abort, mpirun of Open MPI 4.1 would wait for the
 * lost host's daemon forever, while with the keepalive settings of docs/cluster.md it notices the loss by itself and
 * ends all processes that it still reaches. srun has no such daemons. */
static double launcher_time(bool lost)
{
    return lost && environment_value("OMPI_COMM_WORLD_RANK") != NULL ? LAUNCHER : 0;
}

/* The time for others to report first. A rank that leaves for a known reason has reported it itself, or its launcher
 * knows. A rank that has lost rank 0's host may be on the far side of a cut, where the daemon notices the cut only
 * while nothing is written to it. Lower hosts report first. */
static double patience(const struct watch *w, int gone, bool lost)
{
    if (lifeline_left(w->lifeline, gone))
        return LEAVE;
    if (w->rank == 0 || (w->rank == w->deputy && !lost))
        return 0;
    int hosts_before = 0;
    for (int r = 0; r < w->identity[w->rank].node; r++)
        hosts_before += w->identity[r].node == r;
    return (lost ? launcher_time(lost) : PATIENCE) + (hosts_before < 5 ? hosts_before : 5);
}

/* Is a launcher or a person ending this process? mpirun kills the ranks, rank 0 first, within milliseconds of their
 * SIGTERM: another may still have to handle its own. All signals are blocked in the calling thread, so sigpending finds
 * those of the process that no thread has taken. */
static bool is_being_ended(struct watch *w)
{
    sigset_t pending;
    (void)sigemptyset(&pending);
    (void)rest(w, HANDLER);
    (void)sigpending(&pending);
    for (size_t i = 0; i < N_ENDING_SIGNALS; i++)
        if (sigismember(&pending, ending_signals[i]) == 1)
            return true;
    return atomic_load(&ends_by_signal) || signals_end_asked();
}

static void end_broken_job(struct watch *w, int gone, bool lost)
{
    struct err e = {0};
    char text[360];
    struct lifeline_state state;
    const struct watch_identity *identity = &w->identity[gone];
    bool known = lifeline_heard(w->lifeline, gone, &state);
    if (identity->node == w->identity[w->rank].node) { /* on our own host: visible */
        read_slot(&w->slot[identity->slot], &state);
        known = true;
    }
    verdict_say_gone(text, sizeof text, lost, known ? &state : NULL, identity->device);
    if (!rest(w, patience(w, gone, lost)) || (is_being_ended(w) && !rest(w, LEAVE)))
        return;
    ERR(&e, ERR_COMM, "%s", text);
    end_job(w, gone, w->rank == 0 ? launcher_time(lost) : 0, &e);
}

/* Deadlines, once a tick. */
static void judge(struct watch *w, double passed)
{
    struct err e = {0};
    look_around(w, passed < 3 * w->tick ? passed : 3 * w->tick); /* longer: the whole job was stopped */
    if (w->view[w->self].activity == RANK_OUTSIDE)
        return;
    int culprit = w->timeout > 0 ? verdict_find(w->view, w->n, w->self, w->timeout) : -1;
    if (culprit >= 0)
        end_late_job(w, culprit);
    else if (w->question.ask(w->question.context, &e) != 0)
        end_failed_job(w, &e);
}

static void *look_on(void *context)
{
    struct watch *w = context;
    int gone;
    double before = seconds_now();
    while (!atomic_load(&w->closing)) {
        double now = seconds_now(), passed = now - before;
        if (passed >= w->tick) {
            before = now;
            judge(w, passed);
            continue;
        }
        enum lifeline_event event = lifeline_wait(w->lifeline, w->tick - passed, &gone);
        if (event == LIFELINE_ENDED || event == LIFELINE_LOST)
            end_broken_job(w, gone, event == LIFELINE_LOST);
    }
    return NULL;
}

/* ---- announcing the end of this process to the others ---- */

static void stop_thread(struct watch *w)
{
    atomic_store(&w->closing, true);
    lifeline_wake(w->lifeline);
    if (w->running)
        (void)pthread_join(w->thread, NULL);
    w->running = false;
}

/* Called when rank/world/fatal.c ends this process: is this rank the first of its host to report? */
static bool leave(bool all)
{
    struct watch *w = atomic_load(&current);
    if (w == NULL)
        return true;
    lifeline_leave(w->lifeline);
    if (all)
        stop_thread(w); /* MPI_Finalize unmaps the slots */
    return is_first(w);
}

/* Announces that a launcher or a person ends this process, so that the others do not report it as lost. */
static void leave_by_signal(int number)
{
    struct watch *w = atomic_load(&current);
    atomic_store(&ends_by_signal, true);
    if (w != NULL)
        lifeline_leave(w->lifeline);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Handles the signals that would end this process by default; a server has its own handlers. */
static void catch_signals(bool begin)
{
    for (size_t i = 0; i < N_ENDING_SIGNALS; i++) {
        struct sigaction now;
        int number = ending_signals[i];
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler == (begin ? SIG_DFL : leave_by_signal))
            (void)signal(number, begin ? leave_by_signal : SIG_DFL);
    }
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

/* The main thread handles signals. */
static int start_thread(struct watch *w)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, look_on, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Finds the ranks' hosts, and the rank that reports when rank 0 cannot. */
static void share_places(struct watch *w, const struct world *world, const char *device)
{
    struct watch_identity *mine = &w->identity[world->job_rank];
    int node = world->job_rank;
    MPI_CHECK(MPI_Bcast(&node, 1, MPI_INT, 0, world->node));
    (void)snprintf(mine->host, sizeof mine->host, "%s", world->host);
    (void)snprintf(mine->device, sizeof mine->device, "%s", device);
    mine->slot = world->node_rank;
    mine->node = node;
    MPI_CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, w->identity, sizeof *mine, MPI_BYTE, world->job));
    w->deputy = 1;
    for (int r = world->n_job_ranks - 1; r > 0; r--)
        if (w->identity[r].node == 0)
            w->deputy = r;
}

static void allocate(struct watch **watch, const struct world *world, struct err *e)
{
    struct watch *w = err_calloc(e, 1, sizeof *w, "watch");
    if (w != NULL) {
        w->view = err_calloc(e, (size_t)world->n_node_ranks, sizeof *w->view, "watch");
        w->seen = err_calloc(e, (size_t)world->n_node_ranks, sizeof *w->seen, "watch");
        w->identity = err_calloc(e, (size_t)world->n_job_ranks, sizeof *w->identity, "watch");
    }
    *watch = w;
}

int watch_open(struct watch **watch, const struct world *world, const char *device, struct watch_question question,
               double timeout, struct err *e)
{
    struct watch *w;
    *watch = NULL;
    allocate(&w, world, e);
    fatal_agree((struct world *)world, e);
    w->observer.hooks = &hooks;
    w->question = question;
    w->is_alone = world->n_ranks == 1;
    w->timeout = timeout;
    w->tick = timeout > 0 ? timeout / TICKS_OF_TIMEOUT : LONGEST_TICK;
    w->tick = w->tick > LONGEST_TICK ? LONGEST_TICK : w->tick < SHORTEST_TICK ? SHORTEST_TICK : w->tick;
    w->all = world->job;
    w->rank = world->job_rank;
    w->n = world->n_node_ranks;
    w->self = world->node_rank;
    w->other_hosts = !world->on_one_host;
    share_places(w, world, device);
    open_slots(w, world);
    (void)lifeline_open(&w->lifeline, world, tell_state, w, e);
    *watch = w;
    w->running = start_thread(w) == 0;
    if (!w->running)
        return ERR(e, ERR_MEMORY, "cannot start the thread that watches the other ranks");
    atomic_store(&current, w);
    fatal_herald(leave);
    catch_signals(true);
    return 0;
}

/* All watches must have stopped before the first lifeline is closed. */
void watch_close(struct watch **watch)
{
    struct watch *w = *watch;
    if (w == NULL)
        return;
    catch_signals(false);
    fatal_herald(NULL);
    atomic_store(&current, NULL);
    stop_thread(w);
    MPI_CHECK(MPI_Win_unlock_all(w->window));
    MPI_CHECK(MPI_Win_free(&w->window));
    MPI_CHECK(MPI_Barrier(w->all));
    lifeline_close(&w->lifeline);
    free(w->view);
    free(w->seen);
    free(w->identity);
    free(w);
    *watch = NULL;
}
