/* base/clock.h - seconds: on a monotonic clock, and since this process was started; and waiting without sleep. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <time.h>

static inline double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In a loop that only waits: the core's other thread gets on the faster. */
static inline void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Since the launcher made this process, before main and before any exec, to 0.01 s as Linux keeps it. Negative when the
 * system does not tell. */
double seconds_since_exec(void);

#endif
