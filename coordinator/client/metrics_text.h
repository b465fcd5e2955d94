/* coordinator/client/metrics_text.h - Prometheus' text format, read: what `op: metrics` answers. */
#ifndef COORDINATOR_CLIENT_METRICS_TEXT_H
#define COORDINATOR_CLIENT_METRICS_TEXT_H

#include "base/err.h"

#include <stddef.h>

#define METRIC_NAME_BYTES   96
#define METRIC_LABELS_BYTES 256

/* One sample: name{labels} value. */
struct metric {
    char name[METRIC_NAME_BYTES];     /* without "lockstep_" or "vllm:" */
    char labels[METRIC_LABELS_BYTES]; /* as written, without braces */
    double value;
};

struct metrics {
    struct metric *sample; /* [n] */
    size_t n, capacity;
    double at; /* seconds; the caller's */
};

/* Lines that cannot be read, or are too long, are passed over: an exposition may hold more than we know. metrics_close it
 * in any case. ERR_MEMORY. */
int metrics_read(struct metrics *m, const char *text, struct err *e);
void metrics_close(struct metrics *m);

/* The sum of a name's samples whose labels have name="value" (label NULL: all of them); NAN: there is none. */
double metrics_sum(const struct metrics *m, const char *name, const char *label, const char *value);

/* What a label of a sample says; "" when it has none. text: [bytes]. */
void metrics_label(const struct metric *sample, const char *label, char *text, size_t bytes);

/* Of a histogram, between two readings (before NULL: since the start), all its label sets together: the mean, and the
 * quantile q as Prometheus' histogram_quantile estimates it; NAN: nothing was observed. */
double metrics_mean(const struct metrics *now, const struct metrics *before, const char *name);
double metrics_quantile(const struct metrics *now, const struct metrics *before, const char *name, double q);

#endif
