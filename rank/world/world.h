/* rank/world/world.h - the ranks of the job: MPI, the node's ranks, and the cores that this rank may use; and their
 * replicas.
 *
 * A replica is the consecutive ranks that share one model. The job as a whole is a struct world, and so is each rank's
 * replica: whatever computes together (engine, communicator, loop) gets the replica's, whatever concerns all (devices,
 * loading, memory of a node, failures) the job's. If replicas load models of their own, each is apart: its ranks are
 * all that loading, memory and failures to load concern. */
#ifndef WORLD_WORLD_H
#define WORLD_WORLD_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>

struct world {
    MPI_Comm comm; /* all ranks of the job, or of the replica */
    int rank, n_ranks;
    MPI_Comm job; /* all ranks of the job; equal to comm in the job's own world */
    int job_rank, n_job_ranks;
    int replica, n_replicas; /* which one this is; 0 of 1 in the job's own world */
    bool on_one_host;        /* all ranks of comm */
    bool apart;              /* its ranks agree among themselves, while other ranks do other things: world_part */
    MPI_Comm node;           /* the ranks of the job, or of a replica that is apart, that share this node's memory */
    int node_rank, n_node_ranks;
    int n_cpus;     /* cores of this rank's affinity mask */
    int n_threads;  /* the share of these cores that is this rank's when node mates have them too; >= 1 */
    int n_restless; /* ranks where a thread of MPI still worked a second after MPI_Init (world.c, let_mpi_settle) */
    char host[64];
    int device;      /* this rank's, among those that it sees; -1: it computes on the CPU, or none is open yet */
    bool told;       /* the placement has been printed, or will be */
    bool gpus_apart; /* found by device_open: two ranks' GPUs in one host do not reach each other's memory */
};

/* MPI_Init (FUNNELED) and its threads at rest, errors returned instead of fatal, node communicator, host name, cores.
 * Collective, for the first thread of each process. */
int world_open(struct world *w, int *argc, char ***argv, struct err *e);
void world_close(struct world *w);

/* The replica of this rank if `size` ranks share a model; size divides the number of ranks, 0 stands for that number.
 * Equal on all ranks; collective over the job. Call device_open before, whose findings are copied. */
void world_split(const struct world *w, int size, struct world *replica);
void world_join(struct world *replica);

/* From now on the replica's ranks agree (rank/world/agree.h), and count the memory of a node, without others: what they
 * do together, others do at other times. Nothing where there is one replica. Collective over the job. */
void world_part(struct world *replica);

#endif
