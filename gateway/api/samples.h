/* gateway/api/samples.h - merges the Prometheus texts of several backends: by families, each sample with its backend's
 * name. */
#ifndef API_SAMPLES_H
#define API_SAMPLES_H

#include "gateway/loop/bytes.h"

struct samples_family {
    struct samples_family *next;
    struct bytes head, lines; /* # HELP and # TYPE; samples */
    char name[128];
};

struct merged_samples {
    struct samples_family *first;
};

void samples_add(struct merged_samples *s, const char *backend, const char *text);
void samples_write(const struct merged_samples *s, struct bytes *to);
void samples_free(struct merged_samples *s);

#endif
