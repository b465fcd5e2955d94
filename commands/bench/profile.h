/* commands/bench/profile.h - a workload once more, phase by phase. */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include "commands/bench/report.h"

/* Run the workload under the profile, which is open on all ranks, warmed up, and fill phases[N_PARTS] of those parts
 * that it has. Collective; the phases are of all ranks, their wall time counts on rank 0. */
void bench_profile(struct profile *p, struct bench_rig *rig, enum workload_kind kind, const struct workload *work,
                   int repetitions, struct phases *phases, struct err *e);

/* How often it runs the workload. */
int bench_profile_runs(const struct engine *g, enum workload_kind kind, int repetitions);

#endif
