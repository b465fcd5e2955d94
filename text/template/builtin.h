/* text/template/builtin.h - filters, tests, functions and methods that templates can use, as tables. */
#ifndef TEXT_TEMPLATE_BUILTIN_H
#define TEXT_TEMPLATE_BUILTIN_H

#include "text/template/value.h"

#define BUILTIN_MAX_ARGUMENTS 8
#define CALL_MAX_ARGUMENTS    64

struct arguments {
    int n, n_named;
    struct value *value; /* [n] */
    struct text *name;   /* [n_named] */
    struct value *named; /* [n_named] */
};

struct builtin {
    const char *name;
    const char *parameters; /* "width first blank", after the subject; NULL: accepts any arguments */
    int least;              /* number of required ones */
    /* argument: [BUILTIN_MAX_ARGUMENTS], VALUE_ABSENT where none was given */
    struct value (*run)(struct renderer *m, struct value subject, const struct value *argument);
    struct value (*run_any)(struct renderer *m, struct value subject,
                            const struct arguments *given); /* parameters NULL */
};

/* The tables end with a name of NULL. */
extern const struct builtin text_filters[], list_filters[], choice_filters[], value_filters[], value_tests[],
    global_functions[];
extern const struct builtin string_methods[], dict_methods[], list_methods[], loop_methods[];

/* NULL: none. */
const struct builtin *find_filter(struct text name);
const struct builtin *find_test(struct text name);
const struct builtin *find_function(struct text name);
const struct builtin *find_method(struct text name); /* of whatever type */
const struct builtin *find_in(const struct builtin *table, struct text name);
/* "a, b, c": all names, for messages. */
void list_filters_by_name(char *out, size_t bytes);
void list_tests_by_name(char *out, size_t bytes);
void list_functions_by_name(char *out, size_t bytes);
void list_methods_by_name(char *out, size_t bytes);

/* Index of a parameter by name, or -1; the number of parameters. */
int find_parameter(const struct builtin *b, struct text name);
int count_parameters(const struct builtin *b);

/* Check the arguments against the parameters and run it. */
struct value call_builtin(struct renderer *m, const struct builtin *b, struct value subject,
                          const struct arguments *given);

/* Typed access for run(): absent gives `missing`; another type fails. */
int64_t argument_integer(struct renderer *m, const struct value *argument, int64_t missing);
bool argument_true(const struct value *argument, bool missing);
struct text argument_text(struct renderer *m, const struct value *argument, struct text missing);
struct text subject_text(struct renderer *m, struct value v); /* str(v) */

#endif
