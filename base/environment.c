/* base/environment.c - see environment.h. */
#include "base/environment.h"

#include <stdlib.h>
#include <unistd.h>

const char *environment_value(const char *name)
{
    return getenv(name);
}

void environment_settle_openmp(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL)
        return;
    char path[4096]; /* resolved, since a process executed as /proc/self/exe would be called "exe" */
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", "10000", 1) != 0)
        return;
    path[n] = '\0';
    (void)execv(path, argv);
}
