/* commands/models/many.c - see many.h. */
#include "commands/models/many.h"
#include "commands/models/host_cache.h"
#include "commands/start/start.h"
#include "commands/thread_cores.h"
#include "coordinator/drafts/draft_options.h"
#include "rank/measure/meter.h"
#include "rank/world/fatal.h"
#include "rank/world/rank_log.h"

#include <stdlib.h>
#include <string.h>

#define HOST_THREADS 4 /* for sockets or files, two that tokenize, one that opens models */

int many_check(const struct service_options *service, const struct models_options *models, const struct world *w,
               struct err *e)
{
    const struct run_options *run = &service->run;
    if (run->model != NULL)
        return ERR(e, ERR_USAGE, "--model and --models-dir: expected one of them");
    char folder[DRAFT_FOLDER_BYTES];
    if (draft_folder(folder, run, e) != 0)
        return -1;
    enum draft_kind kind;
    if (draft_kind(&kind, run, e) != 0)
        return -1;
    if (kind == DRAFT_LAYER)
        return ERR(e, ERR_USAGE, "the method \"mtp\" and --models-dir: drafts are made for the one model of --model");
    if (folder[0] != '\0')
        return ERR(e, ERR_USAGE, "a draft model (%s) and --models-dir: it drafts for the one model of --model", folder);
    if (service->served_name != NULL)
        return ERR(e, ERR_USAGE, "--served-model-name and --models-dir: models have the names of their folders");
    if (run_replica_size(run, w->n_ranks) != w->n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %lld and --models-dir: every model is on all %d ranks",
                   (long long)run->tensor_parallel, w->n_ranks);
    if (run->quantise != WEIGHTS_AS_THEY_ARE || run->head_dtype != WEIGHTS_AS_THEY_ARE || run->inputs != INPUTS_OFF)
        return ERR(e, ERR_USAGE,
                   "--quantization, --head-dtype and --quantized-activations are for one model, not for those of "
                   "--models-dir");
    return models_options_check(models, e);
}

static void open_fleet(struct fleet *f, struct instance *ground, const struct fleet_setup *setup,
                       const struct model_memory *memory, struct host_use *host, const struct world *w, struct err *e)
{
    struct cores cores;
    if (w->rank != 0)
        return;
    cores_widen(&cores);
    (void)fleet_open(f, setup, ground->ops, w->n_ranks, memory, host, e);
    cores_restore(&cores);
}

/* Rank 0 unpacks archives, and all ranks read what is there. Collective. */
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

/* The first rank of each host keeps files for all. Collective. */
static void open_host_cache(struct host_cache *c, struct residents *r, const struct models_options *o,
                            const struct world *w, struct err *e)
{
    long long limit = w->rank == 0 ? (long long)o->host_cache : 0;
    MPI_CHECK(MPI_Bcast(&limit, 1, MPI_LONG_LONG, 0, w->comm));
    if (limit == 0 || w->node_rank != 0 || host_cache_check(limit, e) != 0 || host_cache_open(c, limit, e) != 0)
        return;
    r->files = (struct residents_files){c, host_cache_loaded, host_cache_dropped};
}

int many_run(struct world *w, const struct fleet_setup *fleet, struct err *e)
{
    struct instance_setup setup = {0};
    const struct service_options *o = fleet->service;
    struct instance ground;
    struct meter meter;
    struct model_memory memory;
    struct host_cache host_cache = {0};
    struct host_use host = {.host_cache = &host_cache};
    struct fleet *f = err_calloc(e, 1, sizeof *f, "models");
    struct residents *r = err_calloc(e, 1, sizeof *r, "models");
    const struct residents_owner owner = {f, fleet_fetch, fleet_hear};
    const struct loop_client client = {
        .context = f, .next = fleet_next, .accept = fleet_accept, .masks = fleet_masks, .signal = fleet_signal};
    int status = 0;
    if (w->rank == 0 && e->code == ERR_NONE) {
        setup = start_setup(&o->run, 1, 1, false);
        setup.host_threads = HOST_THREADS;
    }
    fatal_agree(w, e);
    (void)rank_log_open(w, w->rank == 0 ? o->log_dir : NULL, e);
    fatal_agree(w, e);
    instance_open_ground(&ground, w, &setup, e);
    host_use_open(&host, &ground, w);
    model_memory_share(&memory, &ground, w->rank == 0 ? fleet->models->memory : -1,
                       w->rank == 0 ? o->run.kv_cache_bytes : -1, w, e);
    open_fleet(f, &ground, fleet, &memory, &host, w, e);
    check_cache(f, fleet->models, w, e);
    fatal_agree(w, e);
    (void)meter_open(&meter, &ground.engine, METER_INTERVAL, fleet_ranks, f, e);
    fatal_agree(w, e);
    (void)residents_open(r, w, &ground, (size_t)memory.kv, &owner, e);
    open_host_cache(&host_cache, r, fleet->models, w, e);
    fatal_agree(w, e);
    if (w->rank == 0)
        (void)fleet_start(f, e);
    fatal_agree(w, e);
    loop_run_models(&r->models, &client, e);
    if (w->rank == 0)
        status = fleet_close(f, e);
    residents_close(r);
    host_cache_close(&host_cache);
    host_use_close(&host);
    meter_close(&meter);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    instance_close(&ground);
    free(r);
    free(f);
    return status;
}
