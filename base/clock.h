/* base/clock.h - time in seconds, on a monotonic clock and since this process was started; waiting without sleep. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

static inline double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* For loops that only wait: gives way to the core's other hardware thread. */
static inline void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Seconds since the launcher created this process, before main and before any exec, to 0.01 s as Linux records it.
 * Negative if the system does not report it. */
double seconds_since_exec(void);

#endif
