/* gateway/exchange/model_counts.h - how many texts each model was asked for, and how long they took. */
#ifndef EXCHANGE_MODEL_COUNTS_H
#define EXCHANGE_MODEL_COUNTS_H

#include "gateway/exchange/request_log.h"

#define MODEL_COUNTS 256 /* models; later ones are not counted */

struct model_count {
    char name[256];
    uint64_t n_good, n_bad;
    double good_seconds, bad_seconds, queue_seconds, compute_seconds;
    double last; /* seconds since 1970 */
};

struct model_counts {
    struct model_count model[MODEL_COUNTS];
    int n;
};

/* A model is known from its first success on: a name that nobody serves takes no place. */
void model_counts_take(struct model_counts *c, const struct tally *t, double now);

/* NULL: nothing was asked of it. */
const struct model_count *model_counts_find(const struct model_counts *c, const char *name);

#endif
