/* coordinator/batch/speed.h - the speed of a batch over the last minute. Pure. */
#ifndef BATCH_SPEED_H
#define BATCH_SPEED_H

#include <stdint.h>

#define SPEED_SECONDS 60
#define SPEED_POINTS  61

struct speed_counts {
    double requests, prompt_tokens, output_tokens; /* since the start; or per second */
};

struct speed {
    struct speed_point {
        double at;
        struct speed_counts counts;
    } point[SPEED_POINTS]; /* a ring of counts, at least a second apart */
    uint64_t n;
};

/* Notes the counts so far; the struct is zeroed at first. Cheap enough for any rate of calls. */
void speed_note(struct speed *s, const struct speed_counts *counts, double now);

/* The rate per second since the oldest noted counts of the last minute; NAN during the first second. */
struct speed_counts speed_of(const struct speed *s, const struct speed_counts *counts, double now);

#endif
