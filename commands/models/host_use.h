/* commands/models/host_use.h - load and usage of rank 0's host, for metrics: its ranks' GPUs by the driver's numbers,
 * the file system of models, and the cached files of unloaded ones. */
#ifndef MODELS_HOST_USE_H
#define MODELS_HOST_USE_H

#include "commands/models/host_cache.h"
#include "coordinator/archives/cache.h"
#include "coordinator/models/models.h"
#include "rank/instance/instance.h"
#include "rank/measure/nvml.h"

#define HOST_USE_GPUS 64 /* of a host, at most */

struct host_use { /* zeroed at first */
    struct nvml gpu[HOST_USE_GPUS];
    int n_gpus;
    const char *disk; /* a path of the file system; the next two as well: borrowed */
    const struct host_cache *host_cache;
    struct archive_cache *archives; /* NULL: there is none */
};

/* Rank 0 opens the GPUs of its host's ranks. Without NVML, and for slices of a card (MIG), there is none.
 * Collective. */
void host_use_open(struct host_use *m, const struct instance *ground, const struct world *w);
void host_use_close(struct host_use *m); /* safe on a zeroed struct */

/* Adds one GPU, by the library and its address. */
void host_use_add_gpu(struct host_use *m, const char *library, const char *pci_id);

/* struct models_host; any thread. */
void host_use_look(void *host, struct host_figures *f);

#endif
