/* client/options.h - the command line of lockstep-client. Fields of a request go straight into the JSON object that is
 * sent: the server alone knows their ranges. */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include "client/ask_options.h"
#include "client/bench_options.h"
#include "client/send_options.h"
#include "client/top_options.h"

enum client_command {
    CLIENT_GENERATE = 1, /* also when no command is named */
    CLIENT_OP = 2,       /* health, models, metrics, drain, shutdown: an operation without text */
    CLIENT_TOKENIZE = 4,
    CLIENT_DETOKENIZE = 8,
    CLIENT_SEND = 16, /* raw requests */
    CLIENT_BENCH = 32,
    CLIENT_TOP = 64,
    CLIENT_CHAT = 128
};

#define CLIENT_MAX_WORDS 1

/* Only the command's own record is filled in; strings are borrowed from argv or the environment. */
struct client_options {
    enum client_command command;
    const char *name; /* the command's, for its help; NULL: none was named */
    bool help, version;
    struct ask_options ask; /* also of chat and of operations */
    struct client_bench_options bench;
    struct send_options send;
    struct top_options top;
};

/* The command's part that all commands have. */
struct call_options *client_options_call(struct client_options *o);

/* client_options_close it in any case. ERR_USAGE says which option, what was found and what is expected. */
int client_options_parse(struct client_options *o, int argc, char **argv, struct err *e);
void client_options_close(struct client_options *o);

/* The overview (no command named) or a command's page, to standard output. */
void client_options_help(const struct client_options *o);

struct opt_book;
/* The data from which man pages and completions are generated. */
void client_options_book(struct opt_book *b);

#endif
