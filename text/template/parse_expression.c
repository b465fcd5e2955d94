/* text/template/parse_expression.c - expressions. See parser.h. */
#include "text/template/builtin.h"
#include "text/template/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct operator_row {
    const char *sign;
    enum operation operation;
};

static struct node *binary(struct parser *p, enum operation operation, struct node *a, struct node *b)
{
    struct node *n = new_node(p, NODE_BINARY);
    n->operation = operation;
    n->a = a;
    n->b = b;
    return n;
}

/* The row whose sign is next, which is then skipped; NULL: none. */
static const struct operator_row *skip_row(struct parser *p, const struct operator_row *row)
{
    for (; row->sign != NULL; row++)
        if (skip_operator(p, row->sign))
            return row;
    return NULL;
}

/* Operators of one rank, from left to right. */
static struct node *parse_left(struct parser *p, const struct operator_row *rows, struct node *(*part)(struct parser *))
{
    int depth = p->depth;
    struct node *left = part(p);
    for (const struct operator_row *row = skip_row(p, rows); row != NULL; row = skip_row(p, rows)) {
        descend(p);
        left = binary(p, row->operation, left, part(p));
    }
    p->depth = depth;
    return left;
}

static struct node *prefix(struct parser *p, enum node_kind kind, struct node *(*part)(struct parser *))
{
    struct node *n = new_node(p, kind);
    descend(p);
    n->a = part(p);
    p->depth--;
    return n;
}

static struct node *parse_unary_bare(struct parser *p)
{
    struct node *n = skip_operator(p, "-")   ? prefix(p, NODE_NEGATIVE, parse_unary_bare)
                     : skip_operator(p, "+") ? prefix(p, NODE_POSITIVE, parse_unary_bare)
                                             : parse_primary(p);
    return parse_postfix(p, n);
}

static struct node *parse_test(struct parser *p, struct node *a);

static struct node *parse_unary(struct parser *p)
{
    int depth = p->depth;
    struct node *n = parse_unary_bare(p);
    for (;;) {
        descend(p);
        if (at_operator(p, "|"))
            n = parse_filters(p, n, false);
        else if (skip_name(p, "is"))
            n = parse_test(p, n);
        else if (at_operator(p, "("))
            n = parse_postfix(p, n);
        else
            break;
    }
    p->depth = depth;
    return n;
}

static struct node *parse_power(struct parser *p)
{
    static const struct operator_row rows[] = {{"**", OP_POWER}, {NULL, 0}};
    return parse_left(p, rows, parse_unary);
}

static struct node *parse_product(struct parser *p)
{
    static const struct operator_row rows[] = {
        {"*", OP_MULTIPLY}, {"/", OP_DIVIDE}, {"//", OP_FLOOR_DIVIDE}, {"%", OP_MODULO}, {NULL, 0}};
    return parse_left(p, rows, parse_power);
}

static struct node *parse_concat(struct parser *p)
{
    struct node *first = parse_product(p), **end = &first->next;
    if (!at_operator(p, "~"))
        return first;
    struct node *n = new_node(p, NODE_CONCAT);
    n->a = first;
    for (; skip_operator(p, "~"); end = &(*end)->next)
        *end = parse_product(p);
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    static const struct operator_row rows[] = {{"+", OP_ADD}, {"-", OP_SUBTRACT}, {NULL, 0}};
    return parse_left(p, rows, parse_concat);
}

static bool skip_comparison(struct parser *p, enum operation *operation)
{
    static const struct operator_row rows[] = {
        {"==", OP_EQUAL},  {"!=", OP_NOT_EQUAL},     {"<", OP_LESS}, {"<=", OP_LESS_EQUAL},
        {">", OP_GREATER}, {">=", OP_GREATER_EQUAL}, {NULL, 0}};
    const struct operator_row *row = skip_row(p, rows);
    if (row != NULL) {
        *operation = row->operation;
        return true;
    }
    *operation = at_name(p, "not") ? OP_NOT_IN : OP_IN;
    if (*operation == OP_NOT_IN && p->token[1].kind == TOKEN_NAME && text_is(p->token[1].text, "in"))
        p->token++;
    return skip_name(p, "in");
}

static struct node *parse_comparison(struct parser *p)
{
    struct node *first = parse_sum(p), *n = NULL, **end = NULL;
    enum operation operation;
    while (skip_comparison(p, &operation)) {
        if (n == NULL) {
            n = new_node(p, NODE_COMPARE);
            n->a = first;
            end = &n->b;
        }
        *end = new_node(p, NODE_OPERAND);
        (*end)->operation = operation;
        (*end)->a = parse_sum(p);
        end = &(*end)->next;
    }
    return n != NULL ? n : first;
}

static struct node *parse_not(struct parser *p)
{
    return skip_name(p, "not") ? prefix(p, NODE_NOT, parse_not) : parse_comparison(p);
}

static struct node *parse_logic(struct parser *p, const char *word, enum node_kind kind,
                                struct node *(*part)(struct parser *))
{
    int depth = p->depth;
    struct node *left = part(p);
    while (skip_name(p, word)) {
        struct node *n = new_node(p, kind);
        descend(p);
        n->a = left;
        n->b = part(p);
        left = n;
    }
    p->depth = depth;
    return left;
}

static struct node *parse_and(struct parser *p)
{
    return parse_logic(p, "and", NODE_AND, parse_not);
}

struct node *parse_or(struct parser *p)
{
    return parse_logic(p, "or", NODE_OR, parse_and);
}

struct node *parse_expression(struct parser *p)
{
    int depth = p->depth;
    descend(p);
    struct node *left = parse_or(p);
    while (skip_name(p, "if")) {
        struct node *n = new_node(p, NODE_CHOICE);
        descend(p);
        n->b = left;
        n->a = parse_or(p);
        n->c = skip_name(p, "else") ? parse_expression(p) : NULL;
        left = n;
    }
    p->depth = depth;
    return left;
}

static bool at_end_of_tuple(const struct parser *p)
{
    return p->token->kind == TOKEN_BLOCK_END || p->token->kind == TOKEN_PRINT_END || at_operator(p, ")") ||
           at_operator(p, "=") || at_name(p, "in");
}

/* The rest of a tuple behind its first item. */
static struct node *finish_tuple(struct parser *p, struct node *first, struct node *(*part)(struct parser *))
{
    struct node *n = new_node(p, NODE_TUPLE), **end = &first->next;
    n->a = first;
    while (skip_operator(p, ",") && !at_end_of_tuple(p)) {
        *end = part(p);
        end = &(*end)->next;
    }
    return n;
}

struct node *parse_tuple(struct parser *p, bool with_choice)
{
    struct node *(*part)(struct parser *) = with_choice ? parse_expression : parse_or;
    struct node *first = part(p);
    return at_operator(p, ",") ? finish_tuple(p, first, part) : first;
}

static struct node *parse_one_target(struct parser *p)
{
    struct node *n = new_node(p, NODE_NAME);
    if (skip_operator(p, "(")) {
        descend(p);
        n = parse_target(p);
        p->depth--;
        expect_operator(p, ")");
        return n;
    }
    n->name = expect_name(p, "a name to assign to");
    if (skip_operator(p, ".")) {
        struct node *member = new_node(p, NODE_MEMBER);
        member->a = n;
        member->name = expect_name(p, "a member of a namespace");
        return member;
    }
    note(p, &p->assigned, n->name);
    return n;
}

struct node *parse_target(struct parser *p)
{
    struct node *first = parse_one_target(p);
    return at_operator(p, ",") ? finish_tuple(p, first, parse_one_target) : first;
}

static struct node *constant(struct parser *p, struct value v)
{
    struct node *n = new_node(p, NODE_CONSTANT);
    n->value = v;
    return n;
}

static struct node *parse_number(struct parser *p)
{
    char digits[64];
    size_t n = 0;
    struct text t = p->token->text;
    bool real = p->token->kind == TOKEN_FLOAT;
    for (size_t i = 0; i < t.n; i++)
        if (t.s[i] != '_' && n + 1 < sizeof digits)
            digits[n++] = t.s[i];
    digits[n] = '\0';
    errno = 0;
    struct value v = real ? value_real(strtod(digits, NULL)) : value_integer(strtoll(digits, NULL, 10));
    if (n + 1 >= sizeof digits || (!real && errno == ERANGE))
        unexpected(p, "a number of at most 64 bits");
    p->token++;
    return constant(p, v);
}

/* Strings behind one another are one. */
static struct node *parse_strings(struct parser *p)
{
    struct builder b = {.w = p->w};
    while (p->token->kind == TOKEN_STRING)
        build(&b, (p->token++)->text);
    return constant(p, value_text(built(&b)));
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = new_node(p, NODE_LIST), **end = &n->a;
    while (!at_operator(p, "]")) {
        *end = parse_expression(p);
        end = &(*end)->next;
        if (!skip_operator(p, ","))
            break;
    }
    expect_operator(p, "]");
    return n;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = new_node(p, NODE_DICT), **end = &n->a;
    while (!at_operator(p, "}")) {
        *end = parse_expression(p);
        expect_operator(p, ":");
        (*end)->next = parse_expression(p);
        end = &(*end)->next->next;
        if (!skip_operator(p, ","))
            break;
    }
    expect_operator(p, "}");
    return n;
}

static struct node *parse_parentheses(struct parser *p)
{
    struct node *n;
    if (at_operator(p, ")"))
        n = new_node(p, NODE_TUPLE);
    else
        n = parse_tuple(p, true);
    expect_operator(p, ")");
    return n;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        enum value_kind kind;
        bool truth;
    } words[] = {{"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},  {"false", VALUE_BOOL, false},
                 {"False", VALUE_BOOL, false}, {"none", VALUE_NONE, false}, {"None", VALUE_NONE, false}};
    struct text name = p->token->text;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (skip_name(p, words[i].name))
            return constant(p, words[i].kind == VALUE_NONE ? value_none() : value_bool(words[i].truth));
    struct node *n = new_node(p, NODE_NAME);
    n->name = name;
    note(p, &p->read, name);
    p->token++;
    if (p->macro != NULL) {
        p->macro->takes_rest |= text_is(name, "varargs");
        p->macro->takes_named |= text_is(name, "kwargs");
        p->macro->takes_caller |= text_is(name, "caller");
    }
    return n;
}

struct node *parse_primary(struct parser *p)
{
    struct node *n = NULL;
    descend(p);
    if (p->token->kind == TOKEN_NAME)
        n = parse_name(p);
    else if (p->token->kind == TOKEN_STRING)
        n = parse_strings(p);
    else if (p->token->kind == TOKEN_INTEGER || p->token->kind == TOKEN_FLOAT)
        n = parse_number(p);
    else if (skip_operator(p, "("))
        n = parse_parentheses(p);
    else if (skip_operator(p, "["))
        n = parse_list(p);
    else if (skip_operator(p, "{"))
        n = parse_dict(p);
    else
        unexpected(p, "an expression");
    p->depth--;
    return n;
}

static struct node *parse_slice(struct parser *p, struct node *a, struct node *start)
{
    struct node *n = new_node(p, NODE_SLICE);
    n->a = a;
    n->b = start;
    if (!at_operator(p, ":") && !at_operator(p, "]"))
        n->c = parse_expression(p);
    if (skip_operator(p, ":") && !at_operator(p, "]"))
        n->d = parse_expression(p);
    expect_operator(p, "]");
    return n;
}

static struct node *parse_item(struct parser *p, struct node *a)
{
    struct node *start = at_operator(p, ":") ? NULL : parse_expression(p);
    if (skip_operator(p, ":"))
        return parse_slice(p, a, start);
    struct node *n = new_node(p, NODE_ITEM);
    n->a = a;
    n->b = start;
    expect_operator(p, "]");
    return n;
}

static struct node *parse_member(struct parser *p, struct node *a)
{
    struct node *n;
    if (p->token->kind == TOKEN_INTEGER) {
        n = new_node(p, NODE_ITEM);
        n->b = parse_number(p);
    } else {
        n = new_node(p, NODE_MEMBER);
        n->name = expect_name(p, "a name behind \".\"");
    }
    n->a = a;
    return n;
}

/* Arguments up to ")", those with names last. */
static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **end = &first;
    bool named = false;
    for (int n = 0; !at_operator(p, ")"); n++) {
        if (at_operator(p, "**"))
            unexpected(p, "an argument: arguments by ** are not supported");
        if (n == CALL_MAX_ARGUMENTS)
            unexpected(p, "at most 64 arguments");
        if (p->token->kind == TOKEN_NAME && p->token[1].kind == TOKEN_OPERATOR && text_is(p->token[1].text, "=")) {
            *end = new_node(p, NODE_ARGUMENT);
            (*end)->name = p->token->text;
            p->token += 2;
            (*end)->a = parse_expression(p);
            named = true;
        } else if (skip_operator(p, "*")) {
            *end = new_node(p, NODE_SPREAD);
            (*end)->a = parse_expression(p);
        } else if (named) {
            unexpected(p, "an argument with a name, behind others that have one");
        } else {
            struct node *value = parse_expression(p);
            *end = value;
        }
        end = &(*end)->next;
        if (!skip_operator(p, ","))
            break;
    }
    expect_operator(p, ")");
    return first;
}

/* The function or macro that a call names must exist. */
static void check_called(struct parser *p, const struct node *a)
{
    char names[ERR_TEXT_BYTES];
    if (a->kind == NODE_NAME)
        note(p, &p->called, a->name);
    if (a->kind != NODE_MEMBER || find_method(a->name) != NULL)
        return;
    list_methods_by_name(names, sizeof names);
    work_fail(p->w, ERR_UNSUPPORTED, "found the method \"%.*s\", expected one of %s",
              (int)(a->name.n < 60 ? a->name.n : 60), a->name.s, names);
}

struct node *parse_postfix(struct parser *p, struct node *a)
{
    int depth = p->depth;
    for (;;) {
        descend(p);
        if (skip_operator(p, ".")) {
            a = parse_member(p, a);
        } else if (skip_operator(p, "[")) {
            a = parse_item(p, a);
        } else if (skip_operator(p, "(")) {
            struct node *n = new_node(p, NODE_CALL);
            check_called(p, a);
            n->a = a;
            n->b = parse_arguments(p);
            a = n;
        } else {
            break;
        }
    }
    p->depth = depth;
    return a;
}

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
            work_fail(p->w, ERR_UNSUPPORTED, "found the argument \"%.*s\" of the %s \"%s\", expected one of \"%s\"",
                      (int)(a->name.n < 60 ? a->name.n : 60), a->name.s, what, b->name, b->parameters);
    if (n > count_parameters(b) || n < b->least)
        work_fail(p->w, ERR_UNSUPPORTED, "found %d arguments of the %s \"%s\", expected %d to %d", n, what, b->name,
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
    work_fail(p->w, ERR_UNSUPPORTED, "found the %s \"%.*s\", expected one of %s", maps ? "filter" : "test",
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
    work_fail(p->w, ERR_UNSUPPORTED, "found the filter \"%.*s\", expected one of %s", (int)(name.n < 60 ? name.n : 60),
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

static struct node *parse_test(struct parser *p, struct node *a)
{
    char names[ERR_TEXT_BYTES];
    bool negated = skip_name(p, "not");
    struct node *n = new_node(p, NODE_TEST);
    struct text name = expect_name(p, "the name of a test");
    n->a = a;
    n->builtin = find_test(name);
    if (n->builtin == NULL) {
        list_tests_by_name(names, sizeof names);
        work_fail(p->w, ERR_UNSUPPORTED, "found the test \"%.*s\", expected one of %s",
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
