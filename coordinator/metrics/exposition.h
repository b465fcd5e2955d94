/* coordinator/metrics/exposition.h - Prometheus' text format: names with a prefix, labels that every sample has. */
#ifndef METRICS_EXPOSITION_H
#define METRICS_EXPOSITION_H

#include "coordinator/tasks/histogram.h"
#include "text/stop.h"

struct exposition {
    struct text_buffer *out; /* borrowed */
    struct err *e;           /* borrowed; out of memory: the text is incomplete */
    const char *prefix;      /* of all names, borrowed: "lockstep_" */
    char labels[1600];       /* model_name="...", and the like */
};

void exposition_open(struct exposition *x, struct text_buffer *out, const char *prefix, struct err *e);

/* Adds a label to all following samples; backslashes, quotes and newlines in the value are escaped, and invalid UTF-8
 * becomes U+FFFD. */
void exposition_label(struct exposition *x, const char *name, const char *value);

void exposition_head(struct exposition *x, const char *name, const char *type, const char *help);

/* extra: "" or further labels with a comma before them. */
void exposition_sample(struct exposition *x, const char *name, const char *extra, double value);

/* Head and one sample. */
void exposition_one(struct exposition *x, const char *name, const char *type, double value, const char *help);

/* Its samples; the head comes before. */
void exposition_histogram(struct exposition *x, const char *name, const char *extra, const struct histogram *h);

#endif
