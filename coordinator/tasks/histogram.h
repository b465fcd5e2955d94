/* coordinator/tasks/histogram.h - counts of observations below bounds, as in Prometheus. */
#ifndef TASKS_HISTOGRAM_H
#define TASKS_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_MAX 32

struct buckets { /* upper bounds, ascending, without +Inf */
    int n;
    double bound[HISTOGRAM_MAX];
};

/* vLLM's, so that dashboards made for it fit. */
extern const struct buckets buckets_first_token, buckets_token, buckets_request, buckets_iteration, buckets_n;

/* 1, 2, 5, 10, .. up to limit. */
struct buckets buckets_up_to(int limit);

struct histogram {
    const struct buckets *buckets;     /* borrowed */
    uint64_t count[HISTOGRAM_MAX + 1]; /* of each bucket alone */
    uint64_t n;
    double sum;
};

void histogram_add(struct histogram *h, double x);

/* Moves the counts of `from` into `h`, which has the same buckets. */
void histogram_move(struct histogram *h, struct histogram *from);

#endif
