/* rank/device.c - see device.h. */
#include "rank/device.h"
#include "base/log.h"
#include "rank/fatal.h"

#include <stdlib.h>
#include <string.h>

#ifdef LOCKSTEP_CUDA
static const struct ops *const accelerator = &ops_cuda;
#else
static const struct ops *const accelerator = NULL; /* this build has none */
#endif

/* One line of the table of who computes where. Flat: gathered. */
struct place {
    char host[64], id[64], model[64];
    int device;
};

static int visible_devices(void)
{
    return accelerator != NULL ? accelerator->n_devices() : 0;
}

/* Do all ranks see a device? */
static bool all_have_one(const struct world *w)
{
    int mine = visible_devices(), least = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, w->comm));
    return least > 0;
}

/* Batch systems give a rank either all GPUs of the node or the one that is its own. */
static int choose(const struct world *w, struct err *e)
{
    int n = visible_devices();
    if (n >= w->n_node_ranks)
        return w->node_rank;
    if (n == 1)
        return 0;
    return ERR(e, ERR_DEVICE, "%d ranks on this host, but %d GPUs are visible: start one rank a GPU, or --device cpu",
               w->n_node_ranks, n);
}

static void check_places(const struct place *place, int n, struct err *e)
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (place[a].id[0] != '\0' && strcmp(place[a].id, place[b].id) == 0 &&
                strcmp(place[a].host, place[b].host) == 0)
                ERR(e, ERR_DEVICE, "ranks %d and %d have the same GPU %s of %s: start one rank a GPU, or --device cpu",
                    a, b, place[a].id, place[a].host);
}

/* Everybody learns who computes where, to refuse a GPU that two ranks share, and rank 0 to tell. */
static void compare_places(const struct ops *ops, struct queue *q, int device, const struct world *w, struct err *e)
{
    struct place mine = {.device = device}, *all = calloc((size_t)w->n_ranks, sizeof *all);
    if (all == NULL)
        ERR(e, ERR_MEMORY, "device table: cannot allocate memory");
    memcpy(mine.host, w->host, sizeof mine.host);
    if (e->code == ERR_NONE)
        ops->async->identify(q, mine.id, mine.model, sizeof mine.id);
    int ready = all != NULL, all_ready = 0;
    MPI_CHECK(MPI_Allreduce(&ready, &all_ready, 1, MPI_INT, MPI_MIN, w->comm));
    if (all_ready && all != NULL) { /* the second follows from the first */
        MPI_CHECK(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, w->comm));
        check_places(all, w->n_ranks, e);
        for (int r = 0; r < w->n_ranks; r++)
            log_info("rank %d: %s, GPU %d, %s, %s", r, all[r].host, all[r].device, all[r].id, all[r].model);
    }
    free(all);
}

int device_check(enum device_choice choice, struct err *e)
{
    if (choice == DEVICE_CUDA && accelerator == NULL)
        return ERR(e, ERR_UNSUPPORTED, "--device cuda: this build has only the cpu backend");
    return 0;
}

int device_open(const struct ops **ops, struct queue *q, enum device_choice choice, enum dtype weights, int n_threads,
                const struct world *w, struct err *e)
{
    bool found = all_have_one(w);
    *ops = choice != DEVICE_CPU && accelerator != NULL && (found || choice == DEVICE_CUDA) ? accelerator : &ops_cpu;
    if (device_check(choice, e) != 0)
        return -1;
    if (*ops == &ops_cpu)
        return (*ops)->open(q, 0, weights, n_threads, e);
    int device = -1;
    if (visible_devices() == 0)
        ERR(e, ERR_DEVICE, "--device cuda: no GPU is visible on %s", w->host);
    else if ((device = choose(w, e)) >= 0)
        (void)(*ops)->open(q, device, weights, n_threads, e);
    compare_places(*ops, q, device, w, e);
    return e->code == ERR_NONE ? 0 : -1;
}
