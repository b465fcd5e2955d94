/* client/bench_load.h - the requests of a bench and their times: prompts, lengths, arrivals. The same options give the
 * same load. */
#ifndef CLIENT_BENCH_LOAD_H
#define CLIENT_BENCH_LOAD_H

#include "client/bench_options.h"

struct bench_wish {
    json_t *prompt; /* token ids, or a text; owned: one reference */
    int64_t n_output;
    double at; /* seconds after the start */
};

struct bench_load {
    struct bench_wish *wish; /* [n] */
    int64_t n;
    bool exact; /* outputs have exactly n_output tokens */
};

/* vocab: upper bound of random ids. ERR_INPUT, ERR_IO: the dataset. Call bench_load_close in any case. */
int bench_load_open(struct bench_load *l, const struct client_bench_options *o, int64_t vocab, struct err *e);
void bench_load_close(struct bench_load *l);

#endif
