/* coordinator/batch/runner_end.c - when a run ends, and what has to happen now and then until it does. See runner.h. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/batch/runner.h"

#include <math.h>

#define SYNC_BYTES ((int64_t)16 << 20) /* of results, after which it is not waited for --sync-seconds */

void runner_drain(struct runner *r)
{
    if (r->state >= RUNNER_DRAINING)
        return;
    r->state = RUNNER_DRAINING;
    r->left_over = r->left_over || !r->progress.at_end;
    log_note("draining: %lld lines under way", (long long)r->progress.n_open);
}

void runner_stop(struct runner *r)
{
    if (r->state >= RUNNER_STOPPING)
        return;
    r->left_over = r->left_over || !r->progress.at_end;
    r->state = RUNNER_STOPPING;
    runner_order_stop(r);
}

void runner_fail(struct runner *r, const struct err *e)
{
    if (r->failure.code == ERR_NONE)
        r->failure = *e;
    runner_stop(r);
}

void runner_signal(struct runner *r, enum signal_wish wish, bool own)
{
    struct err e = {0};
    (void)own;
    if (wish == WISH_DRAIN)
        runner_drain(r);
    if (wish == WISH_END)
        runner_stop(r);
    if (wish == WISH_FAIL) /* the process has a moment left */
        (void)journal_sync(&r->journal, &e);
}

static void sync_when_due(struct runner *r, double now)
{
    struct err e = {0};
    bool due = r->journal.unsynced >= SYNC_BYTES || now >= r->journal.unsynced_at + r->setup.o->sync_seconds;
    if (r->journal.unsynced > 0 && due && journal_sync(&r->journal, &e) != 0)
        runner_fail(r, &e);
}

long runner_keep_time(struct runner *r)
{
    double now = seconds_now(), wait = 1;
    sync_when_due(r, now);
    bool all_read = r->progress.at_end || r->state == RUNNER_DRAINING;
    if ((r->state == RUNNER_RUNNING || r->state == RUNNER_DRAINING) && all_read && r->progress.n_open == 0)
        runner_stop(r);
    if (r->journal.unsynced > 0)
        wait = fmin(wait, r->journal.unsynced_at + r->setup.o->sync_seconds - now);
    return wait > 0 ? (long)(1e3 * wait) + 1 : 0;
}
