/* rank/world/device.c - see device.h. */
#include "rank/world/device.h"
#include "base/environment.h"
#include "base/log.h"
#include "rank/world/fatal.h"
#include "rank/world/numa.h"
#include "rank/world/places.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LOCKSTEP_CUDA
static const struct ops *const accelerator = &ops_cuda;
#else
static const struct ops *const accelerator = NULL; /* this build has none */
#endif

static int visible_devices(void)
{
    return accelerator != NULL ? accelerator->n_devices() : 0;
}

/* The text after a count of GPUs in a message: the devices that the batch system or the user made visible to this
 * rank. */
static void visible_note(char *text, size_t bytes)
{
    const char *value = environment_value("CUDA_VISIBLE_DEVICES");
    text[0] = '\0';
    if (value != NULL)
        (void)snprintf(text, bytes, ", CUDA_VISIBLE_DEVICES is \"%.80s\"", value);
}

/* The lowest rank that sees no device, or n_ranks; *any: whether some rank sees one. */
static int first_without(const struct world *w, bool *any)
{
    bool sees = visible_devices() > 0;
    int mine[2] = {sees ? w->n_ranks : w->rank, sees ? 0 : 1}, lowest[2];
    MPI_CHECK(MPI_Allreduce(mine, lowest, 2, MPI_INT, MPI_MIN, w->comm));
    *any = lowest[1] == 0;
    return lowest[0];
}

/* --device auto chooses the CPU: warns if a GPU was to be expected, judged by rank 0's environment. */
static void say_settled(int without, bool any, const struct world *w)
{
    char note[128];
    visible_note(note, sizeof note);
    if (accelerator != NULL && (any || note[0] != '\0'))
        log_warn("computing on the CPU: rank %d of %d sees no GPU%s; use --device cpu if this is intended", without,
                 w->n_ranks, without == 0 ? note : "");
}

static int choose_device(const struct world *w, struct err *e)
{
    char note[128];
    visible_note(note, sizeof note);
    return places_choose(visible_devices(), w->node_rank, w->n_node_ranks, w->host, note, e);
}

/* This rank's entry, from local information. opened: its device was opened. */
static void describe_place(struct rank_place *p, const struct ops *ops, struct queue *q, const struct world *w,
                           bool opened)
{
    const char *visible = environment_value("CUDA_VISIBLE_DEVICES");
    cpu_set_t cpus;
    memset(p, 0, sizeof *p);
    memcpy(p->host, w->host, sizeof p->host);
    p->device = w->device;
    p->numa = -1;
    (void)snprintf(p->visible, sizeof p->visible, "%s", visible != NULL ? visible : "");
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        p->cpu_nodes = numa_of_cpus("/sys", &cpus);
    if (ops->async == NULL || !opened)
        return;
    ops->async->identify(q, p->id, p->model, sizeof p->id);
    p->numa = numa_of_device("/sys", p->id);
}

/* Fill in how this rank's device reaches the others. link: [n_ranks] scratch. */
static void find_links(struct rank_place *all, enum peer_link *link, const struct ops *ops, struct queue *q,
                       const struct world *w)
{
    const struct rank_place *mine = &all[w->rank];
    for (int r = 0; r < w->n_ranks; r++) {
        bool both = r != w->rank && mine->id[0] != '\0' && all[r].id[0] != '\0' && strcmp(mine->host, all[r].host) == 0;
        link[r] = both ? ops->async->peer_link(q, all[r].id) : PEER_UNKNOWN;
    }
    places_link(all, w->n_ranks, w->rank, link);
}

static void share_place(struct rank_place *all, const struct world *w)
{
    MPI_CHECK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, sizeof *all, MPI_BYTE, w->comm));
}

/* One line per rank, or one line for many ranks; then the ranks whose cores are far from their GPU. */
static void say_places(const struct rank_place *all, int n)
{
    char text[600];
    if (n > PLACES_MAX_ROWS) {
        places_summary(text, sizeof text, all, n);
        log_note("%s", text);
    }
    for (int r = -1; r < n; r++) {
        places_row(text, sizeof text, all, n, r);
        if (n <= PLACES_MAX_ROWS)
            log_note("%s", text);
        else
            log_info("%s", text);
    }
    places_far(text, sizeof text, all, n);
    if (text[0] != '\0')
        log_warn("rank %s: all cores are on other NUMA nodes than the GPU, which slows loading and launches: see "
                 "mpirun --map-by numa, or --bind-to none",
                 text);
}

void device_places(struct rank_place *all, enum peer_link *link, const struct ops *ops, struct queue *q,
                   const struct world *w, bool opened)
{
    describe_place(&all[w->rank], ops, q, w, opened);
    share_place(all, w);
    find_links(all, link, ops, q, w);
    share_place(all, w);
}

/* All ranks learn the placement, to refuse a GPU that two ranks share; rank 0 prints it. */
static void compare_places(const struct ops *ops, struct queue *q, struct world *w, struct err *e)
{
    struct rank_place *all = calloc((size_t)w->n_ranks, sizeof *all);
    enum peer_link *link = calloc((size_t)w->n_ranks, sizeof *link);
    int ready = all != NULL && link != NULL, all_ready = 0;
    if (!ready)
        ERR(e, ERR_MEMORY, "device table: cannot allocate memory");
    MPI_CHECK(MPI_Allreduce(&ready, &all_ready, 1, MPI_INT, MPI_MIN, w->comm));
    if (all_ready && all != NULL && link != NULL) { /* the last two follow from the first */
        device_places(all, link, ops, q, w, e->code == ERR_NONE);
        w->gpus_apart = places_apart(all, w->n_ranks);
        bool complete = true;
        for (int r = 0; r < w->n_ranks; r++)
            complete = complete && all[r].id[0] != '\0';
        if (e->code == ERR_NONE && places_check(all, w->n_ranks, e) == 0 && complete && !w->told) {
            say_places(all, w->n_ranks);
            w->told = true;
        }
    }
    if (e->code == ERR_NONE && q->err.code != ERR_NONE)
        *e = q->err;
    free(all);
    free(link);
}

int device_check(enum device_choice choice, struct err *e)
{
    if (choice == DEVICE_CUDA && accelerator == NULL)
        return ERR(e, ERR_UNSUPPORTED, "--device cuda: this build has only the cpu backend");
    return 0;
}

bool device_is_gpu(enum device_choice choice)
{
    return choice != DEVICE_CPU && accelerator != NULL && accelerator->n_devices() > 0;
}

int device_open(const struct ops **ops, struct queue *q, enum device_choice choice, enum dtype weights, int n_threads,
                struct world *w, struct err *e)
{
    bool any = false;
    int without = choice != DEVICE_CPU ? first_without(w, &any) : 0; /* otherwise does not initialise the driver */
    bool wanted = choice == DEVICE_CUDA || (choice == DEVICE_AUTO && without == w->n_ranks);
    *ops = wanted && accelerator != NULL ? accelerator : &ops_cpu;
    if (device_check(choice, e) != 0)
        return -1;
    if (*ops == &ops_cpu) {
        if (choice == DEVICE_AUTO)
            say_settled(without, any, w);
        return (*ops)->open(q, 0, weights, n_threads, e);
    }
    w->device = choose_device(w, e);
    if (w->device >= 0)
        (void)(*ops)->open(q, w->device, weights, n_threads, e);
    compare_places(*ops, q, w, e);
    return e->code == ERR_NONE ? 0 : -1;
}
