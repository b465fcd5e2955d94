/* commands/run/service.c - see service.h. */
#include "commands/run/service.h"
#include "commands/batch.h"
#include "commands/models/batch_models.h"
#include "commands/models/serve_models.h"
#include "commands/serve.h"
#include "commands/start/start.h"
#include "commands/thread_cores.h"
#include "coordinator/drafts/draft_options.h"
#include "coordinator/replicas/leader.h"
#include "rank/measure/meter.h"
#include "rank/measure/ranks_pace.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "rank/world/rank_log.h"

#include <stdio.h>

#define HOST_THREADS 3 /* one for sockets or files, two that tokenize */

/* `serve` and `batch`: ranks in replicas, and on rank 0 the source of requests. */
struct service {
    const char *name;
    bool advises; /* at start, of numbers of ranks that make one sequence faster */
    const struct service_options *o;
    const void *options; /* of open */
    struct front *front;
    void *context; /* of these three, which rank 0 alone calls */
    int (*open)(void *context, const void *options, const struct model_config *m, const struct checkpoint *c,
                int n_ranks, struct err *e);
    int (*start)(void *context, const struct limits *l, struct err *e);
    int (*close)(void *context, struct err *e);
};

/* Rank 0 and the leaders of the other replicas connect; no-op with one replica. Collective. */
static void link_replicas(struct world *w, const struct instance *i, const struct instance_setup *setup,
                          const struct service *s, int32_t vocab, struct leader *leader, struct err *e)
{
    struct link_card card = {.vocab = vocab,
                             .n_replicas = i->world.n_replicas,
                             .replica_size = i->world.n_ranks,
                             .n_slots = 1,
                             .timeout = setup->step_timeout};
    if (i->world.n_replicas == 1)
        return;
    if (w->rank == 0) {
        (void)draft_rules(&card.guesses, &s->o->run, e);
        card.prefix_caching = !s->o->run.no_prefix_caching;
        card.max_step = run_max_step(&s->o->run);
        card.rope_changes_at = s->front->texts.rope_changes_at;
        (void)snprintf(card.model, sizeof card.model, "%s", s->o->run.model);
        (void)hub_open(&s->front->hub, s->front->replicas, NULL, &card, w->on_one_host, e);
    }
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&card, sizeof card, MPI_BYTE, 0, w->comm));
    if (i->world.rank == 0 && w->rank != 0)
        (void)leader_open(leader, &card, i->world.replica, &setup->limits, e);
    fatal_agree(w, e);
}

static int run_service(struct world *w, const struct service *s, struct err *e)
{
    struct instance_setup setup = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct draft_model draft = {0};
    struct meter meter;
    struct leader leader = {0};
    struct cores cores;
    const struct loop_client mine = {
        .context = s->front, .next = front_next, .accept = front_accept, .masks = front_masks, .signal = front_signal};
    const struct loop_client others = {
        .context = &leader, .next = leader_next, .accept = leader_accept, .masks = leader_masks};
    int status = 0;
    if (w->rank == 0 && start_open_folder(&s->o->run, s->name, &m, &c, e) == 0) {
        cores_widen(&cores);
        if (s->open(s->context, s->options, &m, &c, w->n_ranks, e) == 0) {
            setup = start_service_setup(&s->o->run, &m);
            if (start_open_draft_model(&draft, &setup, &s->o->run, &m, e) == 0)
                (void)texts_check_draft_model(s->front->texts.tokenizer, &s->o->run, e);
        }
        setup.host_threads = cores.widened ? 0 : HOST_THREADS;
        cores_restore(&cores);
    }
    fatal_agree(w, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): rank 0's open() has set it, or the job has ended */
    (void)rank_log_open(w, w->rank == 0 ? s->front->o->log_dir : NULL, e);
    fatal_agree(w, e);
    instance_open_drafted(&instance, &draft, w, &m, &c, &setup, e);
    if (s->advises || setup.with_bus)
        ranks_pace_say(&instance.engine, w->n_ranks, s->advises);
    bool first = instance.world.replica == 0;
    (void)meter_open(&meter, &instance.engine, METER_INTERVAL, first ? front_ranks : leader_ranks,
                     first ? (void *)s->front : (void *)&leader, e);
    fatal_agree(w, e);
    link_replicas(w, &instance, &setup, s, m.vocab, &leader, e);
    if (w->rank == 0) {
        cores_widen(&cores);
        (void)s->start(s->context, &setup.limits, e);
        cores_restore(&cores);
    }
    fatal_agree(w, e);
    instance_run(&instance, &draft, first ? &mine : &others, e);
    leader_close(&leader);
    if (w->rank == 0)
        status = s->close(s->context, e);
    if (e->code == ERR_COMM) /* a replica is lost: an agreement is impossible */
        fatal(e);
    fatal_agree(w, e);
    meter_close(&meter);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    instance_close(&draft.instance);
    instance_close(&instance);
    return status;
}

int run_serve(struct world *w, const struct serve_options *o, struct err *e)
{
    int many = w->rank == 0 && o->models.dir != NULL;
    MPI_CHECK(MPI_Bcast(&many, 1, MPI_INT, 0, w->comm));
    if (many)
        return serve_models(w, o, e);
    struct serve v = {0};
    const struct service s = {"serve", true, &o->service, o, &v.front, &v, serve_open, serve_start, serve_close};
    return run_service(w, &s, e);
}

int run_batch(struct world *w, const struct batch_options *o, struct err *e)
{
    struct batch_run b = {0};
    const struct service s = {"batch", false, &o->service, o, &b.front, &b, batch_open, batch_start, batch_close};
    int many = w->rank == 0 && o->models.dir != NULL;
    MPI_CHECK(MPI_Bcast(&many, 1, MPI_INT, 0, w->comm));
    fatal_farewell(batch_give_up, &b);
    int status = many ? batch_models(w, &b, o, e) : run_service(w, &s, e);
    fatal_farewell(NULL, NULL);
    return status;
}
