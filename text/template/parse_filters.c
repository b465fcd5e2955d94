/* text/template/parse_filters.c - filters and tests: whether they exist, and whether their arguments fit. See
 * parser.h. */
#include "text/template/builtin.h"
#include "text/template/parser.h"

#include <string.h>

/* The arguments fit the parameters of a filter or test. `before`: of a filter that is the first argument of another. */
static void check_arguments(struct parser *p, const struct builtin *b, const struct node *list, const char *what)
{
    int n = 0;
    if (b->parameters == NULL)
        return;
    for (const struct node *a = list; a != NULL; a = a->next)
        if (a->kind == NODE_SPREAD)
            return; /* counted when it is called */
    for (const struct node *a = list; a != NULL; a = a->next, n++)
        if (a->kind == NODE_ARGUMENT && find_parameter(b, a->name) < 0)
            heap_fail(p->w, ERR_UNSUPPORTED, "found the argument \"%.*s\" of the %s \"%s\", expected one of \"%s\"",
                      (int)(a->name.n < 60 ? a->name.n : 60), a->name.s, what, b->name, b->parameters);
    if (n > count_parameters(b) || n < b->least)
        heap_fail(p->w, ERR_UNSUPPORTED, "found %d arguments of the %s \"%s\", expected %d to %d", n, what, b->name,
                  b->least, count_parameters(b));
}

/* Filters that take another by its name have it checked, too. */
static void check_inner(struct parser *p, const struct builtin *b, const struct node *list)
{
    bool maps = strcmp(b->name, "map") == 0, by_name = strcmp(b->name, "select") == 0 || strcmp(b->name, "reject") == 0;
    bool by_member = strcmp(b->name, "selectattr") == 0 || strcmp(b->name, "rejectattr") == 0;
    const struct node *inner = by_member && list != NULL ? list->next : list;
    char names[ERR_TEXT_BYTES];
    if ((!maps && !by_name && !by_member) || inner == NULL || inner->kind != NODE_CONSTANT ||
        inner->value.kind != VALUE_STRING)
        return;
    struct text name = inner->value.text;
    if ((maps ? find_filter(name) : find_test(name)) != NULL)
        return;
    (maps ? list_filters_by_name : list_tests_by_name)(names, sizeof names);
    heap_fail(p->w, ERR_UNSUPPORTED, "found the %s \"%.*s\", expected one of %s", maps ? "filter" : "test",
              (int)(name.n < 60 ? name.n : 60), name.s, names);
}

static const struct builtin *expect_filter(struct parser *p)
{
    char names[ERR_TEXT_BYTES];
    struct text name = expect_name(p, "the name of a filter");
    const struct builtin *b = find_filter(name);
    if (b != NULL)
        return b;
    list_filters_by_name(names, sizeof names);
    heap_fail(p->w, ERR_UNSUPPORTED, "found the filter \"%.*s\", expected one of %s", (int)(name.n < 60 ? name.n : 60),
              name.s, names);
}

struct node *parse_filters(struct parser *p, struct node *a, bool first)
{
    int depth = p->depth;
    while (first || skip_operator(p, "|")) {
        struct node *n = new_node(p, NODE_FILTER);
        descend(p);
        first = false;
        n->builtin = expect_filter(p);
        n->a = a;
        n->b = skip_operator(p, "(") ? parse_arguments(p) : NULL;
        check_arguments(p, n->builtin, n->b, "filter");
        check_inner(p, n->builtin, n->b);
        a = n;
    }
    p->depth = depth;
    return a;
}

/* A test may have one argument without parentheses. */
static bool at_bare_argument(const struct parser *p)
{
    enum token_kind kind = p->token->kind;
    if (kind == TOKEN_NAME)
        return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and") && !at_name(p, "is");
    return kind == TOKEN_STRING || kind == TOKEN_INTEGER || kind == TOKEN_FLOAT || at_operator(p, "[") ||
           at_operator(p, "{");
}

struct node *parse_test(struct parser *p, struct node *a)
{
    char names[ERR_TEXT_BYTES];
    bool negated = skip_name(p, "not");
    struct node *n = new_node(p, NODE_TEST);
    struct text name = expect_name(p, "the name of a test");
    n->a = a;
    n->builtin = find_test(name);
    if (n->builtin == NULL) {
        list_tests_by_name(names, sizeof names);
        heap_fail(p->w, ERR_UNSUPPORTED, "found the test \"%.*s\", expected one of %s",
                  (int)(name.n < 60 ? name.n : 60), name.s, names);
    }
    if (skip_operator(p, "("))
        n->b = parse_arguments(p);
    else if (at_bare_argument(p))
        n->b = parse_postfix(p, parse_primary(p));
    check_arguments(p, n->builtin, n->b, "test");
    if (at_name(p, "is"))
        unexpected(p, "the end of the test: a test of a test needs parentheses");
    if (!negated)
        return n;
    struct node *not_so = new_node(p, NODE_NOT);
    not_so->a = n;
    return not_so;
}
