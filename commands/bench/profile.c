/* commands/bench/profile.c - see bench_profile.h. */
#include "commands/bench/profile.h"
#include "rank/world/fatal.h"

static struct profile_sums both(const struct profile *p)
{
    struct profile_sums sum = p->sums[STEP_PREFILL];
    sum.n_steps += p->sums[STEP_DECODE].n_steps;
    for (int i = 0; i < N_PHASES; i++)
        sum.seconds[i] += p->sums[STEP_DECODE].seconds[i];
    return sum;
}

/* The sums over `units`, over all ranks. Collective. */
static void share_sums(const struct world *w, const struct profile_sums *sums, double units, double wall,
                       struct phases *out)
{
    double mine[N_PHASES];
    if (sums->n_steps == 0) /* on all ranks alike */
        return;
    for (int i = 0; i < N_PHASES; i++)
        mine[i] = sums->seconds[i] / units;
    MPI_CHECK(MPI_Allreduce(mine, out->mean, N_PHASES, MPI_DOUBLE, MPI_SUM, w->comm));
    MPI_CHECK(MPI_Allreduce(mine, out->lowest, N_PHASES, MPI_DOUBLE, MPI_MIN, w->comm));
    MPI_CHECK(MPI_Allreduce(mine, out->highest, N_PHASES, MPI_DOUBLE, MPI_MAX, w->comm));
    for (int i = 0; i < N_PHASES; i++)
        out->mean[i] /= w->n_ranks;
    out->wall = wall;
}

/* Every flight's graph is captured when its step comes for the second time. The steps of a long run cover the rest. */
static int warmups_of(const struct engine *g, enum workload_kind kind)
{
    return kind == WORK_THROUGHPUT ? 1 : 2 * engine_flights(g);
}

static int repetitions_of(enum workload_kind kind, int repetitions)
{
    return kind == WORK_THROUGHPUT ? 1 : repetitions;
}

int bench_profile_runs(const struct engine *g, enum workload_kind kind, int repetitions)
{
    return warmups_of(g, kind) + repetitions_of(kind, repetitions);
}

void bench_profile(struct profile *p, struct bench_rig *rig, enum workload_kind kind, const struct workload *work,
                   int repetitions, struct phases *phases, struct err *e)
{
    const struct world *w = p->engine->world;
    struct repetitions s;
    double total = 0, decode = 0;
    repetitions = repetitions_of(kind, repetitions);
    workload_run(rig, kind, work, warmups_of(rig->engine, kind), &s, e);
    profile_reset(p);
    workload_run(rig, kind, work, repetitions, &s, e);
    for (int i = 0; i < s.n; i++) {
        total += s.total[i] / repetitions;
        decode += s.decode[i] / repetitions;
    }
    struct profile_sums all = both(p), *sums = p->sums;
    if (kind == WORK_PP)
        share_sums(w, &all, repetitions, total, &phases[PART_PROMPTS]);
    if (kind == WORK_LATENCY)
        share_sums(w, &sums[STEP_PREFILL], repetitions, total - decode, &phases[PART_PROMPTS]);
    if (kind == WORK_TG)
        decode = total;
    if ((kind == WORK_TG || kind == WORK_LATENCY) && work->n_steps > 0)
        share_sums(w, &sums[STEP_DECODE], (double)sums[STEP_DECODE].n_steps, decode / work->n_steps,
                   &phases[PART_DECODE]);
    if (kind == WORK_THROUGHPUT)
        share_sums(w, &all, (double)all.n_steps, total * repetitions / (double)all.n_steps, &phases[PART_MIXED]);
}
