/* text/template/machine.h - one rendering in progress; for text/template/ only. */
#ifndef TEXT_TEMPLATE_MACHINE_H
#define TEXT_TEMPLATE_MACHINE_H

#include "text/template/builtin.h"
#include "text/template/node.h"

#include <jansson.h>
#include <time.h>

#define RANGE_MAX          100000 /* items, as jinja2's sandbox has it */
#define MACHINE_MAX_STEPS  10000000
#define MACHINE_MAX_DEPTH  1000
#define MACHINE_MAX_OUTPUT ((size_t)32 << 20)
#define MACHINE_MAX_BYTES  ((size_t)256 << 20)

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
    struct scope *scope;     /* that it was defined in */
};

struct loop { /* the variable `loop` */
    const struct list *items;
    size_t at;
    int depth;
    struct value *changed; /* what loop.changed() saw last; NULL: nothing yet */
};

struct kept { /* JSON that values borrow from */
    json_t *json;
    struct kept *next;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct machine {
    struct work work;
    long steps;
    int depth;
    struct builder *out; /* where statements write */
    struct kept *kept;
    time_t now;
};

/* One step of so many bytes looked at; fails beyond the limit. */
void machine_step(struct machine *m, size_t bytes);
void machine_enter(struct machine *m);
void machine_leave(struct machine *m);
#define machine_fail(m, ...) work_fail(&(m)->work, ERR_INPUT, __VA_ARGS__)

struct value evaluate(struct machine *m, struct scope *s, const struct node *n);
void evaluate_arguments(struct machine *m, struct scope *s, const struct node *list, struct arguments *out);
enum flow execute(struct machine *m, struct scope *s, const struct node *list);
/* The text that the statements write. */
struct text execute_apart(struct machine *m, struct scope *s, const struct node *list);
void assign(struct machine *m, struct scope *s, const struct node *target, struct value v);
void scope_set(struct machine *m, struct scope *s, struct text name, struct value v);
struct scope *scope_new(struct machine *m, struct scope *parent);

/* VALUE_ABSENT as caller: there is none. */
struct value call_macro(struct machine *m, const struct macro *macro, const struct arguments *given,
                        struct value caller);
struct value call_value(struct machine *m, struct value f, const struct arguments *given, struct value caller);

struct value operate(struct machine *m, enum operation operation, struct value a, struct value b);
bool compare(struct machine *m, enum operation operation, struct value a, struct value b);
/* a.name; a[b]; a[start:stop:step]. */
struct value member(struct machine *m, struct value a, struct text name);
struct value item(struct machine *m, struct value a, struct value b);
struct value slice(struct machine *m, struct value a, const struct value part[3]);
/* "a.b.0" of attribute=, one after the other; `missing` (NULL: none) stands for what is undefined on the way. */
struct value member_path(struct machine *m, struct value a, struct value path, const struct value *missing);

#endif
