/* commands/bench/figures.h - the figures of a bench run, and values derived from them. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "commands/bench/spread.h"
#include "commands/bench/workload.h"
#include "rank/measure/profile.h"

#define FIGURES_ENOUGH_FOR_PERCENTILES 10 /* repetitions */

/* Seconds for one unit of work: a whole prompt or batch of prompts, or a step. */
struct phases {
    double mean[N_PHASES], lowest[N_PHASES], highest[N_PHASES]; /* over the ranks, of the device's time */
    double wall;                                                /* on rank 0; 0: there was no such work */
};

/* The kinds of units: a workload's prompts, its decode steps, and (THROUGHPUT) steps that are both. */
enum phase_part { PART_PROMPTS, PART_DECODE, PART_MIXED, N_PARTS };

struct figures {
    struct workload work[N_WORKLOADS];
    struct repetitions samples[N_WORKLOADS];
    struct phases phases[N_WORKLOADS][N_PARTS];
    int repetitions, warmups;
    bool step_times;            /* are wanted */
    double cached;              /* share of WORK_THROUGHPUT's prompts that came from the prefix cache, all runs */
    struct draft_counts drafts; /* of WORK_THROUGHPUT, all runs; n_places 0: no drafts */
    uint64_t n_late;            /* of its steps, all runs: those with late masks */
    uint64_t n_waited;          /* those in which the device waited for them */
    double read_rate;           /* bytes/s of all ranks */
    double weight_bytes; /* of all ranks: the bytes that one decode step reads, with an average number of experts */
    double joules[N_WORKLOADS]; /* of all devices, all repetitions; NAN: not known */
    double ready_seconds; /* from the start of rank 0's process to weights and memory in place; negative: unknown */
};

/* Seconds of a repetition. */
struct spread figures_total(const struct figures *f, enum workload_kind kind);
/* Rate per second of n units in each repetition. */
struct spread figures_rates(const struct figures *f, enum workload_kind kind, double n);
/* The two parts of the latency: up to the last first token, and after it. */
struct spread figures_prompts(const struct figures *f);
struct spread figures_decode(const struct figures *f);
/* The bandwidth for reading all weights once per step, as a share of the measured memory bandwidth. */
double figures_read_share(const struct figures *f, double steps, double seconds);
/* Steps of a repetition. */
double figures_steps(const struct repetitions *s);
/* Tokens over which a workload's energy is divided: those of the prompts, or generated ones, of all repetitions. */
double figures_tokens(const struct figures *f, enum workload_kind kind);
/* Time of a unit of work outside all phases on the device. */
double figures_host_gap(const struct phases *p);

#endif
