/* rank/watch/verdict.h - determines the rank at fault for a step without progress, and describes it. Pure. */
#ifndef WATCH_VERDICT_H
#define WATCH_VERDICT_H

#include "rank/observe/observer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The view of one rank on another one of its host, or on itself. */
struct watch_view {
    int rank; /* of the job */
    enum rank_activity activity;
    uint64_t step;
    double stalled, silent; /* seconds since its last progress, and since the last sign of life of its process */
    int leader;             /* the first rank of its replica: only ranks of one replica wait for each other */
};

/* The rank at fault: an index of view[n], the ranks of this host; `self` (this rank's index) if no other rank appears
 * to be at fault; -1 while no fault is visible from there. Pure. */
int verdict_find(const struct watch_view *view, int n, int self, double timeout);

struct lifeline_state;

/* Describes a rank whose process ended or whose host is lost; state NULL: it never sent its state. "its process ended
 * without a word (killed? out of memory?): step 57, computing; last collective: all-reduce 12 of step 57; device
 * cpu" */
void verdict_say_gone(char *text, size_t bytes, bool lost, const struct lifeline_state *state, const char *device);

/* The message: "step 57 has made no progress for 3 s (--step-timeout 3): no sign of life since it was computing". */
void verdict_say(char *text, size_t bytes, const struct watch_view *culprit, bool is_self, double timeout);

#endif
