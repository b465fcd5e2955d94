/* commands/thread_cores.c - see cores.h. */
#include "commands/thread_cores.h"
#include "base/environment.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Is the parent Open MPI's launcher or its daemon, and not, say, a script between it and us? */
static bool launcher_is_parent(void)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};
    char path[64], name[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    FILE *f = fopen(path, "re");
    bool read = f != NULL && fgets(name, sizeof name, f) != NULL;
    if (f != NULL)
        (void)fclose(f);
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; read && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Keeps an explicit binding of ranks. mpirun passes on its settings, those of the command line included. */
static bool binding_was_asked_for(void)
{
    static const char *const policies[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy",
                                           "PRTE_MCA_hwloc_default_binding_policy",
                                           "PRTE_MCA_rmaps_default_mapping_policy"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const char *policy = environment_value(policies[i]);
        if (policy != NULL && policy[0] != '\0')
            return true;
    }
    return false;
}

void cores_widen(struct cores *c)
{
    cpu_set_t launchers;
    memset(c, 0, sizeof *c);
    if (environment_value("OMPI_COMM_WORLD_RANK") == NULL || binding_was_asked_for() || !launcher_is_parent() ||
        sched_getaffinity(0, sizeof c->own, &c->own) != 0 ||
        sched_getaffinity(getppid(), sizeof launchers, &launchers) != 0)
        return;
    if (CPU_COUNT(&launchers) <= CPU_COUNT(&c->own) || sched_setaffinity(0, sizeof launchers, &launchers) != 0)
        return;
    static bool told;
    c->widened = true;
    if (told)
        return;
    told = true;
    log_info("mpirun has bound rank 0 to %d core%s; its helper threads use the launcher's %d", CPU_COUNT(&c->own),
             CPU_COUNT(&c->own) == 1 ? "" : "s", CPU_COUNT(&launchers));
}

void cores_restore(const struct cores *c)
{
    if (c->widened)
        (void)sched_setaffinity(0, sizeof c->own, &c->own);
}
