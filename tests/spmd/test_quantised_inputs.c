/* tests/spmd/test_quantised_inputs.c - if the device of one rank cannot quantise a product's activations, all ranks
 * leave them unquantised: scales of a row are shared, so a rank that did otherwise would leave the others waiting.
 * Refusing devices are simulated: CPUs refuse nothing. */
#include "partition/side_tensors.h"
#include "rank/instance/quantised_inputs.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE "tests/parity/fixtures/q-fp8-channel"

enum { NOWHERE, ON_LAST, EVERYTHING_ON_LAST }; /* the refused products */

static int refused_by, my_rank, n_ranks;
static const char *const because = "a rank's matrix of odd size";

/* Refuses, on the last rank, products that are cut along their inputs, or all. */
static const char *refusal(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts)
{
    (void)q, (void)w, (void)of_experts;
    bool last = my_rank == n_ranks - 1;
    return last && (refused_by == EVERYTHING_ON_LAST || (refused_by == ON_LAST && f->shared)) ? because : NULL;
}

static void open_network(struct network *n, struct world *w, const struct ops *ops, struct queue *q)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct shard shard;
    if (model_config_read(&m, FIXTURE, &e) == 0 && checkpoint_open(&c, FIXTURE, &e) == 0)
        (void)side_tensors_read(&c, &m, &e);
    fatal_agree(w, &e);
    m.quantised_inputs = true;
    shard_make(&shard, &m, w->rank, w->n_ranks);
    (void)network_open(n, &m, &shard, &c, false, ops, q, &e);
    fatal_agree(w, &e);
    checkpoint_close(&c);
}

/* Returns a digest of the set of weights whose activations are quantised, equal on ranks with the same set. */
static long digest(const struct network *n)
{
    long sum = 0;
    for (int i = 0; i < n->map.n_slots; i++)
        sum = (2 * sum + (n->weight[i].inputs != NULL)) % 1000003;
    return sum;
}

static void check_agreement(struct world *w, int where, bool insists)
{
    struct err e = {0};
    struct input_ops inputs = *ops_cpu.inputs;
    struct ops ops = ops_cpu;
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    struct network *n = calloc(1, sizeof *n);
    refused_by = where;
    inputs.refusal = refusal;
    ops.inputs = &inputs;
    open_network(n, w, &ops, &q);
    int all = n->n_inputs[false] + n->n_inputs[true];
    int rc = quantised_inputs_agree(n, w, insists, &ops, &e);
    long mine = digest(n), least = 0, most = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &least, 1, MPI_LONG, MPI_MIN, w->comm));
    MPI_CHECK(MPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, w->comm));
    tap_all(least == most, "other products", "%d ranks, refusals %d: all ranks quantise before the same products",
            w->n_ranks, where);
    tap_all(n->n_inputs[false] + n->n_inputs[true] == all && (n->n_inputs[false] > 0) == (where != NOWHERE), "others",
            "%d ranks, refusals %d: %s", w->n_ranks, where, where != NOWHERE ? "some are refused" : "none is refused");
    tap_all(n->config.quantised_inputs == (where != EVERYTHING_ON_LAST), "otherwise",
            "%d ranks, refusals %d: the config's state afterwards", w->n_ranks, where);
    tap_all(strcmp(n->inputs_refusal, where != NOWHERE ? because : "") == 0, "another reason",
            "%d ranks, refusals %d: the reason, on all ranks", w->n_ranks, where);
    bool fails = insists && where != NOWHERE;
    tap_all(rc == (fails ? -1 : 0) && e.code == (fails ? ERR_UNSUPPORTED : ERR_NONE), "otherwise",
            "%d ranks, refusals %d: %s", w->n_ranks, where, fails ? "an error on all ranks" : "no error");
    network_close(n, &ops, &q);
    free(n);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    my_rank = w.rank;
    n_ranks = w.n_ranks;
    for (int where = NOWHERE; where <= EVERYTHING_ON_LAST; where++)
        for (int insists = 0; insists < 2; insists++)
            check_agreement(&w, where, insists != 0);
    int status = tap_done();
    world_close(&w);
    return status;
}
