/* main.c - options, subcommands: opens everything in order, closes in reverse. */
#include "base/environment.h"
#include "base/log.h"
#include "base/signals.h"
#include "commands/batch.h"
#include "commands/bench/bench.h"
#include "commands/generate.h"
#include "commands/inspect.h"
#include "commands/options.h"
#include "commands/preflight/preflight.h"
#include "commands/serve.h"
#include "commands/start/start.h"
#include "commands/thread_cores.h"
#include "coordinator/replicas/leader.h"
#include "rank/measure/meter.h"
#include "rank/step/loop.h"
#include "rank/world/device.h"
#include "rank/world/fatal.h"
#include "rank/world/rank_log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define GPU_TOKENS   2048 /* of a step, by default: as many as keep the matrix units busy, */
#define CPU_TOKENS   512  /* and as few as let other sequences go on meanwhile */
#define SERVE_BATCH  256  /* sequences that a server runs at once by default */
#define HOST_THREADS 3    /* of serve and batch: one for sockets or files, two that tokenize */
#define SERVE_LENGTH 2048 /* and their length when the model has no bound */

/* Sequences and their length, as far as options and the model allow them. Rank 0. */
static struct instance_setup setup_of(const struct run_options *o, const struct model_config *m, int longest,
                                      int n_seqs, bool scores)
{
    int64_t len = o->max_model_len > 0 ? o->max_model_len : longest,
            seqs = n_seqs < o->max_batch ? n_seqs : o->max_batch;
    if (m->positions_end && len > m->max_positions)
        len = m->max_positions;
    return start_setup(o, seqs > 0 ? (int)seqs : 1, len > 0 ? (int)len : 1, scores);
}

/* Rank 0, of a command that needs a whole model folder. */
static int open_model_folder(const struct run_options *o, const char *command, struct model_config *m,
                             struct checkpoint *c, struct err *e)
{
    if (o->model == NULL)
        return ERR(e, ERR_USAGE, "%s needs --model DIR", command);
    return start_open_model(o, NULL, m, c, e);
}

static int open_generate(struct generate *g, const struct generate_options *o, struct model_config *m,
                         struct checkpoint *c, struct err *e)
{
    return open_model_folder(&o->run, "generate", m, c, e) == 0 ? generate_open(g, o, m, e) : -1;
}

static int run_generate(struct world *w, const struct generate_options *o, struct err *e)
{
    struct instance_setup setup = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct generate g = {0};
    struct instance instance;
    struct meter meter;
    const struct loop_client client = {.context = &g, .next = generate_next, .accept = generate_accept};
    int status = 0;
    if (w->rank == 0 && open_generate(&g, o, &m, &c, e) == 0)
        setup = setup_of(&o->run, &m, g.longest, g.n, o->prompt_logprobs >= 0);
    fatal_agree(w, e);
    instance_open(&instance, w, &m, &c, &setup, e);
    if (w->rank == 0)
        (void)generate_start(&g, &setup.limits, e);
    (void)meter_open(&meter, &instance.engine, METER_INTERVAL, generate_report, &g, e);
    fatal_agree(w, e);
    loop_run(&instance.engine, &client, e);
    meter_close(&meter);
    if (w->rank == 0)
        status = generate_status(&g, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    generate_close(&g);
    instance_close(&instance);
    return status;
}

/* `serve` and `batch`: ranks in replicas, and on rank 0 what requests come from. */
struct service {
    const char *name;
    const struct run_options *run;
    const void *options; /* of open */
    struct front *front;
    void *context; /* of these three, which rank 0 alone calls */
    int (*open)(void *context, const void *options, const struct model_config *m, const struct checkpoint *c,
                int n_ranks, struct err *e);
    int (*start)(void *context, const struct limits *l, struct err *e);
    int (*close)(void *context, struct err *e);
};

/* Rank 0 opens the way to the leaders of the other replicas, and they to rank 0; nothing where there is one replica. Collective. */
static void link_groups(struct world *w, const struct instance *i, const struct instance_setup *setup, struct front *f,
                        int32_t vocab, struct leader *leader, struct err *e)
{
    struct link_card card = {.vocab = vocab,
                             .n_replicas = i->world.n_replicas,
                             .replica_size = i->world.n_ranks,
                             .timeout = setup->step_timeout};
    if (i->world.n_replicas == 1)
        return;
    if (w->rank == 0) {
        card.prefix_caching = !f->o->run.no_prefix_caching;
        card.rope_changes_at = f->rope_changes_at;
        (void)snprintf(card.model, sizeof card.model, "%s", f->o->run.model);
        (void)hub_open(&f->hub, f->replicas, &card, w->on_one_host, e);
    }
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&card, sizeof card, MPI_BYTE, 0, w->comm));
    if (i->world.rank == 0 && w->rank != 0)
        (void)leader_open(leader, &card, i->world.replica, &setup->limits, e);
    fatal_agree(w, e);
}

/* Assumptions about requests that have not come yet. */
static struct instance_setup make_service_setup(const struct run_options *o, const struct model_config *m)
{
    struct run_options mine = *o;
    if (mine.max_batch < 0)
        mine.max_batch = o->max_batch_tokens < SERVE_BATCH ? o->max_batch_tokens : SERVE_BATCH;
    return setup_of(&mine, m, m->max_positions > 0 ? m->max_positions : SERVE_LENGTH, INT32_MAX, true);
}

static int run_service(struct world *w, const struct service *s, struct err *e)
{
    struct instance_setup setup = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct meter meter;
    struct leader leader = {0};
    struct cores cores;
    const struct loop_client mine = {
        .context = s->front, .next = front_next, .accept = front_accept, .signal = front_signal};
    const struct loop_client others = {.context = &leader, .next = leader_next, .accept = leader_accept};
    int status = 0;
    if (w->rank == 0 && open_model_folder(s->run, s->name, &m, &c, e) == 0) {
        cores_widen(&cores);
        if (s->open(s->context, s->options, &m, &c, w->n_ranks, e) == 0)
            setup = make_service_setup(s->run, &m);
        setup.host_threads = cores.widened ? 0 : HOST_THREADS;
        cores_restore(&cores);
    }
    fatal_agree(w, e);
    (void)rank_log_open(w, w->rank == 0 ? s->front->o->log_dir : NULL, e);
    fatal_agree(w, e);
    instance_open(&instance, w, &m, &c, &setup, e);
    bool first = instance.world.replica == 0;
    (void)meter_open(&meter, &instance.engine, METER_INTERVAL, first ? front_ranks : leader_ranks,
                     first ? (void *)s->front : (void *)&leader, e);
    fatal_agree(w, e);
    link_groups(w, &instance, &setup, s->front, m.vocab, &leader, e);
    if (w->rank == 0) {
        cores_widen(&cores);
        (void)s->start(s->context, &setup.limits, e);
        cores_restore(&cores);
    }
    fatal_agree(w, e);
    loop_run(&instance.engine, first ? &mine : &others, e);
    leader_close(&leader);
    if (w->rank == 0)
        status = s->close(s->context, e);
    if (e->code == ERR_COMM) /* a replica is lost: there is nobody to agree with */
        fatal(e);
    fatal_agree(w, e);
    meter_close(&meter);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    instance_close(&instance);
    return status;
}

static int run_serve(struct world *w, const struct serve_options *o, struct err *e)
{
    struct serve v = {0};
    const struct service s = {"serve", &o->service.run, o, &v.front, &v, serve_open, serve_start, serve_close};
    return run_service(w, &s, e);
}

static int run_batch(struct world *w, const struct batch_options *o, struct err *e)
{
    struct batch_run b = {0};
    const struct service s = {"batch", &o->service.run, o, &b.front, &b, batch_open, batch_start, batch_close};
    fatal_farewell(batch_give_up, &b);
    int status = run_service(w, &s, e);
    fatal_farewell(NULL, NULL);
    return status;
}

/* The number of this process among those that the launcher has started, by the launcher's own variables; 0: the first,
 * or the only one. */
static int launched_as(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (environment_value(names[i]) != NULL)
            return atoi(environment_value(names[i]));
    return 0;
}

/* Commands that need no ranks: every process gets the same result, and the first one prints it. */
static int run_alone(const struct options *o)
{
    struct err e = {0};
    if (launched_as() > 0 && (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL))
        return ERR_IO;
    if (o->command == COMMAND_HELP)
        options_help(o->help_for);
    else if (o->command == COMMAND_VERSION)
        printf("lockstep %s\n", LOCKSTEP_VERSION);
    else
        (void)inspect_run(&o->inspect, &e);
    if (e.code == ERR_NONE && (fflush(stdout) != 0 || ferror(stdout) != 0))
        ERR(&e, ERR_IO, "standard output: cannot write");
    return e.code != ERR_NONE ? fatal_local(&e) : 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct options o;
    struct world w;
    environment_settle_openmp(argv);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* nothing that we start may become more than we are */
    (void)signal(SIGPIPE, SIG_IGN);               /* a reader that leaves becomes a write error with a name, */
    (void)signal(SIGXFSZ, SIG_IGN);               /* and so does a limit on the size of files */
    bool parsed = options_parse(&o, argc, argv, &e) == 0;
    if (parsed && o.command != COMMAND_GENERATE && o.command != COMMAND_BENCH && o.command != COMMAND_SERVE &&
        o.command != COMMAND_BATCH && o.command != COMMAND_PREFLIGHT)
        return run_alone(&o);
    struct err start = {0}, signals = {0};
    if (o.command == COMMAND_SERVE || o.command == COMMAND_BATCH) /* before MPI_Init, since mpirun passes them on */
        (void)signals_open(o.command == COMMAND_BATCH, &signals);
    if (world_open(&w, &argc, &argv, &start) != 0)
        fatal(&start);
    if (w.rank != 0) /* rank 0's options count; another rank's environment must not lead it elsewhere */
        e = (struct err){0};
    if (e.code == ERR_NONE)
        e = signals;
    struct run_options *run = options_run(&o);
    bool grouped = o.command == COMMAND_SERVE || o.command == COMMAND_BATCH;
    if (w.rank == 0 && e.code == ERR_NONE &&
        run_check_groups(run, w.n_ranks, grouped ? NULL : command_name(o.command), &e) == 0)
        (void)run_check_loading(run, &e);
    fatal_agree(&w, &e);
    if (w.rank == 0 && run->max_batch_tokens < 0)
        run->max_batch_tokens = device_is_gpu((enum device_choice)run->device) ? GPU_TOKENS : CPU_TOKENS;
    int command = (int)o.command;
    MPI_CHECK(MPI_Bcast(&command, 1, MPI_INT, 0, w.comm));
    log_open(w.rank == 0, run->verbose);
    if (w.rank == 0)
        options_warn_unknown();
    if (w.n_restless > 0)
        log_warn("a thread of MPI is still at work a second after MPI_Init on %d of %d ranks: MPI_Finalize may crash",
                 w.n_restless, w.n_ranks);
    log_info("%d rank%s, %d on this node; rank 0 on %s with %d of %d cores", w.n_ranks, w.n_ranks == 1 ? "" : "s",
             w.n_node_ranks, w.host, w.n_threads, w.n_cpus);
    if (command != COMMAND_PREFLIGHT)
        preflight_start(&w, run, &e);
    int status = command == COMMAND_GENERATE    ? run_generate(&w, &o.generate, &e)
                 : command == COMMAND_SERVE     ? run_serve(&w, &o.serve, &e)
                 : command == COMMAND_BATCH     ? run_batch(&w, &o.batch, &e)
                 : command == COMMAND_PREFLIGHT ? preflight_run(&w, &o.preflight, &e)
                                                : bench_run(&w, &o.bench, &e);
    world_close(&w);
    return status;
}
