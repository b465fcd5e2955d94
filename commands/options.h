/* commands/options.h - the command line of lockstep: the commands, and each one's rows of options. The rows are defined
 * with the records that they fill: base/run_options.h and those of the commands. */
#ifndef COMMANDS_OPTIONS_H
#define COMMANDS_OPTIONS_H

#include "commands/bench/bench_options.h"
#include "commands/generate_options.h"
#include "coordinator/batch/batch_options.h"
#include "coordinator/server/serve_options.h"

enum command {
    COMMAND_HELP = 0,
    COMMAND_GENERATE = 1,
    COMMAND_INSPECT = 2,
    COMMAND_BENCH = 4,
    COMMAND_VERSION = 8,
    COMMAND_SERVE = 16,
    COMMAND_BATCH = 32,
    COMMAND_PREFLIGHT = 64
};

struct inspect_options {
    struct run_options run;
    int64_t ranks;
    int64_t read_rate; /* bytes per second; -1: not given */
    double sum_us;     /* the same */
};

struct options {
    enum command command;
    enum command help_for; /* with COMMAND_HELP: the subcommand, or COMMAND_HELP for the overview */
    /* The command's own record is filled in, the others have their defaults. */
    struct generate_options generate;
    struct inspect_options inspect;
    struct bench_options bench;
    struct serve_options serve;
    struct batch_options batch;
    struct run_options preflight;
};

/* Options of argv[1..], then LOCKSTEP_<OPTION> of the environment, then defaults. On failure *e names the option, the
 * value found and the expected one. */
int options_parse(struct options *o, int argc, char **argv, struct err *e);

/* The command's record of shared options; a command without them gets the defaults. */
struct run_options *options_run(struct options *o);

/* Does the command load several models? */
bool options_many(const struct options *o);

/* Warns of variables LOCKSTEP_* that name no option. Called by one rank. */
void options_warn_unknown(void);

/* Print the overview (COMMAND_HELP) or one subcommand's page to standard output. */
void options_help(enum command command);

/* The data from which man pages and completions are generated. */
void options_book(struct opt_book *b);

const char *command_name(enum command command);

#endif
