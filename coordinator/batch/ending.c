/* coordinator/batch/ending.c - see ending.h. */
#include "coordinator/batch/ending.h"

#include <math.h>
#include <string.h>

/* Leaving the loop, freeing memory and MPI_Finalize take ranks about a second on CPUs, and some 2 s with GPUs. */
#define RESERVE_SECONDS 3.0
#define DRAIN_SECONDS   60.0
#define SECOND_SIGNAL   1.0 /* launchers may send one signal twice within this many seconds */

void ending_open(struct ending *g, const struct ending_setup *setup)
{
    memset(g, 0, sizeof *g);
    g->setup = *setup;
    g->until = INFINITY;
    g->cause = "";
}

double ending_reserve(const struct ending *g)
{
    return g->setup.reserve >= 0 ? g->setup.reserve : RESERVE_SECONDS + 2 * g->slowest_sync + 2 * g->slowest_step;
}

void ending_learn(struct ending *g, double sync_seconds, double step_seconds)
{
    g->slowest_sync = fmax(g->slowest_sync, sync_seconds);
    g->slowest_step = fmax(g->slowest_step, step_seconds);
}

double ending_limit(const struct ending *g)
{
    return g->setup.walltime.ends - ending_reserve(g);
}

static void drain(struct ending *g, double until, const char *cause)
{
    if (g->state == ENDING_RUN) {
        g->state = ENDING_DRAIN;
        g->cause = cause;
    }
    g->until = fmin(g->until, until);
}

static void cut(struct ending *g, const char *cause)
{
    if (g->state != ENDING_CUT)
        g->cause = cause;
    g->state = ENDING_CUT;
}

static double drain_seconds(const struct ending *g)
{
    if (g->setup.drain_seconds >= 0)
        return g->setup.drain_seconds;
    return isfinite(g->setup.walltime.ends) ? INFINITY : DRAIN_SECONDS;
}

void ending_signal(struct ending *g, enum signal_wish wish, bool own, double now)
{
    if (wish == WISH_DRAIN)
        drain(g, fmin(now + drain_seconds(g), ending_limit(g)), "SIGUSR1");
    if (wish != WISH_END)
        return;
    bool again = own && g->asked > 0 && now - g->asked > SECOND_SIGNAL;
    if (g->setup.end_seconds <= 0 || again)
        cut(g, "SIGTERM or SIGINT");
    else if (g->asked <= 0)
        drain(g, now + g->setup.end_seconds, "SIGTERM or SIGINT");
    g->asked = g->asked > 0 ? g->asked : now;
}

enum ending_state ending_turn(struct ending *g, double now)
{
    if (now >= ending_limit(g))
        cut(g, g->setup.walltime.source);
    if (g->state == ENDING_DRAIN && now >= g->until)
        cut(g, g->cause);
    return g->state;
}

void ending_nothing_fits(struct ending *g)
{
    drain(g, ending_limit(g), g->setup.walltime.source);
}

bool ending_fits(const struct ending *g, double need, double now)
{
    return g->state == ENDING_RUN && now + need <= ending_limit(g);
}

int ending_status(bool unfinished, bool failed)
{
    return unfinished ? ERR_RESUME : failed ? ERR_REQUEST : ERR_NONE;
}
