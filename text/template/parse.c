/* text/template/parse.c - statements. See parser.h, node.h. */
#include "text/template/builtin.h"
#include "text/template/parser.h"

#include <stdio.h>
#include <string.h>

static const char statements[] = "for, if, set, macro, call, filter, with, break, continue, generation, raw";

struct node *new_node(struct parser *p, enum node_kind kind)
{
    struct node *n = heap_alloc(p->w, 1, sizeof *n);
    n->kind = kind;
    n->line = p->token->line;
    p->w->line = n->line;
    return n;
}

void descend(struct parser *p)
{
    p->w->line = p->token->line;
    if (++p->depth > PARSE_MAX_DEPTH)
        heap_fail(p->w, ERR_UNSUPPORTED, "found something nested too deeply, expected at most %d levels",
                  PARSE_MAX_DEPTH);
}

static bool at(const struct parser *p, enum token_kind kind, const char *text)
{
    return p->token->kind == kind && text_is(p->token->text, text);
}

bool at_name(const struct parser *p, const char *name)
{
    return at(p, TOKEN_NAME, name);
}

bool at_operator(const struct parser *p, const char *operator)
{
    return at(p, TOKEN_OPERATOR, operator);
}

bool skip_name(struct parser *p, const char *name)
{
    bool is = at_name(p, name);
    p->token += is;
    return is;
}

bool skip_operator(struct parser *p, const char *operator)
{
    bool is = at_operator(p, operator);
    p->token += is;
    return is;
}

_Noreturn void unexpected(struct parser *p, const char *expected)
{
    static const char *const kinds[] = {
        [TOKEN_TEXT] = "text",    [TOKEN_BLOCK] = "{%",        [TOKEN_BLOCK_END] = "%}", [TOKEN_PRINT] = "{{",
        [TOKEN_PRINT_END] = "}}", [TOKEN_STRING] = "a string", [TOKEN_END] = "the end"};
    const struct token *t = p->token;
    p->w->line = t->line;
    if (kinds[t->kind] != NULL)
        heap_fail(p->w, ERR_INPUT, "found %s, expected %s", kinds[t->kind], expected);
    heap_fail(p->w, ERR_INPUT, "found \"%.*s\", expected %s", (int)(t->text.n < 60 ? t->text.n : 60), t->text.s,
              expected);
}

void expect_operator(struct parser *p, const char *operator)
{
    char expected[8];
    if (skip_operator(p, operator))
        return;
    (void)snprintf(expected, sizeof expected, "\"%s\"", operator);
    unexpected(p, expected);
}

struct text expect_name(struct parser *p, const char *what)
{
    if (p->token->kind != TOKEN_NAME)
        unexpected(p, what);
    p->w->line = p->token->line;
    return (p->token++)->text;
}

static void expect_block_end(struct parser *p)
{
    if (p->token->kind != TOKEN_BLOCK_END)
        unexpected(p, "%}");
    p->token++;
}

void note(struct parser *p, struct seen_name **list, struct text name)
{
    struct seen_name *s = heap_alloc(p->w, 1, sizeof *s);
    *s = (struct seen_name){name, p->token->line, *list};
    *list = s;
}

static bool is_noted(const struct seen_name *list, struct text name)
{
    for (; list != NULL; list = list->next)
        if (text_equal(list->name, name))
            return true;
    return false;
}

static struct node *parse_statement(struct parser *p);

/* Whether a tag begins here whose name is one of "a|b|c". */
static bool at_tag(const struct parser *p, const char *names)
{
    size_t n = p->token->kind == TOKEN_BLOCK && p->token[1].kind == TOKEN_NAME ? p->token[1].text.n : 0;
    for (const char *name = names; n > 0 && name != NULL; name = strchr(name, '|')) {
        name += *name == '|';
        if (strcspn(name, "|") == n && memcmp(name, p->token[1].text.s, n) == 0)
            return true;
    }
    return false;
}

/* Parses statements up to a tag of one of these names ("": to the end), and leaves the parser after the name. */
static struct node *parse_body(struct parser *p, const char *ends)
{
    struct node *first = NULL, **end = &first;
    descend(p);
    while (!at_tag(p, ends)) {
        if (p->token->kind == TOKEN_END && ends[0] == '\0')
            break;
        if (p->token->kind == TOKEN_END)
            unexpected(p, ends);
        *end = parse_statement(p);
        end = &(*end)->next;
    }
    p->depth--;
    if (ends[0] != '\0')
        p->token += 2;
    return first;
}

static bool ended_by(const struct parser *p, const char *name)
{
    return text_is(p->token[-1].text, name);
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = new_node(p, NODE_FOR);
    n->a = parse_target(p);
    if (!skip_name(p, "in"))
        unexpected(p, "\"in\"");
    n->b = parse_tuple(p, false);
    n->c = skip_name(p, "if") ? parse_expression(p) : NULL;
    if (at_name(p, "recursive"))
        heap_fail(p->w, ERR_UNSUPPORTED, "found a recursive loop, expected one that is not: a macro can call itself");
    expect_block_end(p);
    p->loops++;
    n->body = parse_body(p, "else|endfor");
    p->loops--;
    if (ended_by(p, "else")) {
        expect_block_end(p);
        n->d = parse_body(p, "endfor");
    }
    expect_block_end(p);
    return n;
}

/* elif becomes the `else` of the previous condition. */
static struct node *parse_if(struct parser *p)
{
    struct node *first = new_node(p, NODE_IF), *n = first;
    int depth = p->depth;
    for (;;) {
        n->a = parse_tuple(p, false);
        expect_block_end(p);
        n->body = parse_body(p, "elif|else|endif");
        if (!ended_by(p, "elif"))
            break;
        n->d = new_node(p, NODE_IF);
        n = n->d;
    }
    if (ended_by(p, "else")) {
        expect_block_end(p);
        n->d = parse_body(p, "endif");
    }
    expect_block_end(p);
    p->depth = depth;
    return first;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = new_node(p, NODE_SET);
    n->a = parse_target(p);
    if (skip_operator(p, "=")) {
        n->b = parse_tuple(p, true);
        expect_block_end(p);
        return n;
    }
    n->c = at_operator(p, "|") ? parse_filters(p, NULL, false) : NULL;
    expect_block_end(p);
    n->body = parse_body(p, "endset");
    expect_block_end(p);
    return n;
}

static struct node *parse_parameters(struct parser *p)
{
    struct node *first = NULL, **end = &first;
    int n = 0;
    while (!at_operator(p, ")")) {
        if (n++ == CALL_MAX_ARGUMENTS)
            unexpected(p, "at most 64 parameters");
        *end = new_node(p, NODE_PARAMETER);
        (*end)->name = expect_name(p, "a parameter");
        note(p, &p->assigned, (*end)->name);
        (*end)->a = skip_operator(p, "=") ? parse_expression(p) : NULL;
        end = &(*end)->next;
        if (!skip_operator(p, ","))
            break;
    }
    expect_operator(p, ")");
    return first;
}

/* The body of a macro or a call block is a function: break and continue cannot refer to a loop around it. */
static void parse_function_body(struct parser *p, struct node *macro, const char *ends)
{
    struct node *outer = p->macro;
    int loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    expect_block_end(p);
    macro->body = parse_body(p, ends);
    expect_block_end(p);
    p->macro = outer;
    p->loops = loops;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = new_node(p, NODE_MACRO);
    n->name = expect_name(p, "the name of a macro");
    note(p, &p->assigned, n->name);
    expect_operator(p, "(");
    n->b = parse_parameters(p);
    parse_function_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = new_node(p, NODE_CALLER);
    n->b = skip_operator(p, "(") ? parse_parameters(p) : NULL;
    n->a = parse_expression(p);
    if (n->a->kind != NODE_CALL)
        unexpected(p, "a call after \"call\"");
    parse_function_body(p, n, "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = new_node(p, NODE_FILTERED);
    n->a = parse_filters(p, NULL, true);
    expect_block_end(p);
    n->body = parse_body(p, "endfilter");
    expect_block_end(p);
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = new_node(p, NODE_WITH), **end = &n->a;
    while (p->token->kind != TOKEN_BLOCK_END) {
        *end = new_node(p, NODE_SET);
        (*end)->a = parse_target(p);
        expect_operator(p, "=");
        (*end)->b = parse_expression(p);
        end = &(*end)->next;
        if (!skip_operator(p, ","))
            break;
    }
    expect_block_end(p);
    n->body = parse_body(p, "endwith");
    expect_block_end(p);
    return n;
}

/* transformers' own: marks the assistant's text for training; here only a scope. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = new_node(p, NODE_WITH), *outer = p->macro;
    int loops = p->loops;
    p->loops = 0;
    expect_block_end(p);
    n->body = parse_body(p, "endgeneration");
    expect_block_end(p);
    p->loops = loops;
    p->macro = outer;
    return n;
}

static struct node *parse_leave(struct parser *p, enum node_kind kind)
{
    struct node *n = new_node(p, kind);
    if (p->loops == 0)
        heap_fail(p->w, ERR_INPUT, "found \"%s\" outside of a loop", kind == NODE_BREAK ? "break" : "continue");
    expect_block_end(p);
    return n;
}

static struct node *parse_break(struct parser *p)
{
    return parse_leave(p, NODE_BREAK);
}

static struct node *parse_continue(struct parser *p)
{
    return parse_leave(p, NODE_CONTINUE);
}

static struct node *parse_tag(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *p);
    } tags[] = {{"for", parse_for},           {"if", parse_if},
                {"set", parse_set},           {"macro", parse_macro},
                {"call", parse_call_block},   {"filter", parse_filter_block},
                {"with", parse_with},         {"break", parse_break},
                {"continue", parse_continue}, {"generation", parse_generation}};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (skip_name(p, tags[i].name))
            return tags[i].parse(p);
    if (p->token->kind != TOKEN_NAME)
        unexpected(p, "a statement");
    p->w->line = p->token->line;
    heap_fail(p->w, ERR_UNSUPPORTED, "found the statement \"%.*s\", expected one of %s",
              (int)(p->token->text.n < 60 ? p->token->text.n : 60), p->token->text.s, statements);
}

static struct node *parse_statement(struct parser *p)
{
    struct node *n;
    if (p->token->kind == TOKEN_TEXT) {
        n = new_node(p, NODE_TEXT);
        n->value = value_text((p->token++)->text);
        return n;
    }
    if ((p->token++)->kind == TOKEN_BLOCK) {
        descend(p);
        n = parse_tag(p);
        p->depth--;
        return n;
    }
    n = new_node(p, NODE_PRINT);
    n->a = parse_tuple(p, true);
    if (p->token->kind != TOKEN_PRINT_END)
        unexpected(p, "}}");
    p->token++;
    return n;
}

/* A called function must be built in or defined by the template. */
static void check_functions(struct parser *p)
{
    char names[ERR_TEXT_BYTES];
    static const struct text caller = {"caller", 6, NULL, false};
    for (const struct seen_name *s = p->called; s != NULL; s = s->next) {
        if (find_function(s->name) != NULL || text_equal(s->name, caller) || is_noted(p->assigned, s->name))
            continue;
        list_functions_by_name(names, sizeof names);
        p->w->line = s->line;
        heap_fail(p->w, ERR_UNSUPPORTED, "found the function \"%.*s\", expected one of %s or a macro",
                  (int)(s->name.n < 60 ? s->name.n : 60), s->name.s, names);
    }
}

struct node *parse(struct heap *w, const char *source, size_t bytes, const struct seen_name **read)
{
    struct parser p = {.w = w, .token = lex(w, source, bytes)};
    struct node *n = parse_body(&p, "");
    check_functions(&p);
    *read = p.read;
    return n;
}
