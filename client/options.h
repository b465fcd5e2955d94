/* client/options.h - the command line of lockstep-client. Fields of a `generate` request go straight into the
 * JSON object that is sent: the server alone knows their ranges. */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include "base/err.h"
#include "client/connection.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum client_command {
    CLIENT_GENERATE = 1, /* also when no command is named */
    CLIENT_OP = 2,       /* health, models, metrics, cancel, drain, shutdown: an operation without text */
    CLIENT_TOKENIZE = 4,
    CLIENT_DETOKENIZE = 8,
    CLIENT_SEND = 16, /* raw requests */
    CLIENT_BENCH = 32,
    CLIENT_TOP = 64,
    CLIENT_CHAT = 128
};

#define CLIENT_MAX_WORDS 1

/* Strings are borrowed from argv or the environment. */
struct client_options {
    enum client_command command;
    const char *op; /* the word that named the command: "health"; "generate" when none did */
    bool help, version;
    struct connection_setup connection;
    double timeout;   /* seconds for an answer; 0: as long as the server lives */
    json_t *request;  /* owned: the fields of the request that options set */
    const char *text; /* the prompt, text, ids or file named without an option; NULL: none */

    const char *system;
    bool chat, stream, no_stream, json;

    int64_t max_concurrency; /* 0: not limited */
    int64_t num_prompts, input_len, output_len, seed, warmups, progress;
    double request_rate, range_ratio; /* requests a second, INFINITY: all at once */
    double bench_temperature;
    const char *dataset;
    bool ignore_eos;

    double interval; /* seconds */
    bool once;
};

/* options_close it in any case. ERR_USAGE says which option, what was found and what is expected. */
int client_options_parse(struct client_options *o, int argc, char **argv, struct err *e);
void client_options_close(struct client_options *o);

/* The overview (no command named) or a command's page, to standard output. */
void client_options_help(const struct client_options *o);

struct opt_book;
/* The data from which man pages and completions are made. */
void client_options_book(struct opt_book *b);

#endif
