/* base/memory_limit.c - see memory_limit.h. */
#include "base/memory_limit.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The files of a memory cgroup, and where its hierarchy is mounted. */
static const struct version {
    const char *mount, *limit, *usage, *inactive, *active, *by;
} versions[] = {
    {"", "memory.max", "memory.current", "inactive_file", "active_file", "memory.max of the job's cgroup"},
    {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file",
     "memory.limit_in_bytes of the job's cgroup"},
};

/* The number at the beginning of a file; otherwise, also for "max" and without such a file, `without`. */
static size_t read_number(const char *folder, const char *name, size_t without)
{
    char path[PATH_MAX];
    unsigned long long n = 0;
    int fits = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fits < (int)sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL)
        return without;
    if (fscanf(f, "%llu", &n) != 1)
        n = without;
    (void)fclose(f);
    return (size_t)n;
}

/* The bytes of files in memory, which the kernel drops before it refuses memory. */
static size_t read_files(const char *folder, const struct version *v)
{
    char path[PATH_MAX], name[64];
    unsigned long long n = 0, files = 0;
    int fits = snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *f = fits < (int)sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL)
        return 0;
    while (fscanf(f, "%63s %llu", name, &n) == 2)
        if (strcmp(name, v->inactive) == 0 || strcmp(name, v->active) == 0)
            files += n;
    (void)fclose(f);
    return (size_t)files;
}

static void lower(struct memory_limit *l, size_t limit, size_t used, const char *by)
{
    size_t rest = limit > used ? limit - used : 0;
    if (limit == SIZE_MAX || rest >= l->rest)
        return;
    *l = (struct memory_limit){rest, by};
}

/* The cgroup, and those above it up to the mount point. A container may show a path of the host that it does not
 * have. */
static void read_group(struct memory_limit *l, const struct version *v, const char *cgroups, const char *group)
{
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s%s%s", cgroups, v->mount, group);
    size_t mount = strlen(cgroups) + strlen(v->mount);
    if (n >= (int)sizeof folder)
        return;
    for (;;) {
        size_t limit = read_number(folder, v->limit, SIZE_MAX), used = read_number(folder, v->usage, 0);
        if (limit != SIZE_MAX) {
            size_t files = read_files(folder, v);
            lower(l, limit, used > files ? used - files : 0, v->by);
        }
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount)
            return;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "0::/a/b" of version 2, "4:memory:/a/b" of version 1. */
static void read_line(struct memory_limit *l, const char *cgroups, char *line)
{
    char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(group, "/") == 0)
        *group = '\0';
    if (*++controllers == '\0')
        read_group(l, &versions[0], cgroups, group);
    else if (strstr(controllers, "memory") != NULL)
        read_group(l, &versions[1], cgroups, group);
}

static void read_groups(struct memory_limit *l, const char *proc, const char *cgroups)
{
    char path[PATH_MAX], line[PATH_MAX];
    int fits = snprintf(path, sizeof path, "%s/cgroup", proc);
    FILE *f = fits < (int)sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL)
        return;
    while (fgets(line, sizeof line, f) != NULL)
        read_line(l, cgroups, line);
    (void)fclose(f);
}

static void read_address_space(struct memory_limit *l, const char *proc, int n)
{
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return;
    size_t limit = (size_t)space.rlim_cur, used = read_number(proc, "statm", 0) * (size_t)sysconf(_SC_PAGESIZE);
    size_t rest = limit > used ? limit - used : 0;
    lower(l, rest < SIZE_MAX / (size_t)n ? rest * (size_t)n : SIZE_MAX - 1, 0, "ulimit -v");
}

struct memory_limit memory_limit_read(const char *proc, const char *cgroups, int n)
{
    struct memory_limit l = {SIZE_MAX, NULL};
    read_groups(&l, proc, cgroups);
    read_address_space(&l, proc, n);
    return l;
}
