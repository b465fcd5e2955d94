/* tests/spmd/test_agree.c - rank/world/agree.c: every rank learns of the same failure, and the job goes on. */
#include "rank/world/agree.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <string.h>

/* Ranks from `first` to `last` fail. Then all ranks have the error of the first of them. */
static void check_failures(const struct world *w, const struct world *replica, int first, int last)
{
    struct err e = {0};
    char text[ERR_TEXT_BYTES];
    bool fails = w->rank >= first && w->rank <= last;
    if (fails)
        ERR(&e, w->rank == first ? ERR_MEMORY : ERR_IO, "rank %d has none", w->rank);
    int rank = agree(replica, &e);
    if (w->n_ranks > 1)
        (void)snprintf(text, sizeof text, "rank %d/%d on %s: rank %d has none", first, w->n_ranks, w->host, first);
    else
        (void)snprintf(text, sizeof text, "rank 0 has none");
    tap_all(rank == first && e.code == ERR_MEMORY && strcmp(e.text, text) == 0, e.text,
            "ranks %d to %d of %d fail: all ranks get the first one's error", first, last, w->n_ranks);
}

static void check_none(const struct world *w, const struct world *replica)
{
    struct err e = {0};
    int rank = agree(replica, &e);
    tap_all(rank == -1 && e.code == ERR_NONE && e.text[0] == '\0', e.text, "no rank of %d fails", w->n_ranks);
}

int main(int argc, char **argv)
{
    struct world w, replica;
    struct err e = {0};
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    world_split(&w, 1, &replica);
    const struct world *const one[] = {&w, &replica};
    for (int i = 0; i < 2; i++) { /* the job's world, then a replica's */
        check_none(&w, one[i]);
        check_failures(&w, one[i], 0, w.n_ranks - 1);
        check_failures(&w, one[i], w.n_ranks - 1, w.n_ranks - 1);
        check_none(&w, one[i]);
    }
    world_join(&replica);
    int status = tap_done();
    world_close(&w);
    return status;
}
