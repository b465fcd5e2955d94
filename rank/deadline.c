/* rank/deadline.c - see deadline.h. */
#include "rank/deadline.h"
#include "rank/fatal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static void expire(const struct deadline *d)
{
    struct err e = {0};
    ERR(&e, ERR_COMM, "%s: %s has not ended within %g s: a rank, a device or the way between them hangs", d->what,
        d->part, d->seconds);
    fatal_for(d->rank, NULL, 0, false, &e);
}

static void *look_on(void *context)
{
    struct deadline *d = context;
    (void)pthread_mutex_lock(&d->lock);
    while (!d->closing) {
        if (d->part == NULL)
            (void)pthread_cond_wait(&d->change, &d->lock);
        else if (pthread_cond_timedwait(&d->change, &d->lock, &d->until) == ETIMEDOUT && !d->closing) {
            struct timespec now; /* the limit may have been moved just then */
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
            if (now.tv_sec > d->until.tv_sec || (now.tv_sec == d->until.tv_sec && now.tv_nsec >= d->until.tv_nsec))
                expire(d);
        }
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

int deadline_open(struct deadline *d, int rank, const char *what, struct err *e)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    memset(d, 0, sizeof *d);
    d->rank = rank;
    d->what = what;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&d->change, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)sigfillset(&all); /* signals are the main thread's */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    d->running = pthread_create(&d->thread, NULL, look_on, d) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return d->running ? 0 : ERR(e, ERR_MEMORY, "%s: no thread can be started that looks at the time", what);
}

void deadline_close(struct deadline *d)
{
    if (!d->running)
        return;
    (void)pthread_mutex_lock(&d->lock);
    d->closing = true;
    (void)pthread_cond_signal(&d->change);
    (void)pthread_mutex_unlock(&d->lock);
    (void)pthread_join(d->thread, NULL);
    (void)pthread_cond_destroy(&d->change);
    (void)pthread_mutex_destroy(&d->lock);
    d->running = false;
}

void deadline_set(struct deadline *d, const char *part, double seconds)
{
    (void)pthread_mutex_lock(&d->lock);
    (void)clock_gettime(CLOCK_MONOTONIC, &d->until);
    long ns = d->until.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
    d->until.tv_sec += (time_t)seconds + ns / 1000000000;
    d->until.tv_nsec = ns % 1000000000;
    d->part = part;
    d->seconds = seconds;
    (void)pthread_cond_signal(&d->change);
    (void)pthread_mutex_unlock(&d->lock);
}
