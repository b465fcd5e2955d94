/* client/bench_report.h - prints the figures of a bench, for people or programs. */
#ifndef CLIENT_BENCH_REPORT_H
#define CLIENT_BENCH_REPORT_H

#include "client/bench_figures.h"
#include "client/bench_options.h"

/* To standard output: a table, or with o->json one object with the keys of vLLM's result files. */
void bench_report(const struct bench_figures *f, const struct client_bench_options *o, const char *model);

#endif
