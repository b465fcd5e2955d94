/* rank/meter.h - how long steps and the collectives within them take on this rank, and the way of these figures to rank 0
 * (rank/rank_stats.h). Nothing waits for it: the plan says after which step all ranks send theirs, by a gather that is
 * completed later, and a step that is still being gathered delays no other. */
#ifndef RANK_METER_H
#define RANK_METER_H

#include "rank/energy.h"
#include "rank/engine.h"
#include "rank/rank_stats.h"

#define METER_INTERVAL 1.0 /* s between reports: what a GPU's stamps and the gather cost is then far below 1 % */

enum meter_part { METER_COMPUTE, METER_ALL_REDUCE, METER_ALL_GATHER, METER_PARTS };

struct meter {
    struct engine *engine;         /* borrowed */
    const struct async_ops *async; /* the device's clocks; NULL: the host's */
    double interval;
    struct rank_stats stats; /* of this rank, so far */
    struct energy energy;

    struct meter_flight {         /* a step under way */
        bool works, timed, parts; /* has tokens; is timed; so are its collectives */
        bool report;              /* all ranks' figures go to rank 0 after it */
        double seconds[METER_PARTS];
        double since; /* host's clock: of the part that is under way, */
        enum meter_part now;
        int n;               /* device's clock: stamps, */
        unsigned char *part; /* [max_stamps] and the part that follows each */
    } flight[ENGINE_FLIGHTS];
    int which; /* flight that is being enqueued */
    bool open; /* between meter_begin and meter_end */
    int max_stamps;
    double *between; /* [max_stamps] */

    /* The way to rank 0. */
    bool pending; /* a step with a report has passed */
    MPI_Request request;
    struct rank_stats sent;            /* the gather's source */
    struct rank_stats *gathered;       /* [n_ranks] rank 0: as they arrive */
    struct rank_stats *total, *recent; /* [n_ranks] rank 0 */
    double last_report, last_parts;    /* rank 0: when one was asked for; the same for one with parts */
    void (*report)(void *, const struct rank_report *); /* rank 0 */
    void *context;
};

/* Measure the engine's steps from now on. report (rank 0, may be NULL) is called between steps about every `interval`
 * seconds while there are steps, and at the end of loop_run; what it gets is valid during the call. No step may be under
 * way, and no profile open. Collective; returns -1 and *e. */
int meter_open(struct meter *m, struct engine *g, double interval,
               void (*report)(void *context, const struct rank_report *r), void *context, struct err *e);
void meter_close(struct meter *m);

/* The rest takes NULL for no meter.
 *
 * Rank 0, before a plan goes out: is a report due after this step? Sets p->report. */
void meter_ask(struct meter *m, struct plan *p);

/* The engine's. A step's operations begin, as flight `which`; graph: they are one graph; they end; the step has passed. */
void meter_begin(struct meter *m, int which, const struct plan *p, bool graph);
void meter_end(struct meter *m);
void meter_take(struct meter *m, int which);

/* The loop's: what this rank has sampled in a step. Rank 0 ends the job, in its name, when another one's tokens differ: all ranks
 * sample the same, or their keys and values are no longer of one text. */
void meter_tokens(struct meter *m, const struct step_result *result);

/* The communicator's: from here on time belongs to this part. */
void meter_enter(struct meter *m, enum meter_part part);

/* Between steps, at the same place on all ranks: send what is due, take what has come. Collective, does not wait. last: the
 * loop ends; send and take everything. */
void meter_share(struct meter *m, bool last);

/* Rank 0 alone, while it waits for work: take what has come. Local. */
void meter_hear(struct meter *m);

#endif
