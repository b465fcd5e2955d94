/* client/samples.h - a reader of Prometheus' text format, the reply to `op: metrics`. */
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

/* Malformed and overlong lines are skipped: an exposition may contain more than this reader supports. Call
 * samples_close in any case. ERR_MEMORY. */
int samples_read(struct samples *m, const char *text, struct err *e);
void samples_close(struct samples *m);

/* The sum of a name's samples whose labels have name="value" (label NULL: all of them); NAN: there is none. */
double samples_sum(const struct samples *m, const char *name, const char *label, const char *value);

/* The value of a sample's label, its escapes read; "" if it has none. text: [bytes]. */
void samples_label(const struct sample *sample, const char *label, char *text, size_t bytes);

/* For a histogram, between two snapshots (before NULL: since the start) and over all its label sets: the mean, and the
 * quantile q as Prometheus' histogram_quantile estimates it; NAN: nothing was observed. *below: it is in the first
 * bucket, whose upper bound is returned. */
double samples_mean(const struct samples *now, const struct samples *before, const char *name);
double samples_quantile(const struct samples *now, const struct samples *before, const char *name, double q,
                        bool *below);

#endif
