/* tests/spmd/test_replicas.c - rank/world/world.c: the job's ranks in replicas; a replica's sums stay within it, and
 * replicas do not wait for each other. */
#include "rank/comm/comm.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdlib.h>

#define N_SUMS 300

static struct queue q = {.act = DTYPE_F32, .n_threads = 1};

/* Sums the ranks' numbers in the job, `times` times. */
static bool sums_are(struct comm *c, const struct world *replica, int times)
{
    int first = replica->job_rank - replica->rank;
    float want = 0;
    bool good = true;
    for (int r = first; r < first + replica->n_ranks; r++)
        want += (float)r;
    for (int i = 0; i < times; i++) {
        float x = (float)replica->job_rank;
        comm_all_reduce(c, &q, &x, 1);
        good = good && x == want;
    }
    return good;
}

static void split(const struct world *w, int size)
{
    struct world replica;
    struct comm c;
    struct err e = {0};
    world_split(w, size, &replica);
    int n = size > 0 ? size : w->n_ranks;
    tap_all(replica.n_ranks == n && replica.rank == w->rank % n && replica.replica == w->rank / n &&
                replica.n_replicas == w->n_ranks / n && replica.job_rank == w->rank &&
                replica.n_job_ranks == w->n_ranks && replica.node_rank == w->node_rank &&
                replica.on_one_host == w->on_one_host,
            "other numbers", "%d ranks in replicas of %d", w->n_ranks, n);
    (void)comm_open_mpi(&c, &replica, &e);
    fatal_agree(&replica, &e); /* over all ranks: none has failed */
    /* Each replica makes another number of sums before it meets the others again. */
    bool good = sums_are(&c, &replica, N_SUMS * (1 + replica.replica));
    tap_all(good, "another sum", "sums stay within replicas of %d", n);
    comm_close(&c);
    world_join(&replica);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    split(&w, 0);
    for (int size = 1; size <= w.n_ranks; size++)
        if (w.n_ranks % size == 0)
            split(&w, size);
    int status = tap_done();
    world_close(&w);
    return status;
}
