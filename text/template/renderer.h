/* text/template/renderer.h - one rendering in progress; for text/template/ only. */
#ifndef TEXT_TEMPLATE_RENDERER_H
#define TEXT_TEMPLATE_RENDERER_H

#include "text/template/builtin.h"
#include "text/template/node.h"

#include <jansson.h>
#include <time.h>

#define RANGE_MAX           100000 /* items, as jinja2's sandbox has it */
#define RENDERER_MAX_STEPS  10000000
#define RENDERER_MAX_DEPTH  1000
#define RENDERER_MAX_OUTPUT ((size_t)32 << 20)
#define RENDERER_MAX_BYTES  ((size_t)256 << 20)

struct binding {
    struct text name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct scope *parent;
    struct binding *first;
};

struct macro {
    const struct node *node; /* NODE_MACRO or NODE_CALLER */
    struct scope *scope;     /* in which it was defined */
};

struct for_loop { /* the variable `loop` */
    const struct list *items;
    size_t at;
    int depth;
    struct value *changed; /* the value that loop.changed() saw last; NULL: none yet */
};

struct kept { /* JSON that values borrow from */
    json_t *json;
    struct kept *next;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct renderer {
    struct heap heap;
    long steps;
    int depth;
    struct builder *out; /* the builder to which statements write */
    struct kept *kept;
    time_t now;
};

/* Counts a step that examines this many bytes; fails beyond the limit. */
void renderer_step(struct renderer *m, size_t bytes);
void renderer_enter(struct renderer *m);
void renderer_leave(struct renderer *m);
#define renderer_fail(m, ...) heap_fail(&(m)->heap, ERR_INPUT, __VA_ARGS__)

struct value evaluate(struct renderer *m, struct scope *s, const struct node *n);
void evaluate_arguments(struct renderer *m, struct scope *s, const struct node *list, struct arguments *out);
enum flow execute(struct renderer *m, struct scope *s, const struct node *list);
/* The text that the statements write. */
struct text execute_apart(struct renderer *m, struct scope *s, const struct node *list);
void assign(struct renderer *m, struct scope *s, const struct node *target, struct value v);
void scope_set(struct renderer *m, struct scope *s, struct text name, struct value v);
struct scope *scope_new(struct renderer *m, struct scope *parent);

/* VALUE_ABSENT as caller: there is none. */
struct value call_macro(struct renderer *m, const struct macro *macro, const struct arguments *given,
                        struct value caller);
struct value call_value(struct renderer *m, struct value f, const struct arguments *given, struct value caller);

struct value operate(struct renderer *m, enum operation operation, struct value a, struct value b);
bool compare(struct renderer *m, enum operation operation, struct value a, struct value b);
/* a.name; a[b]; a[start:stop:step]. */
struct value member(struct renderer *m, struct value a, struct text name);
struct value item(struct renderer *m, struct value a, struct value b);
struct value slice(struct renderer *m, struct value a, const struct value part[3]);
/* Follows the path "a.b.0" of attribute=; `missing` (NULL: none) replaces an undefined value on the way. */
struct value member_path(struct renderer *m, struct value a, struct value path, const struct value *missing);

#endif
