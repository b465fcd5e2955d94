/* rank/instance/instance.c - see instance.h. Every phase ends in an agreement of all ranks. */
#include "rank/instance/instance.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/alone.h"
#include "kernels/invariance.h"
#include "rank/instance/fit.h"
#include "rank/instance/quantised_inputs.h"
#include "rank/load/quantise.h"
#include "rank/watch/watch.h"
#include "rank/world/agree.h"
#include "rank/world/cores.h"
#include "rank/world/device.h"
#include "rank/world/fatal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB             (1024.0 * 1024.0)
#define GPU_THREADS     2 /* threads of a rank with a GPU: one that enqueues, and NCCL's */
#define HOST_LINE_BYTES 160

static void say_quantization(const struct model_config *m)
{
    const struct quantization *q = &m->quantization;
    char text[140];
    if (q->format == FORMAT_NONE)
        return;
    quantization_describe(q, text, sizeof text);
    log_info("weights are quantised: %s; activations: declared %s, %s", text, quantization_activations_name(q),
             m->quantised_inputs ? "quantised" : "not quantised");
}

/* Reports the states that a head is fed: with states of layers other than in training its drafts are seldom right. */
static void say_drafting(const struct model_config *m)
{
    const struct model_drafting *d = &m->drafting;
    if (model_is_eagle(m))
        log_info("drafts: an EAGLE-3 head reads the inputs of layers %d, %d and %d; %d of %d tokens, %s embedding",
                 d->tap[0], d->tap[1], d->tap[2], d->vocab, m->vocab, d->embeds ? "its own" : "the model's");
    else if (d->predicts)
        log_info("drafts: layer %d of the checkpoint predicts further tokens", m->first_layer);
}

static void say_weights(const struct instance *i, bool dummy, int rank)
{
    say_quantization(&i->network.config);
    const struct load_report *r = &i->load;
    double mine = (double)weight_map_bytes(&i->network.map) / MIB;
    if (dummy) {
        log_info("weights: noise, %.1f MiB on rank %d", mine, rank);
        return;
    }
    log_info("weights: %.1f MiB on rank %d; all ranks read %.1f MiB in %.3f s, %.0f MiB/s", mine, rank,
             r->bytes_read / MIB, r->seconds, r->bytes_read / MIB / (r->seconds > 0 ? r->seconds : 1));
    if (r->bus_rate > 0)
        log_info(
            "weights: %.1f GB/s on the slowest device, %.0f %% of the %.1f GB/s that pinned memory reaches with all "
            "ranks at once",
            r->device_rate / 1e9, 100 * r->bus_share, r->bus_rate / 1e9);
    log_info("host memory: at most %.1f MiB resident in any rank", r->peak_host_bytes / MIB);
}

/* Reports one line per host if there are several, and how the ranks spent the time. Collective. */
static void say_loading(const struct instance *i, const struct load_stats *stats, struct world *w, struct err *e)
{
    const struct load_report *r = &i->load;
    char *line = NULL;
    int n = load_hosts(&line, HOST_LINE_BYTES, stats, w, e);
    for (int k = 0; k < n && n > 1; k++)
        log_note("weights: %s", line + (size_t)k * HOST_LINE_BYTES);
    free(line);
    log_info(
        "loading, mean of a rank: window %.3f s, waiting for reads %.3f, the device %.3f, other ranks %.3f, placing "
        "%.3f; ranks read %s, %d threads into %d slots",
        r->part[LOAD_WINDOW], r->part[LOAD_READING], r->part[LOAD_DEVICE], r->part[LOAD_RANKS], r->part[LOAD_PLACING],
        load_way_name(r), r->setup.n_threads, r->setup.n_slots);
}

/* Reports how keys and values are stored if that differs from the checkpoint or its config. */
static void say_kv(const struct instance *i, bool calibrated)
{
    const struct model_config *m = &i->network.config;
    if (m->kv_fp8)
        log_info("keys and values: FP8 (--kv-cache-dtype), scales: %s%s", calibrated ? "the checkpoint's" : "1",
                 i->ops->shares_host_memory ? "" : "; attention of prompts is the general one");
    else if (m->quantization.kv != KV_DECLARED_WIDE)
        log_info("keys and values: %s, though the checkpoint was calibrated for %s", dtype_name(i->q.act),
                 m->quantization.kv == KV_DECLARED_FP8 ? "FP8 (--kv-cache-dtype fp8)"
                                                       : "numbers that are not implemented");
}

static void say_memory(const struct instance *i, const struct limits *l, int rank)
{
    size_t bytes = fit_kv_bytes(&i->network.config, &i->network.shard, l, i->q.act);
    log_info(
        "KV cache: %d blocks of %d tokens, %.1f MiB on rank %d; %d sequences of up to %d tokens, %d tokens per step",
        l->n_blocks, KV_BLOCK_TOKENS, (double)bytes / MIB, rank, l->max_seqs, l->max_len, l->max_batch_tokens);
    if (limits_kinds(l) > 1)
        log_info("KV cache: %d more blocks for layers that see %d tokens", l->n_window_blocks, l->window);
}

static int ask_transport(void *comm, struct err *e)
{
    return comm_check(comm, e);
}

/* Opened before loading, so that a rank that is killed meanwhile is named. */
static int open_watch(struct instance *i, double timeout, struct err *e)
{
    char device[64] = "cpu", model[64];
    if (!i->ops->shares_host_memory)
        i->ops->async->identify(&i->q, device, model, sizeof device);
    const struct watch_question question = {ask_transport, &i->engine.comm};
    return watch_open(&i->watch, &i->world, device, question, timeout, e);
}

/* World, device, watch. dtype: of the weights, or the ground's. */
static void open_ground(struct instance *i, struct world *w, enum dtype dtype, const struct instance_setup *setup,
                        struct err *e)
{
    (void)device_open(&i->ops, &i->q, (enum device_choice)setup->device, dtype,
                      setup->threads > 0 ? setup->threads : w->n_threads, w, e);
    fatal_agree(w, e);
    if (setup->batch_invariant)
        make_batch_invariant(i->ops, &i->q);
    world_split(w, setup->replica_size, &i->world);
    if (i->world.n_ranks == 1)
        mark_alone(i->ops, &i->q);
    cores_check(w, i->ops->shares_host_memory ? i->q.n_threads : GPU_THREADS, w->rank == 0 ? setup->host_threads : 0);
    if (comm_check_pieces(i->ops, i->world.n_ranks, setup->limits.sum_pieces, e) == 0)
        (void)open_watch(i, setup->step_timeout, e);
    fatal_agree(w, e);
}

/* If the tokens of a step were not given, reduces them to what memory allows. Collective. */
static void choose_step(struct instance *i, struct world *w, const struct fit_part *part, int n_parts,
                        struct instance_setup *setup, struct err *e)
{
    int wanted = part->limits.max_batch_tokens, mine = wanted, all = wanted;
    int sharers = i->ops->shares_host_memory ? w->n_node_ranks : 1;
    const char *limit;
    if (!setup->tokens_chosen)
        return;
    if (e->code == ERR_NONE)
        mine = fit_step(part, n_parts, i->ops,
                        fit_free_memory(i->ops, &i->q, w->n_node_ranks, &limit) / (size_t)sharers, e);
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->comm));
    if (all < wanted)
        log_info("%d tokens per step instead of %d: memory is short", all, wanted);
    setup->limits.max_batch_tokens = all;
}

/* part: this model, and others that are opened with it. */
static int check_fit(const struct fit_part *part, int n_parts, const struct instance_setup *setup,
                     const struct world *w, struct instance *i, struct err *e)
{
    return fit_check(part, n_parts, w, i->ops, &i->q,
                     setup->kv_whole != 0 && setup->kv_bytes < 0 ? INT64_MAX : setup->kv_bytes, e);
}

static struct fit_part part_of(const struct instance *i, const struct limits *l)
{
    return (struct fit_part){&i->network.config, &i->network.shard, NULL, *l, i->q.act};
}

/* Allocates blocks for keys and values, and as many for the draft model unless it is NULL. -1 on all ranks if one
 * failed. */
static int open_blocks(struct instance *i, struct instance *draft, const struct world *w, struct instance_setup *setup,
                       struct err *e)
{
    const struct limits small = limits_of_draft_model(&setup->limits);
    struct fit_part part[FIT_PARTS] = {part_of(i, &setup->limits)};
    if (draft != NULL)
        part[1] = part_of(draft, &small);
    (void)fit_kv(&setup->limits, part, draft != NULL ? 2 : 1, w, i->ops, &i->q, setup->kv_bytes, e);
    if (agree_failed(w, e))
        return -1;
    const struct limits *l = &setup->limits;
    const int n_blocks[KV_KINDS] = {l->n_blocks, l->n_window_blocks};
    (void)network_open_kv(&i->network, n_blocks, limits_kinds(l) > 1 ? l->window : 0, i->ops, &i->q, e);
    if (draft != NULL && e->code == ERR_NONE)
        (void)network_open_kv(&draft->network, (const int[KV_KINDS]){l->n_blocks}, 0, i->ops, &draft->q, e);
    if (draft != NULL && draft->network.config.drafting.n_taps > 0 && e->code == ERR_NONE) {
        (void)taps_open(&draft->taps, &i->network, &draft->network, l->n_blocks, l->max_seqs, l->max_batch_tokens,
                        i->ops, &draft->q, e);
        i->network.taps = draft->network.taps = &draft->taps;
    }
    return agree_failed(w, e) ? -1 : 0;
}

/* Refuses --batch-invariant where a sum over the ranks depends on the number of its elements. m NULL: not known yet. */
static int check_sums(const struct comm *c, const struct model_config *m, const struct instance_setup *setup,
                      struct err *e)
{
    if (!setup->batch_invariant || c->n_ranks <= 2)
        return 0;
    if (!c->ops->ordered)
        return ERR(e, ERR_UNSUPPORTED,
                   "--batch-invariant: %d ranks whose sums depend on the batch (%s), expected GPUs of one host that "
                   "share memory, or at most 2 ranks",
                   c->n_ranks, c->name);
    if (m != NULL && m->qk_norm_row && !c->ops->floats_ordered)
        return ERR(e, ERR_UNSUPPORTED,
                   "--batch-invariant: %s normalises queries over %d ranks, expected at most 2 on GPUs", m->model_type,
                   c->n_ranks);
    return 0;
}

/* Keys and values; then working memory. */
static int open_engines(struct instance *i, struct instance *draft, const struct world *w, struct instance_setup *setup,
                        struct err *e)
{
    enum step_choice step = (enum step_choice)setup->step;
    if (open_blocks(i, draft, w, setup, e) != 0 ||
        engine_open(&i->engine, &i->world, &i->network, &setup->limits, i->ops, &i->q, step, NULL, e) != 0)
        return -1;
    if (check_sums(&i->engine.comm, &i->network.config, setup, e) != 0)
        return -1;
    const struct limits small = limits_of_draft_model(&setup->limits);
    if (draft != NULL) {
        taps_attach(&draft->taps, i->engine.block_table, limits_blocks_per_slot(&setup->limits));
        draft->network.last_token = i->engine.sampler.last_token + setup->limits.max_seqs;
    }
    if (draft != NULL && draft->network.config.drafting.n_taps > 0) /* supports only one way */
        step = STEP_AUTO;
    return draft == NULL ? 0
                         : engine_open(&draft->engine, &draft->world, &draft->network, &small, draft->ops, &draft->q,
                                       step, NULL, e);
}

/* Its queue shares the ground's stream, but has its own activation type, which depends on the weights, and its own
 * failures. */
static void stand_on(struct instance *i, const struct instance *ground, enum dtype dtype)
{
    i->ground = ground;
    i->world = ground->world;
    i->ops = ground->ops;
    i->q = ground->q;
    i->q.act = ground->ops->act_type(dtype);
}

/* Gives the draft model its ranks: limits.draft_ranks becomes 0 if these are all. Collective. */
static void choose_ranks(struct draft_model *d, const struct instance *i, struct instance_setup *setup, struct err *e)
{
    struct limits *l = &setup->limits;
    int most = i->world.n_ranks;
    if (l->draft_ranks > most)
        ERR(e, ERR_USAGE, "--draft-tensor-parallel-size %d: the model has %d rank%s, expected at most as many",
            l->draft_ranks, most, most == 1 ? "" : "s");
    if (l->draft_ranks >= most)
        l->draft_ranks = 0;
    if (l->draft_ranks > 0)
        world_first(&i->world, l->draft_ranks, &d->instance.world);
}

/* Does this rank hold a part of the draft model? */
static bool holds_draft_model(const struct instance *i, const struct limits *l)
{
    return l->draft_ranks == 0 || i->world.rank < l->draft_ranks;
}

/* This rank takes part in the draft model's steps by doing nothing. */
static void leave_drafting(struct draft_model *d, const struct limits *l)
{
    const struct limits small = limits_of_draft_model(l);
    checkpoint_close(&d->checkpoint);
    d->instance.network.config = d->config;
    engine_open_elsewhere(&d->instance.engine, &d->instance.world, &d->instance.network, &small);
}

/* A head's activations have the main model's type. */
static int check_head(const struct draft_model *d, const struct instance *i, struct err *e)
{
    if (d->config.drafting.n_taps == 0 || d->instance.q.act == i->q.act)
        return 0;
    return ERR(e, ERR_UNSUPPORTED, "draft model: a head of %s for a model of %s, expected the same type on %s",
               dtype_name(d->instance.q.act), dtype_name(i->q.act), i->ops->name);
}

/* Loads the weights and reports on them. c is closed. Collective; a failure ends the job. */
static void load_share(struct instance *i, struct world *w, const struct model_config *m, struct checkpoint *c,
                       const struct shard *shard, struct instance_setup *setup, struct err *e)
{
    struct load_stats stats = {0};
    (void)network_open(&i->network, m, shard, setup->dummy ? NULL : c, false, i->ops, &i->q, e);
    fatal_agree(w, e);
    (void)quantised_inputs_agree(&i->network, &i->world, setup->inputs == INPUTS_ON, i->ops, e);
    fatal_agree(w, e);
    ops_range_begin(i->ops, "load", (int64_t)weight_map_bytes(&i->network.map));
    if (setup->dummy)
        load_dummy(&i->network, i->ops, &i->q, setup->dummy_seed);
    else
        (void)load_weights(&i->network, c, w, i->ops, &i->q, &setup->load, (enum progress_mode)setup->progress,
                           setup->with_bus != 0, &stats, e);
    ops_range_end(i->ops);
    fatal_agree(w, e);
    double began = seconds_now();
    (void)load_quantise(&i->network, &i->world, i->ops, &i->q, e);
    fatal_agree(w, e);
    if (m->weights_fp8 || m->head_fp8)
        log_info("%s became FP8 with a scale for each row, in %.3f s",
                 !m->weights_fp8 ? "the head (--head-dtype)"
                 : m->head_fp8   ? "weights and the head"
                                 : "weights (--quantization)",
                 seconds_now() - began);
    bool calibrated = c->kv_scale != NULL;
    checkpoint_close(c);
    load_report(&i->network, &stats, w, &i->load);
    i->load.setup = setup->load;
    say_weights(i, setup->dummy != 0, w->rank);
    say_drafting(m);
    say_kv(i, calibrated);
    if (!setup->dummy)
        say_loading(i, &stats, w, e);
}

void instance_open(struct instance *i, struct world *w, struct model_config *m, struct checkpoint *c,
                   struct instance_setup *setup, struct err *e)
{
    instance_open_drafted(i, NULL, w, m, c, setup, e);
}

void instance_open_drafted(struct instance *i, struct draft_model *d, struct world *w, struct model_config *m,
                           struct checkpoint *c, struct instance_setup *setup, struct err *e)
{
    struct shard shard, small;
    memset(i, 0, sizeof *i);
    MPI_CHECK(MPI_Bcast(setup, sizeof *setup, MPI_BYTE, 0, w->comm));
    bool drafted = d != NULL && setup->limits.draft_len > 0, drafts = false;
    (void)load_share_headers(m, c, w, e);
    fatal_agree(w, e);
    if (drafted)
        (void)load_share_headers(&d->config, &d->checkpoint, w, e);
    fatal_agree(w, e);
    open_ground(i, w, m->dtype, setup, e);
    setup->limits.mask_words = (m->vocab + 31) / 32;
    shard_make(&shard, m, i->world.rank, i->world.n_ranks);
    struct fit_part part[FIT_PARTS] = {{m, &shard, setup->dummy ? NULL : c, setup->limits, i->q.act}};
    if (drafted) {
        stand_on(&d->instance, i, d->config.dtype);
        choose_ranks(d, i, setup, e);
        drafts = holds_draft_model(i, &setup->limits);
        shard_make(&small, &d->config, d->instance.world.rank, d->instance.world.n_ranks);
        (void)check_head(d, i, e);
        part[1] = (struct fit_part){&d->config, &small, setup->dummy ? NULL : &d->checkpoint,
                                    limits_of_draft_model(&setup->limits), d->instance.q.act};
    }
    choose_step(i, w, part, drafts ? 2 : 1, setup, e);
    fatal_agree(w, e);
    fit_kinds(&setup->limits, m);
    part[0].limits = setup->limits;
    part[1].limits = limits_of_draft_model(&setup->limits);
    (void)check_fit(part, drafts ? 2 : 1, setup, w, i, e);
    fatal_agree(w, e);
    load_share(i, w, m, c, &shard, setup, e);
    m->quantised_inputs = i->network.config.quantised_inputs;
    quantised_inputs_say(&i->network, i->ops->inputs, setup->inputs != INPUTS_OFF, setup->dummy != 0);
    if (drafts)
        load_share(&d->instance, setup->limits.draft_ranks > 0 ? &d->instance.world : w, &d->config, &d->checkpoint,
                   &small, setup, e);
    (void)open_engines(i, drafts ? &d->instance : NULL, w, setup, e);
    fatal_agree(w, e);
    if (drafted && !drafts)
        leave_drafting(d, &setup->limits);
    observers_add(&i->engine.observers, watch_observer(i->watch));
    say_memory(i, &setup->limits, w->rank);
    if (drafts)
        say_memory(&d->instance, &d->instance.engine.limits, w->rank);
}

void instance_run(struct instance *i, struct draft_model *d, const struct loop_client *client, struct err *e)
{
    struct loop_models models = {.ground = &i->engine, .engine = {&i->engine}};
    if (i->engine.limits.draft_len > 0) {
        models.engine[PLAN_DRAFT_MODEL] = &d->instance.engine;
        d->instance.engine.observers = i->engine.observers;
    }
    loop_run_models(&models, client, e);
    if (models.engine[PLAN_DRAFT_MODEL] != NULL)
        d->instance.engine.observers = (struct observers){0}; /* they end before it does */
}

void instance_open_ground(struct instance *i, struct world *w, struct instance_setup *setup, struct err *e)
{
    memset(i, 0, sizeof *i);
    MPI_CHECK(MPI_Bcast(setup, sizeof *setup, MPI_BYTE, 0, w->comm));
    open_ground(i, w, DTYPE_BF16, setup, e);
    i->engine = (struct engine){
        .world = &i->world, .ops = i->ops, .q = &i->q, .n_flights = i->ops->async != NULL ? ENGINE_FLIGHTS : 1};
    observers_add(&i->engine.observers, watch_observer(i->watch));
    (void)(comm_open(&i->engine.comm, &i->world, i->ops, &i->q, setup->limits.sum_pieces, e) ||
           check_sums(&i->engine.comm, NULL, setup, e));
    fatal_agree(w, e);
    i->n_places = setup->n_places;
    if (setup->step != STEP_SEPARATE)
        (void)persistent_sums_open(&i->sums, setup->n_places, &i->world, i->ops, &i->q, e);
    fatal_agree(w, e);
    if (i->ops->async != NULL && (i->host_pool = err_calloc(e, 1, sizeof *i->host_pool, "pool of host memory")) != NULL)
        host_pool_open(i->host_pool);
    fatal_agree(w, e);
}

int instance_begin(struct instance *i, const struct instance *ground, int place, struct kv_arena *arena,
                   struct world *w, struct model_config *m, struct checkpoint *c, struct instance_setup *setup,
                   struct err *e)
{
    struct shard shard;
    memset(i, 0, sizeof *i);
    MPI_CHECK(MPI_Bcast(setup, sizeof *setup, MPI_BYTE, 0, w->comm));
    (void)load_share_headers(m, c, w, e);
    if (agree(w, e) >= 0)
        return -1;
    stand_on(i, ground, m->dtype);
    if (check_sums(&ground->engine.comm, m, setup, e) != 0) /* on all ranks */
        return -1;
    i->place = place;
    i->arena = arena;
    shard_make(&shard, m, i->world.rank, i->world.n_ranks);
    setup->limits.mask_words = (m->vocab + 31) / 32;
    (void)check_fit(&(struct fit_part){m, &shard, c, setup->limits, i->q.act}, 1, setup, w, i, e);
    return agree(w, e) >= 0 ? -1 : 0;
}

int instance_take_weights(struct instance *i, const struct model_config *m, const struct checkpoint *c, struct queue *q,
                          struct err *e)
{
    struct shard shard;
    shard_make(&shard, m, i->world.rank, i->world.n_ranks);
    return network_open(&i->network, m, &shard, c, true, i->ops, q, e);
}

/* The model may get any block of the arena. Memory zeroed on q is later used on the instance's own queue. */
int instance_prepare(struct instance *i, struct instance_setup *setup, struct queue *q, struct err *e)
{
    struct limits *l = &setup->limits;
    l->n_blocks = i->arena->n_units * setup->per_unit[KV_MAIN];
    l->n_window_blocks = i->arena->n_units * setup->per_unit[KV_WINDOWED];
    if (network_share_kv(&i->network, i->arena, setup->per_unit, limits_window(l, KV_WINDOWED), q, e) != 0)
        return -1;
    const struct engine_loan loan = {&i->ground->engine.comm, persistent_sums_place(&i->ground->sums, i->place),
                                     i->ground->host_pool};
    (void)engine_prepare(&i->engine, &i->world, &i->network, l, &loan, (enum step_choice)setup->step, i->ops, q, e);
    i->ops->wait(q);
    i->engine.q = &i->q;
    return e->code == ERR_NONE ? 0 : -1;
}

int instance_complete(struct instance *i, struct instance_setup *setup, struct step_ways *ways, struct err *e)
{
    (void)engine_join(&i->engine, &i->q, (enum step_choice)setup->step, ways, e);
    if (agree(&i->world, e) >= 0)
        return -1;
    return 0;
}

/* The ground's; others have none. */
static void close_loans(struct instance *i)
{
    if (i->host_pool != NULL)
        host_pool_close(i->host_pool, i->ops, &i->q);
    free(i->host_pool);
    persistent_sums_close(&i->sums, &i->world, i->ops, &i->q);
    comm_close(&i->engine.comm);
}

void instance_close(struct instance *i)
{
    if (i->ops == NULL)
        return;
    if (i->watch != NULL)
        observers_remove(&i->engine.observers, watch_observer(i->watch));
    watch_close(&i->watch);
    if (i->engine.network != NULL)
        engine_close(&i->engine);
    else
        close_loans(i);
    taps_close(&i->taps, i->ops, &i->q);
    network_close(&i->network, i->ops, &i->q);
    if (i->ground == NULL)
        i->ops->close(&i->q);
    if (i->ground == NULL || i->world.comm != i->ground->world.comm)
        world_join(&i->world);
    memset(i, 0, sizeof *i);
}
