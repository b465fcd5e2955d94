/* gateway/api/samples.h - merges the Prometheus texts of the backends and the gateway's own: by families, each sample
 * of a backend with its name. */
#ifndef API_SAMPLES_H
#define API_SAMPLES_H

#include "gateway/loop/bytes.h"

#include <stdbool.h>

struct samples_family {
    struct samples_family *next;
    struct bytes head, lines; /* # HELP and # TYPE; samples */
    bool has_help, has_type;
    char name[128];
};

struct merged_samples {
    struct samples_family *first;
};

/* backend NULL: the gateway's own. */
void samples_add(struct merged_samples *s, const char *backend, const char *text);
void samples_write(const struct merged_samples *s, struct bytes *to);
void samples_free(struct merged_samples *s);

#endif
