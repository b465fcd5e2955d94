/* gateway/exchange/answer_counts.h - the number of text requests per model, and the time that they took. */
#ifndef EXCHANGE_ANSWER_COUNTS_H
#define EXCHANGE_ANSWER_COUNTS_H

#include "gateway/exchange/request_log.h"

#define ANSWER_COUNTS 256 /* maximum of models; later ones are not counted */

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

/* A model is counted from its first success on: a name that no backend serves takes no entry. */
void answer_counts_take(struct answer_counts *c, const struct tally *t, double now);

/* NULL: it had no requests. */
const struct answer_count *answer_counts_find(const struct answer_counts *c, const char *name);

#endif
