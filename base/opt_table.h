/* base/opt_table.h - the command line of a program, by tables: reading argv and the environment, help, man pages,
 * completions. A record has its rows (base/opt_rows.h), a command a record; a program's table says which rows fill
 * which record for which command, so that commands share records and rows: commands/options.c (lockstep),
 * client/options.c (lockstep-client). */
#ifndef BASE_OPT_TABLE_H
#define BASE_OPT_TABLE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define OPT_MAX_ROWS     320 /* of a table: the rows of all parts together */
#define OPT_MAX_COMMANDS 24

enum opt_type { OPT_STRING, OPT_INT, OPT_BYTES, OPT_REAL, OPT_FLAG, OPT_CHOICE, OPT_CALL };

struct opt {
    const char *name, *argument; /* --name ARGUMENT; NULL: it takes no value */
    enum opt_type type;
    size_t offset; /* in the rows' record: const char *, int64_t, int64_t, double, bool, int64_t; OPT_CALL: none */
    double low, high, missing;
    const char *choices; /* OPT_CHOICE: "auto|cpu|cuda", the value is the index */
    const char *help;    /* with the default where there is one */
    int (*call)(void *record, const struct opt *o, const char *text, struct err *e); /* OPT_CALL */
};

/* All rows of one record. */
struct opt_rows {
    const struct opt *row;
    size_t n;
};

/* Rows that some commands have. */
struct opt_part {
    const struct opt_rows *rows;
    size_t offset; /* of the rows' record in the program's */
    int commands;  /* or'ed */
};

/* -m for --model, of commands that have --model. */
struct opt_letter {
    char letter;
    const char *name;
};

struct opt_table {
    const char *program; /* "lockstep" */
    const char *prefix;  /* "LOCKSTEP_": LOCKSTEP_MAX_TOKENS of the environment is --max-tokens */
    const struct opt_part *part;
    size_t n_parts; /* with OPT_MAX_ROWS rows at most */
    const struct opt_letter *letter;
    size_t n_letters;
};

/* A place in a table, zeroed before the first row. */
struct opt_cursor {
    const struct opt *row;
    size_t offset; /* of the row's record in the program's */
    size_t index;  /* of the row among those of all parts */
    size_t part, next, n_passed;
};

/* The next row of any of these commands; false: there is none. */
bool opt_next(const struct opt_table *t, int commands, struct opt_cursor *at);

/* A subcommand, as help, man pages and completions show it. */
struct opt_command {
    int command; /* bits as in struct opt_part's commands */
    const char *name;
    char usage[160];
    const char *help;
};

struct opt_status {
    int code; /* exit status */
    const char *meaning;
};

/* The description of a program's command line. */
struct opt_book {
    const struct opt_table *table;
    const char *summary; /* after the program's name: "talks to ..." */
    struct opt_command command[OPT_MAX_COMMANDS];
    size_t n_commands;
    const struct opt_status *status;
    size_t n_statuses;
};

/* Words of the command line that are not options: "-", words after "--", and words that neither begin with "--" nor
 * are "-x" with a letter x. */
struct opt_words {
    const char **word; /* [capacity], borrowed from argv */
    int n, capacity;   /* 0: none is expected */
    int n_plain;       /* of them, behind "--" */
};

/* Sets number members to their `missing`; all other members stay unchanged. */
void opt_defaults(const struct opt_table *t, void *record);

/* Reads the options of argv[0..argc-1] for one command; command_name: for messages, "" if the program has only one. On
 * failure *e names the option, the value found and the expected one. given: [OPT_MAX_ROWS], set where an option was
 * given, by opt_cursor's index. *help: --help was among them; nothing after it is read. */
int opt_arguments(const struct opt_table *t, void *record, int command, const char *command_name, int argc, char **argv,
                  struct opt_words *words, bool *given, bool *help, struct err *e);

/* Reads from the environment those options of the command that were not given. Flags are set by "1". */
int opt_environment(const struct opt_table *t, void *record, int command, const bool *given, struct err *e);

/* Warn of environment variables with the table's prefix that name no option of any command. others: the prefixes of
 * other programs' variables, which are skipped, and NULL. */
void opt_warn_unknown(const struct opt_table *t, const char *const *others);

/* The letter of a row; '\0': it has none. */
char opt_letter_of(const struct opt_table *t, const struct opt *o);

/* A page's list of options, to standard output. */
void opt_print(const struct opt_table *t, int command);

/* Text in a column, broken between words, to standard output. */
void opt_print_wrapped(const char *text, int indent, int width);

#endif
