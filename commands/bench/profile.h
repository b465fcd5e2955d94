/* commands/bench/profile.h - reruns a workload to measure its phases. */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include "commands/bench/report.h"

/* Runs the workload under the profiler, which is open on all ranks, after a warm-up, and fills phases[N_PARTS] for the
 * parts that it has. Collective; the phases are of all ranks, their wall time counts on rank 0. */
void bench_profile(struct profile *p, struct bench_rig *rig, enum workload_kind kind, const struct workload *work,
                   int repetitions, struct phases *phases, struct err *e);

/* The number of times that it runs the workload. */
int bench_profile_runs(const struct engine *g, enum workload_kind kind, int repetitions);

#endif
