/* rank/world/fatal.c - see fatal.h. */
#include "rank/world/fatal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "rank/world/agree.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TELL_SECONDS 3.0 /* less than the other ranks leave to the first that reports (rank/watch/watch.c) */

static struct {
    int rank, n_ranks; /* this rank of the job */
    char host[64];
    bool leads;
} self = {0, 0, "localhost", true};

static _Atomic(bool (*)(bool)) herald_set;

void fatal_herald(bool (*herald)(bool all))
{
    herald_set = herald;
}

static struct {
    void (*say)(void *context, const struct err *why);
    void *context;
} farewell;

void fatal_farewell(void (*say)(void *context, const struct err *why), void *context)
{
    farewell.say = say;
    farewell.context = context;
}

static void say_farewell(const struct err *why)
{
    if (farewell.say != NULL)
        farewell.say(farewell.context, why);
}

static bool herald(bool all)
{
    bool (*call)(bool) = herald_set;
    return call == NULL || call(all);
}

void fatal_identify(int rank, int n_ranks, const char *host, bool leads)
{
    self.leads = leads;
    self.rank = rank;
    self.n_ranks = n_ranks;
    (void)snprintf(self.host, sizeof self.host, "%s", host);
}

/* One write(2), so that lines of several processes never mix. */
static void speak_for(int rank, const char *host, const struct err *e, int n_ranks)
{
    char line[ERR_TEXT_BYTES + 160];
    int n = n_ranks > 1
                ? snprintf(line, sizeof line, "lockstep: fatal: rank %d/%d on %s: %s\n", rank, n_ranks, host, e->text)
                : snprintf(line, sizeof line, "lockstep: fatal: %s\n", e->text);
    size_t bytes = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
    log_fatal(e->text);
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(STDERR_FILENO, line + done, bytes - done);
        if (wrote <= 0)
            return;
        done += (size_t)wrote;
    }
}

static void speak(const struct err *e, int n_ranks)
{
    speak_for(self.rank, self.host, e, n_ranks);
}

static volatile sig_atomic_t end_code;

static void leave_at_once(int signal_number)
{
    (void)signal_number;
    _exit(end_code);
}

/* The failure has been reported and agreed on: whatever happens in MPI_Finalize, the status stays the documented one,
 * and no further line is printed (see world.c, let_mpi_settle, for failures seen there). */
static void hold_end(int code)
{
    static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGABRT};
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0)
        (void)dup2(nowhere, STDERR_FILENO);
    end_code = code;
    for (size_t i = 0; i < sizeof fatal_signals / sizeof fatal_signals[0]; i++)
        (void)signal(fatal_signals[i], leave_at_once);
}

/* The other ranks of the job do not know of it, so the failing rank ends them, too. */
static _Noreturn void fail_apart(const struct world *w, int failed, const struct err *e, const struct err *why)
{
    const struct timespec others = {5, 0};
    if (failed != w->job_rank)
        (void)nanosleep(&others, NULL);
    fatal(failed == w->job_rank ? e : why);
}

void fatal_agree(struct world *w, const struct err *e)
{
    struct err why = *e;
    int lowest = agree(w, &why);
    if (lowest < 0)
        return;
    if (w->apart)
        fail_apart(w, lowest, e, &why);
    (void)herald(true);
    if (lowest == w->job_rank)
        speak(e, w->n_job_ranks);
    say_farewell(&why);
    (void)fflush(NULL);
    hold_end((int)why.code);
    world_close(w);
    /* Without destructors: exit() would run much foreign code. */
    _exit((int)why.code);
}

/* Gives an unaffected thread time to inform a server's clients, or to update a batch's status file: as long as it needs
 * on a busy machine, within limits. The messages to clients then leave in the background. */
static void tell_others(const struct err *why)
{
    const struct timespec look = {0, 10000000}, leave = {0, 250000000};
    if (self.rank != 0 || signals_fd() < 0)
        return;
    signals_fail(why);
    for (double until = seconds_now() + TELL_SECONDS; signals_unreported() && seconds_now() < until;)
        (void)nanosleep(&look, NULL);
    (void)nanosleep(&leave, NULL);
}

/* A single rank need not end others, and MPI_Abort without mpirun -q prints additional lines. */
static _Noreturn void end_job(int code)
{
    if (self.n_ranks > 1)
        (void)MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

_Noreturn void fatal(const struct err *e)
{
    /* A failure that every rank of a replica sees at once (NaN logits, for example) is reported by its first rank,
     * whose MPI_Abort ends the others in this pause. */
    const struct timespec pause = {1, 500000000};
    if (!self.leads)
        (void)nanosleep(&pause, NULL);
    const struct timespec others = {5, 0};
    if (!herald(false)) /* another rank has reported, and is about to end this process, too */
        (void)nanosleep(&others, NULL);
    const struct err why = agree_named(self.rank, self.n_ranks, self.host, e);
    speak(e, self.n_ranks);
    tell_others(&why);
    say_farewell(&why);
    end_job(e->code);
}

/* The main thread may be anywhere within MPI. MPI_Abort talks to the launcher only and takes no part in what that
 * thread does; should it hang all the same, the alarm ends this process, and the launcher then the others. */
_Noreturn void fatal_for(int rank, const char *host, double launcher, bool said, const struct err *e)
{
    const struct timespec pause = {(time_t)launcher, 0};
    const char *where = host != NULL ? host : self.host;
    const struct err why = agree_named(rank, self.n_ranks, where, e);
    if (!said)
        speak_for(rank, where, e, self.n_ranks);
    tell_others(&why);
    (void)nanosleep(&pause, NULL);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(2);
    end_job(e->code);
}

_Noreturn void fatal_of(int rank, const char *host, const struct err *e)
{
    bool said = !herald(false);
    fatal_for(rank, host, 0, said, e);
}

_Noreturn void fatal_mpi(const char *call, int rc, const char *file, int line)
{
    struct err e = {0};
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(rc, text, &length);
    ERR(&e, ERR_COMM, "%s:%d: %.200s: %.200s", file, line, call, text);
    /* The cause may be a lost rank, of which the watch (rank/watch/watch.c) knows more. */
    const struct timespec pause = {0, 500000000};
    if (self.leads)
        (void)nanosleep(&pause, NULL);
    fatal(&e);
}

int fatal_local(const struct err *e)
{
    speak(e, 1);
    return e->code;
}
