/* text/template/parser.h - shared by the parts of the parser: statements (parse.c), operators (parse_expression.c),
 * operands (parse_primary.c), filters and tests. For text/template/parse*.c only. */
#ifndef TEXT_TEMPLATE_PARSER_H
#define TEXT_TEMPLATE_PARSER_H

#include "text/template/lexer.h"
#include "text/template/node.h"

#define PARSE_MAX_DEPTH 200 /* of the tree */

struct parser {
    struct heap *w;
    const struct token *token; /* the next one */
    int depth, loops;
    struct seen_name *assigned, *called, *read;
    struct node *macro; /* being parsed; NULL: none */
};

struct node *new_node(struct parser *p, enum node_kind kind);
void descend(struct parser *p); /* enters a level; the caller resets p->depth */
bool at_name(const struct parser *p, const char *name);
bool at_operator(const struct parser *p, const char *operator);
bool skip_name(struct parser *p, const char *name);
bool skip_operator(struct parser *p, const char *operator);
void expect_operator(struct parser *p, const char *operator);
struct text expect_name(struct parser *p, const char *what);
/* "found X, expected `expected`". */
_Noreturn void unexpected(struct parser *p, const char *expected);
void note(struct parser *p, struct seen_name **list, struct text name);

struct node *parse_expression(struct parser *p);
struct node *parse_or(struct parser *p); /* no "a if b" at its top */
/* One or several with commas between them, which are a tuple. */
struct node *parse_tuple(struct parser *p, bool with_choice);
/* Names that are assigned to: one, several, or a member of a namespace. */
struct node *parse_target(struct parser *p);
/* Constants, lists, names; and their suffixes: .member, [item], (arguments). */
struct node *parse_primary(struct parser *p);
struct node *parse_postfix(struct parser *p, struct node *a);
/* Up to ")", those with names last. */
struct node *parse_arguments(struct parser *p);

/* name(arguments) | name ..., applied to a. */
struct node *parse_filters(struct parser *p, struct node *a, bool first);
/* "is" was skipped; the test, applied to a. */
struct node *parse_test(struct parser *p, struct node *a);

#endif
