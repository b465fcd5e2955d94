/* commands/bench/figures.h - the figures of a bench run, and what follows from them. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "commands/bench/spread.h"
#include "commands/bench/workload.h"
#include "rank/measure/profile.h"

#define FIGURES_ENOUGH_FOR_PERCENTILES 10 /* repetitions */

/* Seconds for one unit of work: a whole prompt or batch of prompts, or a step. */
struct phases {
    double mean[N_PHASES], lowest[N_PHASES], highest[N_PHASES]; /* over the ranks, of the device's time */
    double wall;                                                /* of rank 0; 0: there was no such work */
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
    struct draft_counts drafts; /* of WORK_THROUGHPUT, all runs; n_places 0: none are made */
    uint64_t n_late;            /* of its steps, all runs: those with masks that come late */
    uint64_t n_waited;          /* those in which the device waited for them */
    double read_rate;           /* bytes/s of all ranks */
    double weight_bytes;        /* of all ranks: the bytes that one decode step reads, of experts on average */
    double joules[N_WORKLOADS]; /* of all devices, all repetitions; NAN: not known */
    double ready_seconds; /* from the start of rank 0's process to weights and memory in place; negative: unknown */
};

/* Seconds of a repetition. */
struct spread figures_total(const struct figures *f, enum workload_kind kind);
/* n of something a repetition, per second. */
struct spread figures_rates(const struct figures *f, enum workload_kind kind, double n);
/* The parts of the latency: up to the last first token, and from there. */
struct spread figures_prompts(const struct figures *f);
struct spread figures_decode(const struct figures *f);
/* Reading all weights once a step, as a share of what the memory can do. */
double figures_read_share(const struct figures *f, double steps, double seconds);
/* Steps of a repetition. */
double figures_steps(const struct repetitions *s);
/* Tokens that a workload's energy is for: of the prompt, or those that came out, of all repetitions. */
double figures_tokens(const struct figures *f, enum workload_kind kind);
/* Time of a unit of work that no phase on the device accounts for. */
double figures_host_gap(const struct phases *p);

#endif
