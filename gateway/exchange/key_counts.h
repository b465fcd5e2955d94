/* gateway/exchange/key_counts.h - requests and tokens of each named API key, as Prometheus text. */
#ifndef EXCHANGE_KEY_COUNTS_H
#define EXCHANGE_KEY_COUNTS_H

#include "gateway/exchange/request_log.h"
#include "gateway/loop/bytes.h"

struct key_count {
    char name[KEY_NAME_BYTES];
    uint64_t requests, over_limit, prompt_tokens, completion_tokens;
};

/* A name that no key has any more keeps its numbers until the gateway ends. */
struct key_counts {
    struct key_count *one; /* [n] */
    size_t n;
};

void key_counts_take(struct key_counts *c, const struct tally *t);
void key_counts_write(const struct key_counts *c, struct bytes *to);
void key_counts_free(struct key_counts *c);

#endif
