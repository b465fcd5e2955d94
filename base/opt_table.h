/* base/opt_table.h - what every table of options has in common: reading argv and the environment by it, and its help. The
 * tables are base/opt.c's (lockstep) and client/options.c's (lockstep-client). */
#ifndef BASE_OPT_TABLE_H
#define BASE_OPT_TABLE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define OPT_MAX_ROWS 160 /* of a table */

enum opt_type { OPT_STRING, OPT_INT, OPT_BYTES, OPT_REAL, OPT_FLAG, OPT_CHOICE, OPT_CALL };

struct opt {
    const char *name, *argument; /* --name ARGUMENT; NULL: it takes no value */
    enum opt_type type;
    size_t offset; /* in the record: const char *, int64_t, int64_t, double, bool, int64_t; OPT_CALL: none */
    int commands;  /* of those that have it, or'ed */
    double low, high, missing;
    const char *choices; /* OPT_CHOICE: "auto|cpu|cuda", the value is the index */
    const char *help;    /* with the default where there is one */
    int (*call)(void *record, const struct opt *o, const char *text, struct err *e); /* OPT_CALL */
};

struct opt_table {
    const char *program; /* "lockstep" */
    const char *prefix;  /* "LOCKSTEP_": LOCKSTEP_MAX_TOKENS of the environment is --max-tokens */
    const struct opt *row;
    size_t n; /* <= OPT_MAX_ROWS */
};

/* Words of the command line that are no options: "-", what follows "--", and what does not begin with a dash. */
struct opt_words {
    const char **word; /* [capacity], borrowed from argv */
    int n, capacity;   /* 0: none is expected */
    int n_plain;       /* of them, behind "--" */
};

/* Numbers get their `missing`; everything else is left as it is. */
void opt_defaults(const struct opt_table *t, void *record);

/* Options of argv[0..argc-1] for one command; command_name: of messages, "" when the program has but one. On failure *e
 * says which option, what was found and what is expected. given: [t->n], set where an option was given. *help: --help was
 * among them; nothing behind it is read. */
int opt_arguments(const struct opt_table *t, void *record, int command, const char *command_name, int argc, char **argv,
                  struct opt_words *words, bool *given, bool *help, struct err *e);

/* Options of the environment that were not given. Flags are set by "1". Only options of the command. */
int opt_environment(const struct opt_table *t, void *record, int command, const bool *given, struct err *e);

/* Warn of variables of the environment with our prefix that name no option of any command. others: the prefix of another
 * program's, which are passed over; NULL: none. */
void opt_warn_unknown(const struct opt_table *t, const char *others);

/* A page's list of options, to standard output. */
void opt_print(const struct opt_table *t, int command);

/* Text in a column, broken between words, to standard output. */
void opt_print_wrapped(const char *text, int indent, int width);

#endif
