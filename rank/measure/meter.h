/* rank/measure/meter.h - measures steps and their collectives on this rank, and sends the figures to rank 0
 * (plan/rank_stats.h). Nothing waits for it: the plan says after which step all ranks send theirs, by a gather that
 * completes later without delaying other steps. */
#ifndef MEASURE_METER_H
#define MEASURE_METER_H

#include "plan/rank_stats.h"
#include "rank/measure/energy.h"
#include "rank/step/engine.h"

#define METER_INTERVAL 1.0 /* s between reports; then a GPU's time stamps and the gather cost far below 1 % */

enum meter_part { METER_COMPUTE, METER_ALL_REDUCE, METER_ALL_GATHER, METER_PARTS };

struct meter {
    struct observer observer;
    struct engine *engine;         /* borrowed */
    const struct async_ops *async; /* the device's clocks; NULL: the host's */
    double interval;
    struct rank_stats stats; /* of this rank, so far */
    struct energy energy;

    struct meter_flight {         /* a step under way */
        bool works, timed, parts; /* has tokens; is timed; so are its collectives */
        bool report;              /* all ranks' figures go to rank 0 after it */
        double seconds[METER_PARTS];
        double since; /* host's clock: begin of the current part, */
        enum meter_part now;
        int n;               /* device's clock: stamps, */
        unsigned char *part; /* [max_stamps] and the part that follows each */
    } flight[ENGINE_FLIGHTS];
    uint64_t n_taken; /* steps whose tokens are known, of any model */
    int which;        /* flight that is being enqueued */
    bool in_collective;
    bool open; /* a timed step is being enqueued */
    int max_stamps;
    double *between; /* [max_stamps] */

    /* The way to rank 0. */
    bool pending; /* a step with a report has passed */
    MPI_Request request;
    struct rank_stats sent;            /* the gather's source */
    struct rank_stats *gathered;       /* [n_ranks] rank 0: as they arrive */
    struct rank_stats *total, *recent; /* [n_ranks] rank 0 */
    double last_report, last_parts;    /* rank 0: time of the last request; the same for one with parts */
    void (*report)(void *, const struct rank_report *); /* rank 0 */
    void *context;
};

/* Measure the engine's steps from now on: every `interval` seconds rank 0 requests all ranks' figures in a plan and
 * receives them by a gather. Rank 0 ends the job, in the rank's name, if a rank's tokens differ from the others': all
 * ranks must sample the same, otherwise their keys and values belong to different texts. report (rank 0, may be NULL)
 * is called between steps about every `interval` seconds while there are steps, and at the end of loop_run; its
 * arguments are valid during the call. No step may be under way, and no profile open. Collective; returns -1 and *e. */
int meter_open(struct meter *m, struct engine *g, double interval,
               void (*report)(void *context, const struct rank_report *r), void *context, struct err *e);
void meter_close(struct meter *m);

#endif
