/* text/template/execute.c - statements, scopes and macros. See renderer.h. */
#include "text/template/renderer.h"

struct scope *scope_new(struct renderer *m, struct scope *parent)
{
    struct scope *s = heap_alloc(&m->heap, 1, sizeof *s);
    s->parent = parent;
    return s;
}

void scope_set(struct renderer *m, struct scope *s, struct text name, struct value v)
{
    struct binding *b = s->first;
    size_t n = 0;
    for (; b != NULL && !text_equal(b->name, name); n++)
        b = b->next;
    renderer_step(m, n);
    if (b == NULL) {
        b = heap_alloc(&m->heap, 1, sizeof *b);
        b->name = name;
        b->next = s->first;
        s->first = b;
    }
    b->value = v;
}

static void assign_member(struct renderer *m, struct scope *s, const struct node *target, struct value v)
{
    struct value object = evaluate(m, s, target->a);
    if (object.kind != VALUE_NAMESPACE)
        renderer_fail(m, "found a member of a value of type %s to assign to, expected one of a namespace",
                      value_type(object));
    dict_put(m, object.dict, value_text(target->name), v);
}

static void assign_items(struct renderer *m, struct scope *s, const struct node *target, struct value v)
{
    struct list all = value_iterate(m, v);
    size_t n = 0;
    for (const struct node *t = target->a; t != NULL; t = t->next)
        n++;
    if (n != all.n)
        renderer_fail(m, "found %zu values to assign to %zu names, expected as many", all.n, n);
    n = 0;
    for (const struct node *t = target->a; t != NULL; t = t->next)
        assign(m, s, t, all.item[n++]);
}

void assign(struct renderer *m, struct scope *s, const struct node *target, struct value v)
{
    renderer_enter(m);
    if (target->kind == NODE_NAME)
        scope_set(m, s, target->name, v);
    else if (target->kind == NODE_MEMBER)
        assign_member(m, s, target, v);
    else
        assign_items(m, s, target, v);
    renderer_leave(m);
}

struct text execute_apart(struct renderer *m, struct scope *s, const struct node *list)
{
    struct builder b = {.w = &m->heap}, *out = m->out;
    m->out = &b;
    (void)execute(m, s, list);
    m->out = out;
    return built(&b);
}

/* A chain of filters over a block's output; the innermost has no operand of its own. */
static struct value filter_text(struct renderer *m, struct scope *s, const struct node *n, struct text t)
{
    struct arguments given;
    if (n == NULL)
        return value_text(t);
    renderer_enter(m);
    struct value v = filter_text(m, s, n->a, t);
    evaluate_arguments(m, s, n->b, &given);
    v = call_builtin(m, n->builtin, v, &given);
    renderer_leave(m);
    return v;
}

static void write_text(struct renderer *m, struct text t)
{
    renderer_step(m, t.n);
    if (t.n > RENDERER_MAX_OUTPUT - m->out->n)
        renderer_fail(m, "it writes more than the %zu MiB that a chat template may write", RENDERER_MAX_OUTPUT >> 20);
    build(m->out, t);
}

static void execute_set(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value v;
    if (n->b != NULL)
        v = evaluate(m, s, n->b);
    else
        v = filter_text(m, s, n->c, execute_apart(m, scope_new(m, s), n->body));
    assign(m, s, n->a, v);
}

/* Keeps the items that satisfy the loop's condition. */
static struct list *filter_items(struct renderer *m, struct scope *s, const struct node *n, const struct list *all)
{
    struct value out = value_list(&m->heap, FORM_LIST);
    for (size_t i = 0; i < all->n; i++) {
        struct scope *inner = n->c != NULL ? scope_new(m, s) : s;
        if (n->c != NULL)
            assign(m, inner, n->a, all->item[i]);
        if (n->c == NULL || value_true(evaluate(m, inner, n->c)))
            list_add(&m->heap, out.list, all->item[i]);
    }
    return out.list;
}

static void execute_for(struct renderer *m, struct scope *s, const struct node *n)
{
    struct list all = value_iterate(m, evaluate(m, s, n->b));
    struct for_loop *loop = heap_alloc(&m->heap, 1, sizeof *loop);
    *loop = (struct for_loop){.items = filter_items(m, s, n, &all), .depth = 1};
    for (; loop->at < loop->items->n; loop->at++) {
        struct scope *inner = scope_new(m, s);
        renderer_step(m, 0);
        scope_set(m, inner, text_of("loop"), (struct value){.kind = VALUE_LOOP, .loop = loop});
        assign(m, inner, n->a, loop->items->item[loop->at]);
        if (execute(m, inner, n->body) == FLOW_BREAK)
            break;
    }
    if (loop->items->n == 0 && n->d != NULL)
        (void)execute(m, scope_new(m, s), n->d);
}

/* An iteration, not a recursion, so that long chains of elif need no depth. */
static enum flow execute_if(struct renderer *m, struct scope *s, const struct node *n)
{
    while (!value_true(evaluate(m, s, n->a))) {
        if (n->d == NULL)
            return FLOW_ON;
        if (n->d->kind != NODE_IF || n->d->next != NULL)
            return execute(m, s, n->d);
        n = n->d;
    }
    return execute(m, s, n->body);
}

static struct value macro_value(struct renderer *m, struct scope *s, const struct node *n)
{
    struct macro *macro = heap_alloc(&m->heap, 1, sizeof *macro);
    *macro = (struct macro){n, s};
    return (struct value){.kind = VALUE_MACRO, .macro = macro};
}

static void execute_caller(struct renderer *m, struct scope *s, const struct node *n)
{
    struct arguments given;
    struct value f = evaluate(m, s, n->a->a);
    evaluate_arguments(m, s, n->a->b, &given);
    write_text(m, value_print(m, call_value(m, f, &given, macro_value(m, s, n))));
}

static enum flow execute_with(struct renderer *m, struct scope *s, const struct node *n)
{
    struct scope *inner = scope_new(m, s);
    for (const struct node *a = n->a; a != NULL; a = a->next)
        assign(m, inner, a->a, evaluate(m, s, a->b));
    return execute(m, inner, n->body);
}

static enum flow execute_one(struct renderer *m, struct scope *s, const struct node *n)
{
    switch (n->kind) {
    case NODE_TEXT:
        write_text(m, n->value.text);
        break;
    case NODE_PRINT:
        write_text(m, value_print(m, evaluate(m, s, n->a)));
        break;
    case NODE_FOR:
        execute_for(m, s, n);
        break;
    case NODE_IF:
        return execute_if(m, s, n);
    case NODE_SET:
        execute_set(m, s, n);
        break;
    case NODE_MACRO:
        scope_set(m, s, n->name, macro_value(m, s, n));
        break;
    case NODE_CALLER:
        execute_caller(m, s, n);
        break;
    case NODE_FILTERED:
        write_text(m, value_print(m, filter_text(m, s, n->a, execute_apart(m, scope_new(m, s), n->body))));
        break;
    case NODE_WITH:
        return execute_with(m, s, n);
    case NODE_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
    return FLOW_ON;
}

enum flow execute(struct renderer *m, struct scope *s, const struct node *list)
{
    enum flow flow = FLOW_ON;
    renderer_enter(m);
    for (const struct node *n = list; n != NULL && flow == FLOW_ON; n = n->next) {
        renderer_step(m, 0);
        m->heap.line = n->line;
        flow = execute_one(m, s, n);
    }
    renderer_leave(m);
    return flow;
}

static int find_named(const struct arguments *given, struct text name)
{
    for (int i = 0; i < given->n_named; i++)
        if (text_equal(given->name[i], name))
            return i;
    return -1;
}

/* The value of a parameter: given by place, by name, its default, or undefined. */
static struct value parameter(struct renderer *m, struct scope *s, const struct node *p, int i,
                              const struct arguments *given, int *n_used)
{
    int named = find_named(given, p->name);
    if (named >= 0 && i < given->n)
        renderer_fail(m, "found two values for the parameter \"%.*s\" of a macro",
                      (int)(p->name.n < 60 ? p->name.n : 60), p->name.s);
    *n_used += named >= 0;
    return i < given->n   ? given->value[i]
           : named >= 0   ? given->named[named]
           : p->a != NULL ? evaluate(m, s, p->a)
                          : value_undefined(p->name);
}

/* Arguments that no parameter takes. */
static void bind_rest(struct renderer *m, struct scope *s, const struct node *n, int n_parameters,
                      const struct arguments *given)
{
    struct value rest = value_list(&m->heap, FORM_TUPLE), named = value_dict(&m->heap);
    for (int i = n_parameters; i < given->n; i++)
        list_add(&m->heap, rest.list, given->value[i]);
    for (int i = 0; i < given->n_named; i++) {
        bool is_parameter = false;
        for (const struct node *p = n->b; p != NULL; p = p->next)
            is_parameter = is_parameter || text_equal(p->name, given->name[i]);
        if (!is_parameter)
            dict_append(&m->heap, named.dict, value_text(given->name[i]), given->named[i]);
    }
    if ((rest.list->n > 0 && !n->takes_rest) || (named.dict->n > 0 && !n->takes_named))
        renderer_fail(m, "found more arguments than the macro \"%.*s\" has parameters",
                      (int)(n->name.n < 60 ? n->name.n : 60), n->name.n > 0 ? n->name.s : "caller");
    if (n->takes_rest)
        scope_set(m, s, text_of("varargs"), rest);
    if (n->takes_named)
        scope_set(m, s, text_of("kwargs"), named);
}

struct value call_macro(struct renderer *m, const struct macro *macro, const struct arguments *given,
                        struct value caller)
{
    const struct node *n = macro->node;
    struct scope *s = scope_new(m, macro->scope);
    int i = 0, n_used = 0;
    renderer_enter(m);
    for (const struct node *p = n->b; p != NULL; p = p->next, i++)
        scope_set(m, s, p->name, parameter(m, s, p, i, given, &n_used));
    bind_rest(m, s, n, i, given);
    if (caller.kind != VALUE_ABSENT && !n->takes_caller)
        renderer_fail(m, "found a call block of a macro that does not use \"caller\"");
    if (n->kind == NODE_MACRO && n->takes_caller)
        scope_set(m, s, text_of("caller"), caller.kind != VALUE_ABSENT ? caller : value_undefined(text_of("caller")));
    struct text t = execute_apart(m, s, n->body);
    renderer_leave(m);
    return value_text(t);
}

struct value call_value(struct renderer *m, struct value f, const struct arguments *given, struct value caller)
{
    if (f.kind == VALUE_MACRO)
        return call_macro(m, f.macro, given, caller);
    if (f.kind == VALUE_BUILTIN && caller.kind == VALUE_ABSENT)
        return call_builtin(m, f.bound->builtin, f.bound->object, given);
    if (f.kind == VALUE_UNDEFINED)
        renderer_fail(m, "\"%.*s\" is undefined: it cannot be called", (int)(f.text.n < 80 ? f.text.n : 80), f.text.s);
    renderer_fail(m, "found a call of a value of type %s, expected a function or a macro", value_type(f));
}
