/* commands/preflight/report.h - the results of a preflight, their judgement, and both as text. Independent of MPI and
 * devices: everything here works on rank 0's data of all ranks. */
#ifndef PREFLIGHT_REPORT_H
#define PREFLIGHT_REPORT_H

#include "rank/measure/nvml.h"
#include "rank/world/places.h"

#include <stdio.h>

#define PREFLIGHT_MAX_SUMS     8
#define PREFLIGHT_MAX_PROBLEMS 64

/* One rank's data. Plain data: gathered. */
struct preflight_rank {
    struct rank_place place;
    int32_t n_cpus, n_threads;
    double read_rate; /* bytes/s of its device's memory, all ranks at once */
    double ping;      /* s, half the round trip to rank 0; 0 on rank 0 */
    struct nvml_state gpu;
    double file_bytes, file_cold_bytes, file_seconds; /* read of the checkpoint; not in the page cache before */
};

/* An all-reduce of `bytes` bytes: seconds of the slowest rank. */
struct preflight_sum {
    double bytes, seconds;
};

struct preflight {
    int n_ranks;
    const char *device;          /* "cpu", "cuda" */
    const char *model;           /* folder that was read; NULL: none */
    struct preflight_rank *rank; /* [n_ranks] */
    unsigned char *link;         /* [n_ranks, n_ranks] enum peer_link */
    struct preflight_sum sum[PREFLIGHT_MAX_SUMS];
    int n_sums;
    double read_together; /* bytes/s */
    double broadcast;     /* s, of 4 KiB to all ranks, until all have acknowledged it; 0: one rank */
    double seconds;       /* total time */
};

/* The requirements for a node. */
struct preflight_limits {
    double read_share;    /* of the fastest rank's read rate */
    double broadcast_us;  /* 0: no limit */
    double file_rate;     /* bytes/s of a host; 0: no limit */
    bool accept_throttle; /* only report throttling by heat or power supply */
};

/* Flat: broadcast. */
struct preflight_problem {
    int32_t rank;
    int32_t refuses; /* otherwise it is only reported */
    char text[240];
};

/* Bytes per second that the ranks of a host read of the checkpoint together. False when rank `first` is not the host's
 * first one, or nothing was read there. */
bool preflight_file_rate(const struct preflight *p, int first, double *rate);

/* The problems, at most PREFLIGHT_MAX_PROBLEMS, refusals first; the last one gives the number of further ones. Returns
 * their number. */
int preflight_judge(const struct preflight *p, const struct preflight_limits *l, struct preflight_problem *problem);

/* "rank 3 on node7: reads ..." */
void preflight_say(char *text, size_t bytes, const struct preflight *p, const struct preflight_problem *problem);

/* The full report as a table and as JSON; and a summary in one line. */
void preflight_table(FILE *out, const struct preflight *p, const struct preflight_problem *problem, int n_problems);
void preflight_json(FILE *out, const struct preflight *p, const struct preflight_problem *problem, int n_problems);
void preflight_line(char *text, size_t bytes, const struct preflight *p);

#endif
