/* gateway/exchange/request_log.h - one JSON line per request: client, route and model, outcome, times. No texts. */
#ifndef EXCHANGE_REQUEST_LOG_H
#define EXCHANGE_REQUEST_LOG_H

#include "base/err.h"
#include "base/log_writer.h"
#include "gateway/exchange/keys.h"

#include <jansson.h>
#include <stdbool.h>

/* The outcome of an exchange. Seconds; negative: not known. */
struct tally {
    int status;
    bool left, is_generate;   /* the client left; the request was for text */
    bool over_limit;          /* refused: its party had as many requests as it may have */
    char key[KEY_NAME_BYTES]; /* the name of the client's key; "": none */
    char model[512];
    int64_t prompt_tokens, completion_tokens;
    double first_token, total;       /* from the complete request to the first and last piece of the answer */
    double queue, compute, upstream; /* of the backend: waiting, computing, both with its own overhead */
    size_t bytes_in, bytes_out;
};

struct request_log {
    struct log_writer *writer; /* NULL: no log */
};

/* path: "-" is standard output; NULL: no log. Appended to. */
int request_log_open(struct request_log *l, const char *path, struct err *e);
void request_log_close(struct request_log *l);

struct request_line {
    const char *client, *method, *path, *id;
    const char *forwarded_for; /* what the client or a proxy says; NULL: nothing */
    const struct tally *tally;
};

/* Lines that could not be written. */
uint64_t request_log_lost(const struct request_log *l);

/* Never waits. */
void request_log_put(struct request_log *l, const struct request_line *line);

#endif
