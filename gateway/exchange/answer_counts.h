/* gateway/exchange/answer_counts.h - the number of texts that each model was asked for, and the time that they took. */
#ifndef EXCHANGE_ANSWER_COUNTS_H
#define EXCHANGE_ANSWER_COUNTS_H

#include "gateway/exchange/request_log.h"

#define ANSWER_COUNTS 256 /* models; later ones are not counted */

struct answer_count {
    char name[256];
    uint64_t n_good, n_bad;
    double good_seconds, bad_seconds, queue_seconds, compute_seconds;
    double last; /* seconds since 1970 */
};

struct answer_counts {
    struct answer_count model[ANSWER_COUNTS];
    int n;
};

/* A model is known from its first success on: a name that no backend serves takes no place. */
void answer_counts_take(struct answer_counts *c, const struct tally *t, double now);

/* NULL: nothing was asked of it. */
const struct answer_count *answer_counts_find(const struct answer_counts *c, const char *name);

#endif
