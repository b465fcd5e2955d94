/* rank/world.h - the ranks of the job: MPI, the node's ranks, and the cores that this rank may use. */
#ifndef RANK_WORLD_H
#define RANK_WORLD_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>

struct world {
    MPI_Comm comm; /* all ranks */
    MPI_Comm node; /* the ranks that share this node's memory */
    int rank, n_ranks, node_rank, n_node_ranks;
    int n_cpus;    /* cores of this rank's affinity mask */
    int n_threads; /* the share of these cores that is this rank's when node mates have them too; >= 1 */
    char host[64];
    int device;      /* this rank's, among those that it sees; -1: it computes on the CPU, or none is open yet */
    bool told;       /* who computes where has been shown, or is going to be */
    int n_hosts;     /* equal on all ranks; counted by device_open when GPUs compute, else 0 */
    bool gpus_apart; /* found there too: two ranks' GPUs in one host do not reach each other's memory */
};

/* MPI_Init (FUNNELED), errors returned instead of fatal, node communicator, host name, cores. Collective. */
int world_open(struct world *w, int *argc, char ***argv, struct err *e);
void world_close(struct world *w);

#endif
