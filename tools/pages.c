/* tools/pages.c - man pages and bash completions, generated from the option tables of the programs. Usage: pages
 * FOLDER; writes lockstep.1, lockstep-COMMAND.1, lockstep-client.1, lockstep-client-COMMAND.1, lockstep-gateway.1 and
 * the completions lockstep.bash, lockstep-client.bash and lockstep-gateway.bash into it. */
#include "base/opt_table.h"
#include "client/options.h"
#include "commands/options.h"
#include "gateway/options.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *page; /* the file being written */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void open_page(const char *folder, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    page = fopen(path, "w");
    if (page == NULL)
        die(path);
}

static void close_page(void)
{
    if (ferror(page) != 0 || fclose(page) != 0)
        die("pages: cannot write");
}

/* Writes text of a man page: escapes characters special to roff, and ends the line. */
static void put_text(const char *text)
{
    if (*text == '.' || *text == '\'')
        (void)fputs("\\&", page);
    for (; *text != '\0'; text++)
        (void)fprintf(page, *text == '\\' ? "\\e" : *text == '-' ? "\\-" : "%c", *text);
    (void)fputc('\n', page);
}

static void put_section(const char *name)
{
    (void)fprintf(page, ".SH %s\n", name);
}

static void put_title(const char *name)
{
    (void)fputs(".TH ", page);
    for (; *name != '\0'; name++)
        (void)fputc(toupper((unsigned char)*name), page);
    (void)fprintf(page, " 1 \"\" \"Lockstep %s\" \"Lockstep\"\n", LOCKSTEP_VERSION);
}

static void put_option(const struct opt_book *b, const struct opt *o)
{
    char letter = opt_letter_of(b->table, o);
    (void)fputs(".TP\n", page);
    if (letter != '\0')
        (void)fprintf(page, "\\fB\\-%c\\fR, ", letter);
    (void)fputs("\\fB\\-\\-", page);
    for (const char *c = o->name; *c != '\0'; c++)
        (void)fprintf(page, *c == '-' ? "\\-" : "%c", *c);
    (void)fputs("\\fR", page);
    if (o->argument != NULL)
        (void)fprintf(page, " \\fI%s\\fR", o->argument);
    (void)fputc('\n', page);
    put_text(o->help);
}

static void put_statuses(const struct opt_book *b)
{
    put_section("EXIT STATUS");
    for (size_t i = 0; i < b->n_statuses; i++) {
        (void)fprintf(page, ".TP\n.B %d\n", b->status[i].code);
        put_text(b->status[i].meaning);
    }
}

static void put_ends(const struct opt_book *b)
{
    put_section("ENVIRONMENT");
    (void)fprintf(page,
                  "Options that are not given are read from the environment: \\-\\-max\\-tokens from "
                  "%sMAX_TOKENS. Flags are set by 1.\n",
                  b->table->prefix);
    put_statuses(b);
}

/* Tells whether the program has no commands, that is, one without a name. */
static bool is_single(const struct opt_book *b)
{
    return b->n_commands == 1 && b->command[0].name[0] == '\0';
}

static void put_see_also(const struct opt_book *b)
{
    put_section("SEE ALSO");
    (void)fprintf(page, ".BR %s (1)", is_single(b) ? "lockstep" : b->table->program);
    for (size_t i = 0; i < b->n_commands && !is_single(b); i++)
        (void)fprintf(page, ",\n.BR %s\\-%s (1)", b->table->program, b->command[i].name);
    (void)fputs("\n", page);
}

static void put_options(const struct opt_book *b, const struct opt_command *c)
{
    put_section("OPTIONS");
    for (struct opt_cursor at = {0}; opt_next(b->table, c->command, &at);)
        put_option(b, at.row);
}

static void put_commands(const struct opt_book *b)
{
    put_section("COMMANDS");
    for (size_t i = 0; i < b->n_commands; i++) {
        (void)fprintf(page, ".TP\n.B %s\n", b->command[i].name);
        put_text(b->command[i].help);
    }
}

static void write_overview(const struct opt_book *b, const char *folder)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s.1", b->table->program);
    open_page(folder, name);
    put_title(b->table->program);
    put_section("NAME");
    (void)fprintf(page, "%s \\- ", b->table->program);
    put_text(b->summary);
    put_section("SYNOPSIS");
    for (size_t i = 0; i < b->n_commands; i++) {
        (void)fputs(i > 0 ? ".br\n" : "", page);
        put_text(b->command[i].usage);
    }
    if (is_single(b))
        put_options(b, &b->command[0]);
    else
        put_commands(b);
    put_ends(b);
    put_see_also(b);
    close_page();
}

static void write_command(const struct opt_book *b, const struct opt_command *c, const char *folder)
{
    char name[80], file[96];
    (void)snprintf(name, sizeof name, "%s-%s", b->table->program, c->name);
    (void)snprintf(file, sizeof file, "%s.1", name);
    open_page(folder, file);
    put_title(name);
    put_section("NAME");
    (void)fprintf(page, "%s\\-%s \\- ", b->table->program, c->name);
    put_text(c->help);
    put_section("SYNOPSIS");
    put_text(c->usage);
    put_options(b, c);
    put_ends(b);
    put_see_also(b);
    close_page();
}

/* Writes the values that an option takes, for the shell: "auto cpu cuda", "@files", "@folders"; "": any. */
static void put_values(const struct opt *o)
{
    const char *choices = o->choices != NULL ? o->choices : strchr(o->argument, '|') != NULL ? o->argument : "";
    if (strcmp(o->argument, "DIR") == 0)
        choices = "@folders";
    else if (strncmp(o->argument, "FILE", 4) == 0)
        choices = "@files";
    for (; *choices != '\0'; choices++)
        (void)fputc(*choices == '|' ? ' ' : *choices, page);
}

/* Writes one command's options, and the values of those that take one. */
static void put_completion(const struct opt_book *b, const struct opt_command *c)
{
    (void)fprintf(page, "    %s)\n        options='--help", is_single(b) ? "*" : c->name);
    for (struct opt_cursor at = {0}; opt_next(b->table, c->command, &at);)
        (void)fprintf(page, " --%s", at.row->name);
    (void)fputs("'\n        case $option in\n", page);
    for (struct opt_cursor at = {0}; opt_next(b->table, c->command, &at);) {
        const struct opt *o = at.row;
        if (o->argument == NULL)
            continue;
        char letter = opt_letter_of(b->table, o);
        (void)fprintf(page, "        --%s", o->name);
        if (letter != '\0')
            (void)fprintf(page, " | -%c", letter);
        (void)fputs(") takes='", page);
        put_values(o);
        (void)fputs(" ' ;;\n", page);
    }
    (void)fputs("        esac\n        ;;\n", page);
}

static void write_completion(const struct opt_book *b, const char *folder, const char *function)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s.bash", b->table->program);
    open_page(folder, name);
    (void)fprintf(
        page,
        "# bash completion of %s %s, made from its table of options.\n%s() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
        "    local options= takes= commands='",
        b->table->program, LOCKSTEP_VERSION, function);
    for (size_t i = 0; i < b->n_commands; i++)
        (void)fprintf(page, "%s%s", i > 0 ? " " : "", b->command[i].name);
    (void)fputs(
        "'\n    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" = 1 ] && [ -n \"$commands\" ]; then\n"
        "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$word\"))\n        return\n    fi\n"
        "    # --option=value: the shell splits at the sign.\n"
        "    [ \"$word\" = = ] && word=\n"
        "    [ \"$option\" = = ] && option=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    case $command in\n",
        page);
    for (size_t i = 0; i < b->n_commands; i++)
        put_completion(b, &b->command[i]);
    (void)fprintf(page,
                  "    esac\n"
                  "    case $takes in\n"
                  "    '') COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
                  "    @folders*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
                  "    @files*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
                  "    *) COMPREPLY=($(compgen -W \"$takes\" -- \"$word\")) ;;\n"
                  "    esac\n}\ncomplete -F %s %s\n",
                  function, b->table->program);
    close_page();
}

static void write_book(const struct opt_book *b, const char *folder, const char *function)
{
    write_overview(b, folder);
    for (size_t i = 0; i < b->n_commands && !is_single(b); i++)
        write_command(b, &b->command[i], folder);
    write_completion(b, folder, function);
}

int main(int argc, char **argv)
{
    struct opt_book book;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: pages FOLDER\n");
        return 2;
    }
    options_book(&book);
    write_book(&book, argv[1], "_lockstep");
    client_options_book(&book);
    write_book(&book, argv[1], "_lockstep_client");
    gateway_options_book(&book);
    write_book(&book, argv[1], "_lockstep_gateway");
    return 0;
}
