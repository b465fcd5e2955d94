/* client/bench_model.h - selects the server's model that a bench measures. */
#ifndef CLIENT_BENCH_MODEL_H
#define CLIENT_BENCH_MODEL_H

#include "base/err.h"
#include "client/bench_options.h"
#include "client/connection.h"

#include <stdint.h>

struct bench_model {
    char name[128];
    int64_t vocab;
};

/* Finds the model that --model or the field "model" names; without a name, the server's only one. A model that the
 * server has not opened yet is loaded by a request of one token, for its vocabulary is not known before.
 * ERR_USAGE: no such model, or several and no name; ERR_COMM: no answer; ERR_REQUEST: it does not load. */
int bench_model_find(struct bench_model *m, struct connection *c, const struct client_bench_options *o, struct err *e);

#endif
