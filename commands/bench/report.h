/* commands/bench/report.h - the figures of a bench run, as a table and as JSON. Rank 0. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "commands/bench/workload.h"
#include "rank/instance/instance.h"
#include "rank/measure/profile.h"

#include <jansson.h>

/* Seconds for one unit of work: a whole prompt or batch of prompts, or a step. */
struct phases {
    double mean[N_PHASES], lowest[N_PHASES], highest[N_PHASES]; /* over the ranks, of the device's time */
    double wall;                                                /* of rank 0; 0: there was no such work */
};

/* The kinds of units: a workload's prompts, its decode steps, and (THROUGHPUT) steps that are both. */
enum phase_part { PART_PROMPTS, PART_DECODE, PART_MIXED, N_PARTS };

struct figures {
    struct workload work[N_WORKLOADS];
    struct samples samples[N_WORKLOADS];
    struct phases phases[N_WORKLOADS][N_PARTS];
    int repetitions, warmups;
    bool step_times;            /* are wanted */
    double cached;              /* share of WORK_THROUGHPUT's prompts that came from the prefix cache, all runs */
    struct draft_counts drafts; /* of WORK_THROUGHPUT, all runs; n_places 0: none are made */
    uint64_t n_late;            /* of its steps, all runs: those with masks that come late */
    uint64_t n_waited;          /* those in which the device waited for them */
    double read_rate;           /* bytes/s of all ranks */
    double weight_bytes;        /* of all ranks: the bytes that one decode step reads, of experts on average */
    double joules[N_WORKLOADS]; /* of all devices, all repetitions; NAN: not known */
    double ready_seconds; /* from the start of rank 0's process to weights and memory in place; negative: unknown */
};

void report_table(const struct world *w, const struct instance *i, const struct figures *f);
/* [{"sequences": 8, "way": "persistent", "separate_ms": 1.5, "persistent_ms": 1.2}, ..]: the recorded decode steps,
 * times null where they were not measured. Empty where nothing is recorded: on CPUs every step's operations are called
 * one by one. */
json_t *report_decode_steps(const struct decode_graph *decode, int n);
void report_json(const struct world *w, const struct instance *i, const struct figures *f);

#endif
