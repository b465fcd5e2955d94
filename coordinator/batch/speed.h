/* coordinator/batch/speed.h - how fast a batch is: what was counted over the last minute. Pure. */
#ifndef BATCH_SPEED_H
#define BATCH_SPEED_H

#include <stdint.h>

#define SPEED_SECONDS 60
#define SPEED_POINTS  61

struct speed_counts {
    double requests, prompt_tokens, output_tokens; /* since the start; or a second */
};

struct speed {
    struct speed_point {
        double at;
        struct speed_counts counts;
    } point[SPEED_POINTS]; /* a ring, a second and more between two of them */
    uint64_t n;
};

/* The counts so far; zero it at first. Cheap enough to be called at any rate. */
void speed_note(struct speed *s, const struct speed_counts *counts, double now);

/* A second, from the oldest of the noted counts that is at most a minute old to these; NAN before there is a second to
 * look back upon. */
struct speed_counts speed_of(const struct speed *s, const struct speed_counts *counts, double now);

#endif
