/* client/samples.h - Prometheus' text format, read: what `op: metrics` answers. */
#ifndef CLIENT_SAMPLES_H
#define CLIENT_SAMPLES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define SAMPLE_NAME_BYTES   96
#define SAMPLE_LABELS_BYTES 256

/* One sample: name{labels} value. */
struct sample {
    char name[SAMPLE_NAME_BYTES];     /* without "lockstep_" or "vllm:" */
    char labels[SAMPLE_LABELS_BYTES]; /* as written, without braces */
    double value;
};

struct samples {
    struct sample *sample; /* [n] */
    size_t n, capacity;
    double at; /* seconds; the caller's */
};

/* Lines that cannot be read, or are too long, are passed over: an exposition may hold more than we know. samples_close it
 * in any case. ERR_MEMORY. */
int samples_read(struct samples *m, const char *text, struct err *e);
void samples_close(struct samples *m);

/* The sum of a name's samples whose labels have name="value" (label NULL: all of them); NAN: there is none. */
double samples_sum(const struct samples *m, const char *name, const char *label, const char *value);

/* What a label of a sample says; "" when it has none. text: [bytes]. */
void samples_label(const struct sample *sample, const char *label, char *text, size_t bytes);

/* Of a histogram, between two readings (before NULL: since the start), all its label sets together: the mean, and the
 * quantile q as Prometheus' histogram_quantile estimates it; NAN: nothing was observed. *below: it lies in the first
 * bucket, of which only the upper bound, which is returned, means something. */
double samples_mean(const struct samples *now, const struct samples *before, const char *name);
double samples_quantile(const struct samples *now, const struct samples *before, const char *name, double q,
                        bool *below);

#endif
