/* commands/models/serve_models.c - see serve_models.h. */
#include "commands/models/serve_models.h"
#include "commands/models/fleet.h"
#include "commands/models/host_cache.h"
#include "commands/serve.h"
#include "commands/start/start.h"
#include "commands/thread_cores.h"
#include "rank/measure/meter.h"
#include "rank/world/fatal.h"
#include "rank/world/rank_log.h"

#include <stdlib.h>
#include <string.h>

#define HOST_THREADS 4 /* for sockets, two that tokenize, one that opens models */
#define SHARE        8 /* of ten parts of the free memory, for models */

static int check_options(const struct serve_options *o, const struct world *w, struct err *e)
{
    if (o->service.run.model != NULL)
        return ERR(e, ERR_USAGE, "--model and --models-dir: expected one of them");
    if (o->service.served_name != NULL)
        return ERR(e, ERR_USAGE, "--served-model-name and --models-dir: models have the names of their folders");
    if (run_replica_size(&o->service.run, w->n_ranks) != w->n_ranks)
        return ERR(e, ERR_USAGE, "--tensor-parallel %lld and --models-dir: every model is on all %d ranks",
                   (long long)o->service.run.tensor_parallel, w->n_ranks);
    return serve_check(o, e);
}

/* Eight tenths of what is free on the rank that has the least. Collective. */
static int64_t memory_of_rank(const struct instance *ground, const struct world *w)
{
    const struct ops *ops = ground->ops;
    size_t available = ops->free_memory((struct queue *)&ground->q) / 10 * SHARE;
    long long mine = (long long)(available / (ops->shares_host_memory ? (size_t)w->n_node_ranks : 1)), least = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &least, 1, MPI_LONG_LONG, MPI_MIN, w->comm));
    return least;
}

/* Weights and working memory get one half, keys and values the other, where the options do not say. */
static int divide_memory(struct model_memory *m, const struct serve_options *o, struct err *e)
{
    int64_t kv = o->service.run.kv_cache_bytes;
    m->all = o->model_memory > 0 ? o->model_memory : m->all;
    m->kv = kv >= 0 ? kv : m->all / 2;
    if (m->kv < (int64_t)KV_UNIT_LEAST)
        return ERR(e, ERR_USAGE, "%lld bytes for keys and values of all models (--kv-cache-memory-bytes, or half of "
                   "--model-memory): expected %zu at least", (long long)m->kv, KV_UNIT_LEAST);
    if (m->kv >= m->all)
        return ERR(e, ERR_USAGE, "--kv-cache-memory-bytes %lld: the keys and values of all models are a part of the %lld "
                   "bytes that models may take (--model-memory)", (long long)m->kv, (long long)m->all);
    return 0;
}

/* Collective. */
static void share_memory(struct model_memory *m, const struct instance *ground, const struct serve_options *o,
                         struct world *w, struct err *e)
{
    m->all = memory_of_rank(ground, w);
    if (w->rank == 0)
        (void)divide_memory(m, o, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(m, sizeof *m, MPI_BYTE, 0, w->comm));
}

static void open_fleet(struct fleet *f, struct instance *ground, const struct serve_options *o,
                       const struct model_memory *memory, struct host_use *host, const struct world *w, struct err *e)
{
    struct cores cores;
    if (w->rank != 0)
        return;
    cores_widen(&cores);
    (void)fleet_open(f, o, ground->ops, w->n_ranks, memory, host, e);
    cores_restore(&cores);
}

/* Rank 0 unpacks archives, and all ranks read what is there. Collective. */
static void check_cache(const struct fleet *f, const struct serve_options *o, const struct world *w, struct err *e)
{
    struct {
        char dir[sizeof f->archives.dir], token[sizeof f->archives.token];
    } cache = {0};
    if (w->rank == 0 && e->code == ERR_NONE && o->models_cache != NULL) {
        memcpy(cache.dir, f->archives.dir, sizeof cache.dir);
        memcpy(cache.token, f->archives.token, sizeof cache.token);
    }
    MPI_CHECK(MPI_Bcast(&cache, sizeof cache, MPI_BYTE, 0, w->comm));
    if (cache.dir[0] != '\0')
        (void)archive_cache_check(cache.dir, cache.token, e);
}

/* The first rank of each host keeps files for all. Collective. */
static void open_host_cache(struct host_cache *c, struct residents *r, const struct serve_options *o,
                            const struct world *w, struct err *e)
{
    long long limit = w->rank == 0 ? (long long)o->host_cache : 0;
    MPI_CHECK(MPI_Bcast(&limit, 1, MPI_LONG_LONG, 0, w->comm));
    if (limit == 0 || w->node_rank != 0 || host_cache_check(limit, e) != 0 || host_cache_open(c, limit, e) != 0)
        return;
    r->files = (struct residents_files){c, host_cache_loaded, host_cache_dropped};
}

int serve_models(struct world *w, const struct serve_options *o, struct err *e)
{
    struct instance_setup setup = {0};
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
    if (w->rank == 0 && e->code == ERR_NONE && check_options(o, w, e) == 0) {
        setup = start_setup(&o->service.run, 1, 1, false);
        setup.host_threads = HOST_THREADS;
    }
    fatal_agree(w, e);
    (void)rank_log_open(w, w->rank == 0 ? o->service.log_dir : NULL, e);
    fatal_agree(w, e);
    instance_open_ground(&ground, w, &setup, e);
    host_use_open(&host, &ground, w);
    share_memory(&memory, &ground, o, w, e);
    open_fleet(f, &ground, o, &memory, &host, w, e);
    check_cache(f, o, w, e);
    fatal_agree(w, e);
    (void)meter_open(&meter, &ground.engine, METER_INTERVAL, fleet_ranks, f, e);
    fatal_agree(w, e);
    (void)residents_open(r, w, &ground, (size_t)memory.kv, &owner, e);
    open_host_cache(&host_cache, r, o, w, e);
    fatal_agree(w, e);
    if (w->rank == 0)
        fleet_start(f);
    loop_run_models(&r->models, &client, e);
    if (w->rank == 0)
        status = fleet_close(f);
    residents_close(r);
    host_cache_close(&host_cache);
    host_use_close(&host);
    meter_close(&meter);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    instance_close(&ground);
    free(r);
    free(f);
    return status;
}
