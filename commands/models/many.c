/* commands/models/many.c - see many.h. */
#include "commands/models/many.h"
#include "commands/models/host_cache.h"
#include "commands/models/outpost.h"
#include "commands/start/start.h"
#include "commands/thread_cores.h"
#include "coordinator/drafts/draft_options.h"
#include "rank/measure/meter.h"
#include "rank/world/fatal.h"
#include "rank/world/rank_log.h"

#include <stdlib.h>
#include <string.h>

#define HOST_THREADS 4 /* for sockets or files, two that tokenize, one that opens models */

int many_check_run(const struct run_options *run, const char *option, struct err *e)
{
    if (run->model != NULL)
        return ERR(e, ERR_USAGE, "--model and --%s: expected one of them", option);
    char folder[DRAFT_FOLDER_BYTES];
    if (draft_folder(folder, run, e) != 0)
        return -1;
    enum draft_kind kind;
    if (draft_kind(&kind, run, e) != 0)
        return -1;
    if (kind == DRAFT_LAYER)
        return ERR(e, ERR_USAGE, "the method \"mtp\" and --%s: drafts are made for the one model of --model", option);
    if (folder[0] != '\0')
        return ERR(e, ERR_USAGE, "a draft model (%s) and --%s: it drafts for the one model of --model", folder, option);
    if (run->quantise != WEIGHTS_AS_THEY_ARE || run->head_dtype != WEIGHTS_AS_THEY_ARE || run->inputs != INPUTS_OFF)
        return ERR(e, ERR_USAGE,
                   "--quantization, --head-dtype and --quantized-activations are for one model, not for those of --%s",
                   option);
    return 0;
}

int many_check(const struct service_options *service, const struct models_options *models, const struct world *w,
               struct err *e)
{
    const struct run_options *run = &service->run;
    if (many_check_run(run, "models-dir", e) != 0)
        return -1;
    if (service->served_name != NULL)
        return ERR(e, ERR_USAGE, "--served-model-name and --models-dir: models have the names of their folders");
    if (run_replica_size(run, w->n_ranks) != w->n_ranks && models->host_cache > 0)
        return ERR(e, ERR_USAGE, "--host-cache and --tensor-parallel %lld of %d ranks: it works for one set of ranks",
                   (long long)run->tensor_parallel, w->n_ranks);
    return models_options_check(models, e);
}

/* The parts of one job on this rank. */
struct many {
    struct fleet *fleet;     /* rank 0's */
    struct outpost *outpost; /* of the first rank of another set */
    struct crew *crew;       /* of one of the two; NULL on other ranks */
    struct residents *residents;
    struct instance ground;
    struct meter meter;
    struct model_memory memory;
    struct host_cache host_cache;
    struct host_use host;
};

static void open_fleet(struct many *m, const struct fleet_setup *setup, const struct world *w, struct err *e)
{
    struct cores cores;
    if (w->rank != 0)
        return;
    cores_widen(&cores);
    (void)fleet_open(m->fleet, setup, m->ground.ops, &m->ground.world, &m->memory, &m->host, e);
    cores_restore(&cores);
}

/* Rank 0 unpacks archives, and all ranks read the unpacked files. Collective. */
static void check_cache(const struct fleet *f, const struct models_options *o, const struct world *w, struct err *e)
{
    struct {
        char dir[sizeof f->archives.dir], token[sizeof f->archives.token];
    } cache = {0};
    if (w->rank == 0 && e->code == ERR_NONE && o->cache != NULL) {
        memcpy(cache.dir, f->archives.dir, sizeof cache.dir);
        memcpy(cache.token, f->archives.token, sizeof cache.token);
    }
    MPI_CHECK(MPI_Bcast(&cache, sizeof cache, MPI_BYTE, 0, w->comm));
    if (cache.dir[0] != '\0')
        (void)archive_cache_check(cache.dir, cache.token, e);
}

/* The first rank of each host caches files for all. Collective. */
static void open_host_cache(struct host_cache *c, struct residents *r, const struct models_options *o,
                            const struct world *w, struct err *e)
{
    long long limit = w->rank == 0 ? (long long)o->host_cache : 0;
    MPI_CHECK(MPI_Bcast(&limit, 1, MPI_LONG_LONG, 0, w->comm));
    if (limit == 0 || w->node_rank != 0 || host_cache_check(limit, e) != 0 || host_cache_open(c, limit, e) != 0)
        return;
    r->files = (struct residents_files){c, host_cache_loaded, host_cache_dropped};
}

/* Rank 0 and the first ranks of the other sets connect; no-op with one set. Collective. */
static void link_sets(struct many *m, const struct service_options *o, struct world *w, double timeout, struct err *e)
{
    const struct world *set = &m->ground.world;
    struct link_card card = {0};
    struct cores cores;
    if (set->n_replicas == 1)
        return;
    outpost_share_options(m->outpost, o, w, e);
    if (w->rank == 0 && e->code == ERR_NONE)
        (void)fleet_link(m->fleet, &card, w->on_one_host, timeout, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&card, sizeof card, MPI_BYTE, 0, w->comm));
    cores_widen(&cores);
    if (set->rank == 0 && w->rank != 0)
        (void)outpost_open(m->outpost, &card, set, m->ground.ops, (size_t)m->memory.kv, e);
    cores_restore(&cores);
    fatal_agree(w, e);
}

/* Zeroed parts; on rank 0 setup, too. Collective. */
static void open_parts(struct many *m, struct instance_setup *setup, const struct fleet_setup *fleet, struct world *w,
                       struct err *e)
{
    const struct service_options *o = fleet->service;
    struct cores cores;
    m->fleet = err_calloc(e, 1, sizeof *m->fleet, "models");
    m->outpost = err_calloc(e, 1, sizeof *m->outpost, "models");
    m->residents = err_calloc(e, 1, sizeof *m->residents, "models");
    m->host.host_cache = &m->host_cache;
    if (w->rank == 0 && e->code == ERR_NONE) {
        *setup = start_setup(&o->run, 1, 1, false);
        cores_widen(&cores);
        setup->host_threads = cores.widened ? 0 : HOST_THREADS;
        cores_restore(&cores);
        setup->n_places = models_options_most(fleet->models);
    }
    fatal_agree(w, e);
    (void)rank_log_open(w, w->rank == 0 ? o->log_dir : NULL, e);
    fatal_agree(w, e);
    instance_open_ground(&m->ground, w, setup, e);
    world_part(&m->ground.world);
    m->crew = w->rank == 0 ? &m->fleet->crew : m->ground.world.rank == 0 ? &m->outpost->crew : NULL;
    host_use_open(&m->host, &m->ground, w);
}

static void close_parts(struct many *m)
{
    instance_close(&m->ground);
    free(m->residents);
    free(m->outpost);
    free(m->fleet);
    free(m);
}

/* Memory, models, and the links to the ranks that hold them. Collective. */
static void open_models(struct many *m, const struct fleet_setup *fleet, double timeout, struct world *w, struct err *e)
{
    const struct service_options *o = fleet->service;
    const struct residents_owner owner = {m->crew, crew_fetch, crew_hear};
    model_memory_share(&m->memory, &m->ground, w->rank == 0 ? fleet->models->memory : -1,
                       w->rank == 0 ? o->run.kv_cache_bytes : -1, w, e);
    open_fleet(m, fleet, w, e);
    check_cache(m->fleet, fleet->models, w, e);
    fatal_agree(w, e);
    (void)meter_open(&m->meter, &m->ground.engine, METER_INTERVAL, crew_ranks, m->crew, e);
    fatal_agree(w, e);
    (void)residents_open(m->residents, &m->ground.world, &m->ground, (size_t)m->memory.kv, &owner, e);
    open_host_cache(&m->host_cache, m->residents, fleet->models, w, e);
    fatal_agree(w, e);
    link_sets(m, o, w, timeout, e);
}

int many_run(struct world *w, const struct fleet_setup *fleet, struct err *e)
{
    struct instance_setup setup = {0};
    struct many *m = err_calloc(e, 1, sizeof *m, "models");
    int status = 0;
    fatal_agree(w, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a failure has ended in fatal_agree() */
    open_parts(m, &setup, fleet, w, e);
    open_models(m, fleet, setup.step_timeout, w, e);
    const struct loop_client client = {
        .context = m->crew, .next = crew_next, .accept = crew_accept, .masks = crew_masks, .signal = crew_signal};
    if (w->rank == 0)
        (void)fleet_start(m->fleet, e);
    fatal_agree(w, e);
    loop_run_models(&m->residents->models, &client, e);
    outpost_close(m->outpost);
    if (w->rank == 0)
        status = fleet_close(m->fleet, e);
    residents_close(m->residents);
    host_cache_close(&m->host_cache);
    host_use_close(&m->host);
    meter_close(&m->meter);
    if (e->code == ERR_COMM) /* a set is lost: an agreement is impossible */
        fatal(e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    close_parts(m);
    return status;
}
