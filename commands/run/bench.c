/* commands/run/bench.c - see bench.h. */
#include "commands/run/bench.h"
#include "commands/bench/bench.h"
#include "commands/models/model_switch.h"
#include "rank/world/fatal.h"

int run_bench(struct world *w, const struct bench_options *o, struct err *e)
{
    int two = w->rank == 0 && o->model_switch != NULL;
    MPI_CHECK(MPI_Bcast(&two, 1, MPI_INT, 0, w->comm));
    return two ? model_switch_run(w, o, e) : bench_run(w, o, e);
}
