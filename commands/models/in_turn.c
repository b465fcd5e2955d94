/* commands/models/in_turn.c - see in_turn.h. */
#include "commands/models/in_turn.h"
#include "commands/models/model_memory.h"
#include "commands/start/start.h"
#include "rank/world/fatal.h"

#include <stdlib.h>

void in_turn_run(struct world *w, const struct in_turn *job, struct err *e)
{
    struct instance_setup setup = {0};
    struct instance ground;
    struct model_memory memory;
    struct residents *r = err_calloc(e, 1, sizeof *r, "models");
    const struct residents_owner owner = {job->changeover, changeover_fetch, changeover_hear};
    if (w->rank == 0 && e->code == ERR_NONE && job->open(job->client.context, w->n_ranks, e) == 0)
        setup = start_setup(job->run, 1, 1, false);
    setup.n_places = CHANGEOVER_PLACES;
    fatal_agree(w, e);
    instance_open_ground(&ground, w, &setup, e);
    model_memory_share(&memory, &ground, -1, w->rank == 0 ? job->run->kv_cache_bytes : -1, w, e);
    if (w->rank == 0)
        (void)changeover_start(job->changeover, &ground, (size_t)memory.kv, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a failure has ended in fatal_agree() */
    (void)residents_open(r, w, &ground, (size_t)memory.kv, &owner, e);
    fatal_agree(w, e);
    loop_run_models(&r->models, &job->client, e);
    if (w->rank == 0)
        job->report(job->client.context, ground.ops->name, w->n_ranks, e);
    fatal_agree(w, e);
    residents_close(r);
    if (w->rank == 0)
        job->close(job->client.context);
    instance_close(&ground);
    free(r);
}
