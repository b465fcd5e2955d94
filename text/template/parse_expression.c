/* text/template/parse_expression.c - expressions: operators by their rank, tuples, targets. See parser.h. */
#include "text/template/parser.h"

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

/* The rest of a tuple after its first item. */
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
