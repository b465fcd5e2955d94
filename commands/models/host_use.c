/* commands/models/host_use.c - see machine.h. */
#include "commands/models/host_use.h"
#include "rank/world/fatal.h"

#include <math.h>
#include <string.h>
#include <sys/statvfs.h>

void host_use_add_gpu(struct host_use *m, const char *library, const char *pci_id)
{
    struct err none = {0};
    struct nvml *n = &m->gpu[m->n_gpus];
    if (m->n_gpus == HOST_USE_GPUS || nvml_open(n, library, pci_id, &none) != 0)
        return;
    if (n->is_slice)
        nvml_close(n);
    else
        m->n_gpus++;
}

void host_use_open(struct host_use *m, const struct instance *ground, const struct world *w)
{
    char id[64] = "", model[64], all[HOST_USE_GPUS][sizeof id] = {{0}};
    int color = w->n_node_ranks <= HOST_USE_GPUS;
    if (ground->ops->async != NULL)
        ground->ops->async->identify((struct queue *)&ground->q, id, model, sizeof id);
    if (color) /* equal on all ranks of a node */
        MPI_CHECK(MPI_Gather(id, sizeof id, MPI_BYTE, all, sizeof id, MPI_BYTE, 0, w->node));
    for (int i = 0; color && w->rank == 0 && i < w->n_node_ranks; i++)
        if (all[i][0] != '\0')
            host_use_add_gpu(m, NVML_LIBRARY, all[i]);
}

void host_use_close(struct host_use *m)
{
    for (int i = 0; i < m->n_gpus; i++)
        nvml_close(&m->gpu[i]);
    m->n_gpus = 0;
}

/* The share of the file system not available to users other than root. */
static double disk_share(const char *path)
{
    struct statvfs s;
    if (path == NULL || statvfs(path, &s) != 0 || s.f_blocks == 0)
        return NAN;
    double used = (double)(s.f_blocks - s.f_bfree);
    return used / (used + (double)s.f_bavail);
}

void host_use_look(void *host, struct host_figures *f)
{
    const struct host_use *m = host;
    *f = (struct host_figures){.gpu_memory = m->n_gpus > 0 ? 0 : NAN,
                               .gpu_busy = m->n_gpus > 0 ? 0 : NAN,
                               .disk = disk_share(m->disk),
                               .host_cache = (int64_t)atomic_load(&m->host_cache->locked),
                               .archives = m->archives != NULL ? archive_cache_bytes(m->archives) : 0};
    for (int i = 0; i < m->n_gpus; i++) {
        double memory, busy;
        nvml_use(&m->gpu[i], &memory, &busy);
        f->gpu_memory += memory;
        f->gpu_busy += busy;
    }
}
