/* text/template/parse_primary.c - the operands of expressions: constants, lists, names, with their members, items and
 * calls. See parser.h. */
#include "text/template/builtin.h"
#include "text/template/parser.h"

#include <errno.h>
#include <stdlib.h>

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

/* Adjacent strings are concatenated. */
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
        n->name = expect_name(p, "a name after \".\"");
    }
    n->a = a;
    return n;
}

struct node *parse_arguments(struct parser *p)
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
            unexpected(p, "an argument with a name, after others that have one");
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
    heap_fail(p->w, ERR_UNSUPPORTED, "found the method \"%.*s\", expected one of %s",
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
