/* text/template/value.h - the values of expressions in templates, with Python's semantics. */
#ifndef TEXT_TEMPLATE_VALUE_H
#define TEXT_TEMPLATE_VALUE_H

#include "text/template/text.h"

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_BUILTIN /* a function, or a method with its object */
};

struct value {
    enum value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct text text;  /* VALUE_STRING; VALUE_UNDEFINED: the missing name */
        struct list *list; /* VALUE_LIST */
        struct dict *dict; /* VALUE_DICT, VALUE_NAMESPACE */
        struct for_loop *loop;
        struct macro *macro;
        struct bound *bound;
    };
};

enum list_form {
    FORM_LIST,
    FORM_TUPLE,
    FORM_RANGE,
    FORM_VIEW,     /* view of a dict: no item by number */
    FORM_GENERATOR /* can be iterated once */
};

struct list {
    enum list_form form;
    struct value *item; /* [n] */
    size_t n, capacity;
};

struct entry {
    struct value key, value;
};

struct dict { /* in the order of insertion */
    struct entry *entry;
    size_t n, capacity;
};

struct renderer;
struct builtin;

struct bound { /* a method and its object; for a function the object is VALUE_ABSENT */
    const struct builtin *builtin;
    struct value object;
};

struct value value_undefined(struct text name);
struct value value_none(void);
struct value value_bool(bool b);
struct value value_integer(int64_t i);
struct value value_real(double x);
struct value value_text(struct text t);
struct value value_list(struct heap *w, enum list_form form);
struct value value_dict(struct heap *w);

void list_add(struct heap *w, struct list *l, struct value v);

/* The value of a key of a VALUE_DICT or VALUE_NAMESPACE; NULL: no such key. */
const struct value *dict_find(struct renderer *m, const struct dict *d, struct value key);
const struct value *dict_find_string(struct renderer *m, const struct dict *d, struct text key);
void dict_put(struct renderer *m, struct dict *d, struct value key, struct value value);
/* The key is known to be new. */
void dict_append(struct heap *w, struct dict *d, struct value key, struct value value);

/* The Python name of its type, for messages and `is`. */
const char *value_type(struct value v);
bool value_true(struct value v);
bool value_is_number(struct value v);     /* booleans, too */
double value_to_real(struct value v);     /* of a number */
int64_t value_to_integer(struct value v); /* of a boolean or an integer */

bool value_equal(struct renderer *m, struct value a, struct value b);
/* < 0, 0, > 0; fails where Python has no order. 2: not comparable (NaN). */
int value_compare(struct renderer *m, struct value a, struct value b);
/* Whether `in` finds it there. */
bool value_contains(struct renderer *m, struct value where, struct value what);
/* The items that a loop visits; a generator is empty afterwards. Fails for a value that has no items. */
struct list value_iterate(struct renderer *m, struct value v);
/* len(); fails where Python does. */
int64_t value_length(struct renderer *m, struct value v);

/* str(), repr(). */
struct text value_print(struct renderer *m, struct value v);
/* json.dumps(); indent < 0: on one line. */
struct json_style {
    bool ascii, sort;
    bool lines; /* each item on a line of its own, indented by `indent` */
    struct text indent, comma, colon;
};
struct text value_json(struct renderer *m, struct value v, const struct json_style *style);
/* A float as Python prints it; out has room for 40 bytes. */
void print_real(char *out, double x);

#endif
