/* rank/world/places.h - the placement of ranks: checks, and the table that is printed when a run starts on GPUs. Works
 * on data that the ranks have exchanged, knows neither MPI nor a device. */
#ifndef WORLD_PLACES_H
#define WORLD_PLACES_H

#include "base/err.h"
#include "kernels/ops.h"

#define PLACES_MAX_ROWS 16 /* more ranks than these become one line, unless the run is verbose */

/* The placement of one rank. Flat: gathered. */
struct rank_place {
    char host[64], id[64], model[64]; /* id, model: of the device, from async_ops.identify; "": none */
    int32_t device;                   /* its number among the devices that the rank sees */
    int32_t numa;                     /* its NUMA node; -1: unknown */
    uint64_t cpu_nodes;               /* NUMA nodes of the rank's allowed cores, bit i for node i; 0: unknown */
    int32_t n_links[PEER_KINDS];      /* number of the host's other ranks by enum peer_link: how this device reaches
                                    theirs */
    char peers[72];                   /* the same as text */
    char visible[72];                 /* CUDA_VISIBLE_DEVICES of the rank; "": not set */
};

/* The device of a rank among the n_visible that it sees, if it is number node_rank of its node's n_node_ranks ranks:
 * batch systems show a rank either all GPUs of the job on its node or only its own. -1 and *e (with host and `note`,
 * which may be ""): there is no device for it. */
int places_choose(int n_visible, int node_rank, int n_node_ranks, const char *host, const char *note, struct err *e);

/* Refuse two ranks that have the same device. */
int places_check(const struct rank_place *place, int n, struct err *e);

/* Fill n_links and peers of place[rank]. link: [n] to every rank's device; only those of the same host count. */
void places_link(struct rank_place *place, int n, int rank, const enum peer_link *link);

/* The line of the table for rank 0 .. n-1; -1: the header. */
void places_row(char *text, size_t bytes, const struct rank_place *place, int n, int rank);

/* The whole placement in one line. */
void places_summary(char *text, size_t bytes, const struct rank_place *place, int n);

/* Ranks whose cores are all on other NUMA nodes than their device, e.g. "0,2-3"; "" if there are none. */
void places_far(char *text, size_t bytes, const struct rank_place *place, int n);

/* Does any device not reach another one of its host? */
bool places_apart(const struct rank_place *place, int n);

int places_n_hosts(const struct rank_place *place, int n);

#endif
