/* main.c - the command line, the world, one command. */
#include "base/environment.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/standard_streams.h"
#include "commands/inspect.h"
#include "commands/options.h"
#include "commands/preflight/preflight.h"
#include "commands/run/bench.h"
#include "commands/run/generate.h"
#include "commands/run/service.h"
#include "rank/world/device.h"
#include "rank/world/fatal.h"
#include "rank/world/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Commands without ranks run in the first process only. If another process failed, the launcher would end all of them,
 * perhaps before the first one has printed the reason. */
static int run_alone(struct options *o)
{
    struct err e = {0};
    if (launch_place() > 0)
        return 0;
    if (o->command == COMMAND_HELP)
        options_help(o->help_for);
    else if (o->command == COMMAND_VERSION)
        printf("lockstep %s\n", LOCKSTEP_VERSION);
    else {
        options_warn_unknown();
        (void)(run_find_model(&o->inspect.run, &e) || inspect_run(&o->inspect, &e));
    }
    if (e.code == ERR_NONE && (fflush(stdout) != 0 || ferror(stdout) != 0))
        ERR(&e, ERR_IO, "standard output: cannot write");
    return e.code != ERR_NONE ? fatal_local(&e) : 0;
}

/* Rank 0 checks its options against the number of ranks and fills in those that depend on devices; then all ranks learn
 * the command. *e: what has gone wrong so far, on rank 0. Collective. */
static enum command agree_on_command(struct world *w, struct options *o, struct err *e)
{
    struct run_options *run = options_run(o);
    bool replicates = o->command == COMMAND_SERVE || o->command == COMMAND_BATCH;
    if (w->rank == 0 && e->code == ERR_NONE &&
        run_check_replicas(run, w->n_ranks, replicates ? NULL : command_name(o->command), e) == 0)
        (void)(run_check_loading(run, e) || run_check_invariance(run, e) || run_find_model(run, e));
    fatal_agree(w, e);
    if (w->rank == 0)
        run_choose_limits(run, device_is_gpu((enum device_choice)run->device), options_many(o));
    int command = (int)o->command;
    MPI_CHECK(MPI_Bcast(&command, 1, MPI_INT, 0, w->comm));
    return (enum command)command;
}

static void say_ranks(const struct world *w)
{
    if (w->n_restless > 0)
        log_warn("a thread of MPI is still at work a second after MPI_Init on %d of %d ranks: MPI_Finalize may crash",
                 w->n_restless, w->n_ranks);
    log_info("%d rank%s, %d on this node; rank 0 on %s with %d of %d cores", w->n_ranks, w->n_ranks == 1 ? "" : "s",
             w->n_node_ranks, w->host, w->n_threads, w->n_cpus);
}

/* Returns the exit status. Collective. */
static int run_command(struct world *w, enum command command, struct options *o, struct err *e)
{
    if (command == COMMAND_PREFLIGHT)
        return preflight_run(w, &o->preflight, e);
    preflight_start(w, options_run(o), e);
    return command == COMMAND_GENERATE ? run_generate(w, &o->generate, e)
           : command == COMMAND_SERVE  ? run_serve(w, &o->serve, e)
           : command == COMMAND_BATCH  ? run_batch(w, &o->batch, e)
                                       : run_bench(w, &o->bench, e);
}

int main(int argc, char **argv)
{
    struct err e = {0}, start = {0}, signals = {0};
    struct options o;
    struct world w;
    standard_streams_hold();
    environment_settle_openmp(argv);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* child processes must not gain privileges */
    (void)signal(SIGPIPE, SIG_IGN);               /* a closed pipe gives a write error with a name, */
    (void)signal(SIGXFSZ, SIG_IGN);               /* and so does the limit on file sizes */
    if (options_parse(&o, argc, argv, &e) == 0 && o.command != COMMAND_GENERATE && o.command != COMMAND_BENCH &&
        o.command != COMMAND_SERVE && o.command != COMMAND_BATCH && o.command != COMMAND_PREFLIGHT)
        return run_alone(&o);
    if (o.command == COMMAND_SERVE || o.command == COMMAND_BATCH) /* before MPI_Init, since mpirun passes them on */
        (void)signals_open(o.command == COMMAND_BATCH, &signals);
    if (world_open(&w, &argc, &argv, &start) != 0)
        fatal(&start);
    if (w.rank != 0) /* rank 0's options count; another rank's environment must not lead it elsewhere */
        e = (struct err){0};
    if (e.code == ERR_NONE)
        e = signals;
    enum command command = agree_on_command(&w, &o, &e);
    log_open(w.rank == 0, options_run(&o)->verbose);
    if (w.rank == 0)
        options_warn_unknown();
    say_ranks(&w);
    int status = run_command(&w, command, &o, &e);
    world_close(&w);
    return status;
}
