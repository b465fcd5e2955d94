/* commands/bench/report.h - the figures of a bench run, as a table and as JSON. Rank 0. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "commands/bench/figures.h"
#include "rank/instance/instance.h"

#include <jansson.h>

void report_table(const struct world *w, const struct instance *i, const struct figures *f);
/* [{"sequences": 8, "way": "persistent", "separate_ms": 1.5, "persistent_ms": 1.2}, ..]: the captured decode steps;
 * times are null if not measured. Empty where nothing is captured: on CPUs every step's operations are called one by
 * one. */
json_t *report_decode_steps(const struct decode_graph *decode, int n);
void report_json(const struct world *w, const struct instance *i, const struct figures *f);

#endif
