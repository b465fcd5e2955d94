/* gateway/exchange/process_counts.c - see process_counts.h. */
#include "gateway/exchange/process_counts.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* 0: not known */
static long long resident_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*s %lld", &pages) != 1)
        pages = 0;
    (void)fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

void process_counts_write(int64_t started, struct bytes *to)
{
    struct timespec cpu = {0};
    struct rlimit files = {0};
    long long resident = resident_bytes();
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    bytes_format(to,
                 "# HELP process_start_time_seconds Start of the gateway, in seconds since 1970.\n"
                 "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %lld\n"
                 "# HELP process_cpu_seconds_total Processor time of the gateway.\n"
                 "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %.3f\n",
                 (long long)started, (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    if (resident > 0)
        bytes_format(to,
                     "# HELP process_resident_memory_bytes Memory of the gateway.\n"
                     "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %lld\n",
                     resident);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        bytes_format(to,
                     "# HELP process_max_fds Open files that the gateway may have.\n"
                     "# TYPE process_max_fds gauge\nprocess_max_fds %llu\n",
                     (unsigned long long)files.rlim_cur);
}
