/* rank/instance.c - see instance.h. Every phase ends in an agreement of all ranks. */
#include "rank/instance.h"
#include "rank/fatal.h"
#include "rank/fit.h"

#include <string.h>

void instance_open(struct instance *i, struct world *w, struct model_config *m, struct checkpoint *c,
                   struct instance_setup *setup, struct err *e)
{
    struct shard shard;
    memset(i, 0, sizeof *i);
    MPI_CHECK(MPI_Bcast(setup, sizeof *setup, MPI_BYTE, 0, w->comm));
    (void)load_share_headers(m, c, w, e);
    i->ops = &ops_cpu;
    (void)i->ops->open(&i->q, 0, m->dtype, setup->threads > 0 ? setup->threads : w->n_threads, e);
    fatal_agree(w, e);
    shard_make(&shard, m, w->rank, w->n_ranks);
    (void)fit_weights(m, &shard, w, i->ops, &i->q, e);
    fatal_agree(w, e);
    (void)network_open(&i->network, m, &shard, setup->dummy ? NULL : c, i->ops, &i->q, e);
    fatal_agree(w, e);
    if (setup->dummy)
        load_dummy(&i->network, i->ops, &i->q, setup->dummy_seed);
    else
        (void)load_weights(&i->network, c, w, i->ops, &i->q, (enum progress_mode)setup->progress, &i->load, e);
    fatal_agree(w, e);
    checkpoint_close(c);
    (void)fit_kv(&setup->limits, m, &shard, w, i->ops, &i->q, setup->kv_bytes, e);
    fatal_agree(w, e);
    if (network_open_kv(&i->network, setup->limits.n_blocks, i->ops, &i->q, e) == 0)
        (void)engine_open(&i->engine, w, &i->network, &setup->limits, i->ops, &i->q, e);
    fatal_agree(w, e);
}

void instance_close(struct instance *i)
{
    if (i->ops == NULL)
        return;
    engine_close(&i->engine);
    network_close(&i->network, i->ops, &i->q);
    i->ops->close(&i->q);
    memset(i, 0, sizeof *i);
}
