/* base/clock.c - see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define START_TIME_FIELD 22 /* of /proc/self/stat, in clock ticks since the machine started (proc(5)) */

/* Ticks; 0: unknown. The second field is the program's name in parentheses, which may hold blanks and parentheses. */
static unsigned long long start_ticks(void)
{
    char text[1024];
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    if (f == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < START_TIME_FIELD; field++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL && sscanf(at, "%llu", &ticks) == 1 ? ticks : 0;
}

double seconds_since_exec(void)
{
    struct timespec now;
    unsigned long long ticks = start_ticks();
    long per_second = sysconf(_SC_CLK_TCK);
    if (ticks == 0 || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return -1;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)ticks / (double)per_second;
}
