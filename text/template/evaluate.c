/* text/template/evaluate.c - expressions. See renderer.h. */
#include "text/template/renderer.h"

void renderer_step(struct renderer *m, size_t bytes)
{
    m->steps += 1 + (long)(bytes / 64);
    if (m->steps > RENDERER_MAX_STEPS)
        renderer_fail(m, "it takes more than the %d steps that a chat template may take", RENDERER_MAX_STEPS);
}

void renderer_enter(struct renderer *m)
{
    if (++m->depth > RENDERER_MAX_DEPTH)
        renderer_fail(m, "found something nested or calling itself too deeply, expected at most %d levels",
                      RENDERER_MAX_DEPTH);
}

void renderer_leave(struct renderer *m)
{
    m->depth--;
}

static struct value look_up(struct renderer *m, const struct scope *s, struct text name)
{
    size_t n = 0;
    for (; s != NULL; s = s->parent)
        for (const struct binding *b = s->first; b != NULL; b = b->next, n++)
            if (text_equal(b->name, name)) {
                renderer_step(m, n);
                return b->value;
            }
    renderer_step(m, n);
    const struct builtin *f = find_function(name);
    if (f == NULL)
        return value_undefined(name);
    struct bound *bound = heap_alloc(&m->heap, 1, sizeof *bound);
    *bound = (struct bound){.builtin = f};
    return (struct value){.kind = VALUE_BUILTIN, .bound = bound};
}

static struct value evaluate_items(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value v = value_list(&m->heap, n->kind == NODE_TUPLE ? FORM_TUPLE : FORM_LIST);
    for (const struct node *a = n->a; a != NULL; a = a->next)
        list_add(&m->heap, v.list, evaluate(m, s, a));
    return v;
}

static struct value evaluate_dict(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value v = value_dict(&m->heap);
    for (const struct node *a = n->a; a != NULL; a = a->next->next) {
        struct value key = evaluate(m, s, a);
        dict_put(m, v.dict, key, evaluate(m, s, a->next));
    }
    return v;
}

static struct value evaluate_slice(struct renderer *m, struct scope *s, const struct node *n)
{
    const struct node *const nodes[3] = {n->b, n->c, n->d};
    struct value a = evaluate(m, s, n->a), part[3];
    for (int i = 0; i < 3; i++)
        part[i] = nodes[i] != NULL ? evaluate(m, s, nodes[i]) : (struct value){.kind = VALUE_ABSENT};
    return slice(m, a, part);
}

void evaluate_arguments(struct renderer *m, struct scope *s, const struct node *list, struct arguments *out)
{
    struct list plain = {0}, named = {0};
    int n = 0;
    for (const struct node *a = list; a != NULL; a = a->next)
        n += a->kind == NODE_ARGUMENT;
    *out = (struct arguments){.name = n > 0 ? heap_alloc(&m->heap, (size_t)n, sizeof *out->name) : NULL};
    for (const struct node *a = list; a != NULL; a = a->next) {
        struct value v = evaluate(m, s, a->kind == NODE_ARGUMENT || a->kind == NODE_SPREAD ? a->a : a);
        struct list spread = a->kind == NODE_SPREAD ? value_iterate(m, v) : (struct list){0};
        for (size_t i = 0; i < spread.n; i++)
            list_add(&m->heap, &plain, spread.item[i]);
        if (a->kind == NODE_ARGUMENT)
            out->name[out->n_named++] = a->name;
        if (a->kind != NODE_SPREAD)
            list_add(&m->heap, a->kind == NODE_ARGUMENT ? &named : &plain, v);
    }
    if (plain.n > RANGE_MAX)
        renderer_fail(m, "found %zu arguments, expected at most %d", plain.n, RANGE_MAX);
    out->value = plain.item;
    out->n = (int)plain.n;
    out->named = named.item;
}

static struct value evaluate_call(struct renderer *m, struct scope *s, const struct node *n)
{
    struct arguments given;
    struct value f = evaluate(m, s, n->a);
    evaluate_arguments(m, s, n->b, &given);
    m->heap.line = n->line;
    return call_value(m, f, &given, (struct value){.kind = VALUE_ABSENT});
}

static struct value evaluate_builtin(struct renderer *m, struct scope *s, const struct node *n)
{
    struct arguments given;
    struct value a = evaluate(m, s, n->a);
    evaluate_arguments(m, s, n->b, &given);
    m->heap.line = n->line;
    return call_builtin(m, n->builtin, a, &given);
}

static struct value evaluate_comparison(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value left = evaluate(m, s, n->a);
    for (const struct node *o = n->b; o != NULL; o = o->next) {
        struct value right = evaluate(m, s, o->a);
        if (!compare(m, o->operation, left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value evaluate_concat(struct renderer *m, struct scope *s, const struct node *n)
{
    struct builder b = {.w = &m->heap};
    for (const struct node *a = n->a; a != NULL; a = a->next)
        build(&b, value_print(m, evaluate(m, s, a)));
    renderer_step(m, b.n);
    return value_text(built(&b));
}

static struct value evaluate_sign(struct renderer *m, struct value v, bool negative)
{
    if (!value_is_number(v))
        renderer_fail(m, "found a sign before a value of type %s, expected a number", value_type(v));
    return operate(m, OP_MULTIPLY, v, value_integer(negative ? -1 : 1));
}

static struct value evaluate_logic(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value a = evaluate(m, s, n->a);
    if (n->kind == NODE_NOT)
        return value_bool(!value_true(a));
    if (n->kind == NODE_CHOICE)
        return value_true(a)  ? evaluate(m, s, n->b)
               : n->c != NULL ? evaluate(m, s, n->c)
                              : value_undefined(text_of("if"));
    return value_true(a) == (n->kind == NODE_OR) ? a : evaluate(m, s, n->b);
}

static struct value evaluate_pair(struct renderer *m, struct scope *s, const struct node *n)
{
    struct value a = evaluate(m, s, n->a), b = evaluate(m, s, n->b);
    m->heap.line = n->line;
    return n->kind == NODE_ITEM ? item(m, a, b) : operate(m, n->operation, a, b);
}

static struct value evaluate_kind(struct renderer *m, struct scope *s, const struct node *n)
{
    switch (n->kind) {
    case NODE_CONSTANT:
        return n->value;
    case NODE_NAME:
        return look_up(m, s, n->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_items(m, s, n);
    case NODE_DICT:
        return evaluate_dict(m, s, n);
    case NODE_MEMBER:
        return member(m, evaluate(m, s, n->a), n->name);
    case NODE_ITEM:
    case NODE_BINARY:
        return evaluate_pair(m, s, n);
    case NODE_SLICE:
        return evaluate_slice(m, s, n);
    case NODE_CALL:
        return evaluate_call(m, s, n);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_builtin(m, s, n);
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return evaluate_sign(m, evaluate(m, s, n->a), n->kind == NODE_NEGATIVE);
    case NODE_NOT:
    case NODE_AND:
    case NODE_OR:
    case NODE_CHOICE:
        return evaluate_logic(m, s, n);
    case NODE_COMPARE:
        return evaluate_comparison(m, s, n);
    default:
        return evaluate_concat(m, s, n);
    }
}

struct value evaluate(struct renderer *m, struct scope *s, const struct node *n)
{
    renderer_enter(m);
    renderer_step(m, 0);
    m->heap.line = n->line;
    struct value v = evaluate_kind(m, s, n);
    renderer_leave(m);
    return v;
}
