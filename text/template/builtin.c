/* text/template/builtin.c - finds built-in filters, tests, functions and methods, and checks their arguments. See
 * builtin.h. */
#include "text/template/renderer.h"

#include <stdio.h>
#include <string.h>

static const struct builtin *const filter_tables[] = {text_filters, list_filters, choice_filters, value_filters, NULL};
static const struct builtin *const test_tables[] = {value_tests, NULL};
static const struct builtin *const function_tables[] = {global_functions, NULL};
static const struct builtin *const method_tables[] = {string_methods, dict_methods, list_methods, loop_methods, NULL};

const struct builtin *find_in(const struct builtin *table, struct text name)
{
    for (; table->name != NULL; table++)
        if (text_is(name, table->name))
            return table;
    return NULL;
}

static const struct builtin *find_among(const struct builtin *const *tables, struct text name)
{
    const struct builtin *found = NULL;
    for (; *tables != NULL && found == NULL; tables++)
        found = find_in(*tables, name);
    return found;
}

const struct builtin *find_filter(struct text name)
{
    return find_among(filter_tables, name);
}

const struct builtin *find_test(struct text name)
{
    return find_among(test_tables, name);
}

const struct builtin *find_function(struct text name)
{
    return find_among(function_tables, name);
}

const struct builtin *find_method(struct text name)
{
    return find_among(method_tables, name);
}

static void list_names(const struct builtin *const *tables, char *out, size_t bytes)
{
    size_t n = 0;
    out[0] = '\0';
    for (; *tables != NULL; tables++)
        for (const struct builtin *b = *tables; b->name != NULL && n < bytes; b++)
            n += (size_t)snprintf(out + n, bytes - n, "%s%s", n > 0 ? ", " : "", b->name);
}

void list_filters_by_name(char *out, size_t bytes)
{
    list_names(filter_tables, out, bytes);
}

void list_tests_by_name(char *out, size_t bytes)
{
    list_names(test_tables, out, bytes);
}

void list_functions_by_name(char *out, size_t bytes)
{
    list_names(function_tables, out, bytes);
}

void list_methods_by_name(char *out, size_t bytes)
{
    list_names(method_tables, out, bytes);
}

int find_parameter(const struct builtin *b, struct text name)
{
    int i = 0;
    for (const char *p = b->parameters; *p != '\0'; i++) {
        size_t n = strcspn(p, " ");
        if (n == name.n && memcmp(p, name.s, n) == 0)
            return i;
        p += n + (p[n] == ' ');
    }
    return -1;
}

int count_parameters(const struct builtin *b)
{
    int n = b->parameters[0] != '\0';
    for (const char *p = b->parameters; *p != '\0'; p++)
        n += *p == ' ';
    return n;
}

struct value call_builtin(struct renderer *m, const struct builtin *b, struct value subject,
                          const struct arguments *given)
{
    struct value argument[BUILTIN_MAX_ARGUMENTS] = {0};
    renderer_step(m, 0);
    if (b->parameters == NULL)
        return b->run_any(m, subject, given);
    int most = count_parameters(b);
    if (given->n > most || given->n + given->n_named < b->least)
        renderer_fail(m, "found %d arguments of \"%s\", expected %d to %d", given->n + given->n_named, b->name,
                      b->least, most);
    for (int i = 0; i < given->n; i++)
        argument[i] = given->value[i];
    for (int i = 0; i < given->n_named; i++) {
        int at = find_parameter(b, given->name[i]);
        if (at < 0 || argument[at].kind != VALUE_ABSENT)
            renderer_fail(m, "found the argument \"%.*s\" of \"%s\", expected each of \"%s\" once",
                          (int)(given->name[i].n < 60 ? given->name[i].n : 60), given->name[i].s, b->name,
                          b->parameters);
        argument[at] = given->named[i];
    }
    return b->run(m, subject, argument);
}

int64_t argument_integer(struct renderer *m, const struct value *argument, int64_t missing)
{
    if (argument->kind == VALUE_ABSENT || argument->kind == VALUE_NONE)
        return missing;
    if (argument->kind != VALUE_INTEGER && argument->kind != VALUE_BOOL)
        renderer_fail(m, "found an argument of type %s, expected an integer", value_type(*argument));
    return value_to_integer(*argument);
}

bool argument_true(const struct value *argument, bool missing)
{
    return argument->kind == VALUE_ABSENT ? missing : value_true(*argument);
}

struct text argument_text(struct renderer *m, const struct value *argument, struct text missing)
{
    if (argument->kind == VALUE_ABSENT)
        return missing;
    if (argument->kind != VALUE_STRING)
        renderer_fail(m, "found an argument of type %s, expected a string", value_type(*argument));
    return argument->text;
}

struct text subject_text(struct renderer *m, struct value v)
{
    struct text t = value_print(m, v);
    renderer_step(m, t.n);
    return t;
}
