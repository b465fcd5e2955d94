/* rank/world/world.h - the ranks of the job and their replicas: MPI, the node's ranks, and the cores that this rank may
 * use. A replica consists of consecutive ranks that share one model. The whole job is a struct world, and so is each
 * rank's replica: code that computes together (engine, communicator, loop) uses the replica's, code that concerns all
 * ranks (devices, loading, memory of a node, failures) the job's. If replicas load models of their own, each is apart:
 * loading, memory and failures to load concern only its ranks. */
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
    int replica, n_replicas; /* number of this replica; 0 of 1 in the job's own world */
    bool on_one_host;        /* all ranks of comm */
    bool apart;              /* its ranks agree among themselves, while other ranks do other things: world_part */
    MPI_Comm node;           /* the ranks of the job, or of a replica that is apart, that share this node's memory */
    int node_rank, n_node_ranks;
    int n_cpus;     /* cores of this rank's affinity mask */
    int n_threads;  /* this rank's share of these cores if other ranks of the node share them; >= 1 */
    int n_restless; /* ranks where a thread of MPI still worked a second after MPI_Init (world.c, let_mpi_settle) */
    char host[64];
    int device;      /* number of this rank's device among the visible ones; -1: CPU, or none open yet */
    bool told;       /* the placement has been printed, or will be */
    bool gpus_apart; /* found by device_open: two ranks' GPUs in one host do not reach each other's memory */
};

/* MPI_Init (FUNNELED) and its threads at rest, errors returned instead of fatal, node communicator, host name, cores.
 * Collective, for the first thread of each process. */
int world_open(struct world *w, int *argc, char ***argv, struct err *e);
void world_close(struct world *w);

/* The replica of this rank if `size` ranks share a model; size divides the number of ranks, and 0 stands for all. Equal
 * on all ranks; collective over the job. Call device_open before; its results are copied. */
void world_split(const struct world *w, int size, struct world *replica);
void world_join(struct world *replica);

/* The first n ranks of the replica, which are apart, on these; on its other ranks all of the others. Closed by
 * world_join. Collective over the job. */
void world_first(const struct world *replica, int n, struct world *first);

/* From now on the replica's ranks agree (rank/world/agree.h), and check the memory of a node, without the others, which
 * do so at other times. Does nothing with a single replica. Collective over the job. */
void world_part(struct world *replica);

#endif
