/* base/opt_table.c - see opt_table.h. */
#include "base/opt_table.h"
#include "base/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANY_COMMAND (~0)

bool opt_next(const struct opt_table *t, int commands, struct opt_cursor *at)
{
    for (; at->part < t->n_parts; at->part++, at->next = 0) {
        const struct opt_part *part = &t->part[at->part];
        if (at->next < part->rows->n && (part->commands & commands) != 0) {
            at->row = &part->rows->row[at->next];
            at->offset = part->offset;
            at->index = at->n_passed + at->next++;
            return true;
        }
        at->n_passed += part->rows->n;
    }
    return false;
}

/* false: the command has no such option. */
static bool find_row(const struct opt_table *t, int command, const char *name, size_t length, struct opt_cursor *found)
{
    *found = (struct opt_cursor){0};
    while (opt_next(t, command, found))
        if (strlen(found->row->name) == length && strncmp(found->row->name, name, length) == 0)
            return true;
    return false;
}

static int out_of_range(const struct opt *o, const char *text, struct err *e)
{
    if (o->type == OPT_REAL)
        return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected a number in [%.15g, %.15g]", o->name, text, o->low,
                   o->high);
    return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected an integer in [%lld, %lld]%s", o->name, text,
               (long long)o->low, (long long)o->high, o->type == OPT_BYTES ? ", K, M, G or T may follow it" : "");
}

static int set_number(const struct opt *o, void *member, const char *text, struct err *e)
{
    char *end = NULL;
    errno = 0;
    if (o->type == OPT_REAL) {
        double x = strtod(text, &end);
        if (end == text || *end != '\0' || !(x >= o->low && x <= o->high))
            return out_of_range(o, text, e);
        *(double *)member = x;
        return 0;
    }
    long long n = strtoll(text, &end, 10), value = 0;
    long long unit = 1;
    if (o->type == OPT_BYTES && end != text && *end != '\0') {
        const char *suffix = strchr("KMGT", toupper((unsigned char)*end));
        unit = suffix != NULL ? 1LL << 10 * (suffix - "KMGT" + 1) : 0;
        end++;
        end += *end == 'i' ? 1 : 0;
        end += *end == 'B' ? 1 : 0;
    }
    if (errno != 0 || end == text || *end != '\0' || unit == 0 || __builtin_mul_overflow(n, unit, &value) ||
        value < (long long)o->low || value > (long long)o->high)
        return out_of_range(o, text, e);
    *(int64_t *)member = value;
    return 0;
}

static int set_choice(const struct opt *o, void *member, const char *text, struct err *e)
{
    size_t length = strlen(text);
    int64_t index = 0;
    for (const char *at = o->choices; at != NULL; index++) {
        const char *bar = strchr(at, '|');
        if ((bar != NULL ? (size_t)(bar - at) : strlen(at)) == length && strncmp(at, text, length) == 0) {
            *(int64_t *)member = index;
            return 0;
        }
        at = bar != NULL ? bar + 1 : NULL;
    }
    return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected %s", o->name, text, o->choices);
}

/* all: the program's record. */
static int set_member(void *all, const struct opt_cursor *at, const char *text, struct err *e)
{
    const struct opt *o = at->row;
    void *record = (char *)all + at->offset, *member = (char *)record + o->offset;
    switch (o->type) {
    case OPT_STRING:
        *(const char **)member = text;
        return 0;
    case OPT_FLAG:
        *(bool *)member = true;
        return 0;
    case OPT_CHOICE:
        return set_choice(o, member, text, e);
    case OPT_CALL:
        return o->call(record, o, text, e);
    case OPT_INT:
    case OPT_BYTES:
    case OPT_REAL:
        break;
    }
    return set_number(o, member, text, e);
}

void opt_defaults(const struct opt_table *t, void *record)
{
    for (struct opt_cursor at = {0}; opt_next(t, ANY_COMMAND, &at);) {
        void *member = (char *)record + at.offset + at.row->offset;
        if (at.row->type == OPT_REAL)
            *(double *)member = at.row->missing;
        else if (at.row->type == OPT_INT || at.row->type == OPT_BYTES)
            *(int64_t *)member = (int64_t)at.row->missing;
    }
}

/* Flags take no value, and rows with a function may take none. */
static bool takes_value(const struct opt *o)
{
    return o->argument != NULL;
}

/* LOCKSTEP_MAX_TOKENS of --max-tokens. */
static void environment_name(char *name, size_t bytes, const struct opt_table *t, const struct opt *o)
{
    size_t n = (size_t)snprintf(name, bytes, "%s", t->prefix);
    for (const char *c = o->name; *c != '\0' && n + 1 < bytes; c++)
        name[n++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    name[n] = '\0';
}

/* Variables of the tests and of their runners. */
static bool is_of_tests(const char *name)
{
    static const char *const names[] = {"LOCKSTEP_BINARY", "LOCKSTEP_BUILD",     "LOCKSTEP_SANITIZED",
                                        "LOCKSTEP_DEMO",   "LOCKSTEP_TEST_MARK", "LOCKSTEP_CASE_STRIDE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void warn_of(const struct opt_table *t, const char *name)
{
    char known[64], best[64] = "";
    int distance = nearest_limit(name) + 1;
    for (struct opt_cursor at = {0}; opt_next(t, ANY_COMMAND, &at);) {
        environment_name(known, sizeof known, t, at.row);
        int changes = nearest_distance(name, known);
        if (changes == 0)
            return;
        if (changes < distance) {
            distance = changes;
            memcpy(best, known, sizeof best);
        }
    }
    (void)fprintf(stderr, "%s: warning: environment variable %.80s is not an option%s%s%s\n", t->program, name,
                  best[0] != '\0' ? "; did you mean " : "", best, best[0] != '\0' ? "?" : "");
}

static bool begins_with_any(const char *name, const char *const *prefix)
{
    while (*prefix != NULL && strncmp(name, *prefix, strlen(*prefix)) != 0)
        prefix++;
    return *prefix != NULL;
}

void opt_warn_unknown(const struct opt_table *t, const char *const *others)
{
    for (char **v = environ; *v != NULL; v++) {
        char name[96];
        size_t n = strcspn(*v, "=");
        if (strncmp(*v, t->prefix, strlen(t->prefix)) != 0 || n >= sizeof name)
            continue;
        memcpy(name, *v, n);
        name[n] = '\0';
        if (!is_of_tests(name) && !begins_with_any(name, others))
            warn_of(t, name);
    }
}

/* Only options of the command are looked at. */
int opt_environment(const struct opt_table *t, void *record, int command, const bool *given, struct err *e)
{
    for (struct opt_cursor at = {0}; opt_next(t, command, &at);) {
        const struct opt *o = at.row;
        char name[64];
        environment_name(name, sizeof name, t, o);
        const char *value = getenv(name);
        if (value == NULL || given[at.index])
            continue;
        if (!takes_value(o) && strcmp(value, "1") != 0 && strcmp(value, "0") != 0)
            return ERR(e, ERR_USAGE, "environment variable %s: found \"%.80s\", expected 0 or 1", name, value);
        if (!takes_value(o) && strcmp(value, "0") == 0)
            continue;
        if (set_member(record, &at, value, e) != 0) {
            struct err found = *e;
            *e = (struct err){0};
            return ERR(e, found.code, "environment variable %s: %.400s", name, found.text);
        }
    }
    return 0;
}

/* "lockstep generate", "lockstep-client" */
static void full_name(char *text, size_t bytes, const struct opt_table *t, const char *command_name)
{
    (void)snprintf(text, bytes, "%s%s%s", t->program, *command_name != '\0' ? " " : "", command_name);
}

/* "-m", but neither "-" nor "-5" nor "-- " nor "- a text". */
static bool is_letter(const char *word)
{
    return word[0] == '-' && isalpha((unsigned char)word[1]) && word[2] == '\0';
}

/* Whether "-model" probably means --model. */
static bool is_long_with_one_dash(const struct opt_table *t, int command, const char *word)
{
    struct opt_cursor found;
    return word[0] == '-' && word[1] != '-' && find_row(t, command, word + 1, strcspn(word + 1, "="), &found);
}

static int add_word(const struct opt_table *t, int command, const char *command_name, struct opt_words *words,
                    const char *word, bool plain, struct err *e)
{
    char name[64], hint[100] = "";
    if (is_long_with_one_dash(t, command, word))
        (void)snprintf(hint, sizeof hint, ": did you mean -%s?", word);
    full_name(name, sizeof name, t, command_name);
    if (words->capacity == 0)
        return ERR(e, ERR_USAGE, "found \"%.80s\", expected an option%s (see: %s --help)", word, hint, name);
    if (words->n == words->capacity)
        return ERR(e, ERR_USAGE, "found \"%.80s\" beside \"%.80s\", expected %d at most (see: %s --help)", word,
                   words->word[0], words->capacity, name);
    words->word[words->n++] = word;
    words->n_plain += plain;
    return 0;
}

/* The environment must not undo it by another name of the same option. */
static void note_given(const struct opt_table *t, const struct opt_cursor *option, bool *given)
{
    size_t member = option->offset + option->row->offset;
    for (struct opt_cursor at = {0}; opt_next(t, ANY_COMMAND, &at);)
        if (at.index == option->index || (option->row->type != OPT_CALL && at.row->type == option->row->type &&
                                          at.offset + at.row->offset == member))
            given[at.index] = true;
}

char opt_letter_of(const struct opt_table *t, const struct opt *o)
{
    for (size_t i = 0; i < t->n_letters; i++)
        if (strcmp(t->letter[i].name, o->name) == 0)
            return t->letter[i].letter;
    return '\0';
}

/* Finds the row that "-m" stands for; false: none. */
static bool find_letter(const struct opt_table *t, int command, char letter, struct opt_cursor *found)
{
    for (size_t i = 0; i < t->n_letters; i++)
        if (t->letter[i].letter == letter && find_row(t, command, t->letter[i].name, strlen(t->letter[i].name), found))
            return true;
    return false;
}

static int no_such_option(const struct opt_table *t, int command, const char *command_name, const char *word,
                          struct err *e)
{
    char full[64], name[64], hint[100] = "";
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    full_name(full, sizeof full, t, command_name);
    int least = is_letter(word) ? 0 : nearest_limit(name + 2) + 1;
    for (struct opt_cursor at = {0}; opt_next(t, command, &at);) {
        int changes = nearest_distance(name + 2, at.row->name);
        if (changes >= least)
            continue;
        least = changes;
        (void)snprintf(hint, sizeof hint, ": did you mean --%s?", at.row->name);
    }
    if (*command_name == '\0') /* the program's name stands in front of the line */
        return ERR(e, ERR_USAGE, "no option \"%.80s\"%s (see: %s --help)", word, hint, full);
    return ERR(e, ERR_USAGE, "%s has no option \"%.80s\"%s (see: %s --help)", command_name, word, hint, full);
}

static bool is_path(const struct opt *o)
{
    return strcmp(o->argument, "DIR") == 0 || strcmp(o->argument, "FILE") == 0;
}

/* A variable that is unset in a script leaves a path empty, or the next option in its place. */
static int check_path(const struct opt_table *t, int command, const struct opt *o, const char *value, struct err *e)
{
    struct opt_cursor found;
    if (*value == '\0')
        return ERR(e, ERR_USAGE, "--%s: found an empty value, expected %s", o->name, o->argument);
    if (is_letter(value) ? find_letter(t, command, value[1], &found)
                         : strncmp(value, "--", 2) == 0 && find_row(t, command, value + 2, strlen(value + 2), &found))
        return ERR(e, ERR_USAGE, "--%s: found the option %s, expected %s", o->name, value, o->argument);
    return 0;
}

/* The option at argv[0]; returns how many arguments it takes, -1 on failure. */
static int read_option(const struct opt_table *t, void *record, int command, const char *command_name, int argc,
                       char **argv, bool *given, struct err *e)
{
    bool letter = is_letter(argv[0]);
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    struct opt_cursor at;
    if (letter ? !find_letter(t, command, argv[0][1], &at) : !find_row(t, command, name, strcspn(name, "="), &at))
        return no_such_option(t, command, command_name, argv[0], e);
    const struct opt *o = at.row;
    if (!takes_value(o) && equals != NULL)
        return ERR(e, ERR_USAGE, "--%s takes no value", o->name);
    if (takes_value(o) && equals == NULL && argc == 1)
        return ERR(e, ERR_USAGE, "--%s needs a value: %s", o->name, o->argument);
    const char *value = !takes_value(o) ? "" : equals != NULL ? equals + 1 : argv[1];
    note_given(t, &at, given);
    if (takes_value(o) && is_path(o) && check_path(t, command, o, value, e) != 0)
        return -1;
    if (set_member(record, &at, value, e) != 0)
        return -1;
    return takes_value(o) && equals == NULL ? 2 : 1;
}

int opt_arguments(const struct opt_table *t, void *record, int command, const char *command_name, int argc, char **argv,
                  struct opt_words *words, bool *given, bool *help, struct err *e)
{
    bool plain = false; /* behind "--" */
    for (int i = 0, n; i < argc; i += n) {
        const char *word = argv[i];
        n = 1;
        if (!plain && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            *help = true;
            return 0;
        }
        if (!plain && words->capacity > 0 && strcmp(word, "--") == 0)
            plain = true;
        else if (plain || (strncmp(word, "--", 2) != 0 && !is_letter(word)))
            n = add_word(t, command, command_name, words, word, plain, e) == 0 ? 1 : -1;
        else
            n = read_option(t, record, command, command_name, argc - i, argv + i, given, e);
        if (n < 0)
            return -1;
    }
    return 0;
}

void opt_print_wrapped(const char *text, int indent, int width)
{
    int column = indent;
    while (*text != '\0') {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > width) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void opt_print(const struct opt_table *t, int command)
{
    printf("\nOptions:\n");
    for (struct opt_cursor at = {0}; opt_next(t, command, &at);) {
        const struct opt *o = at.row;
        char letter = opt_letter_of(t, o);
        if (letter != '\0')
            printf("  -%c, ", letter);
        else
            printf("  ");
        printf("--%s%s%s\n      ", o->name, o->argument != NULL ? " " : "", o->argument != NULL ? o->argument : "");
        opt_print_wrapped(o->help, 6, 100);
    }
}
