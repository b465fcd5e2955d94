/* coordinator/metrics/metrics_text.h - the counters of metrics.h as Prometheus text. */
#ifndef METRICS_METRICS_TEXT_H
#define METRICS_METRICS_TEXT_H

#include "coordinator/metrics/exposition.h"
#include "coordinator/metrics/metrics.h"

/* Parts of the text: metrics of replicas that vLLM has, others, and every rank's steps. */
void metrics_write_replicas(struct exposition *x, const struct metrics *m);
void metrics_write_steps(struct exposition *x, const struct metrics *m);
void metrics_write_ranks(struct exposition *x, const struct metrics *m);

/* The whole text, appended to *out. */
int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e);

#endif
