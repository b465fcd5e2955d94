/* base/memory_limit.h - the memory that batch systems, containers and shells leave to this process, which may be far
 * less than what is free on the host. */
#ifndef BASE_MEMORY_LIMIT_H
#define BASE_MEMORY_LIMIT_H

#include <stddef.h>

struct memory_limit {
    size_t rest;    /* bytes below the lowest limit that are not in use; files in the page cache count as free */
    const char *by; /* its name, for messages: "memory.max of the job's cgroup" */
};

/* The limits of n processes of a host together: of this one's cgroups, versions 1 and 2, with those above them, and n
 * times that of its address space (ulimit -v). proc: "/proc/self"; cgroups: "/sys/fs/cgroup". Without a limit rest is
 * SIZE_MAX and by NULL. */
struct memory_limit memory_limit_read(const char *proc, const char *cgroups, int n);

#endif
