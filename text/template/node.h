/* text/template/node.h - a parsed template: statements and expressions as a tree. */
#ifndef TEXT_TEMPLATE_NODE_H
#define TEXT_TEMPLATE_NODE_H

#include "text/template/value.h"

enum node_kind {
    /* expressions */
    NODE_CONSTANT, /* value */
    NODE_NAME,     /* name */
    NODE_LIST,     /* a... */
    NODE_TUPLE,    /* a... */
    NODE_DICT,     /* a...: key, value, key, value */
    NODE_MEMBER,   /* a.name */
    NODE_ITEM,     /* a[b] */
    NODE_SLICE,    /* a[b:c:d], each may be NULL */
    NODE_CALL,     /* a(b...) */
    NODE_FILTER,   /* a | builtin(b...); a NULL: applied to a block's output */
    NODE_TEST,     /* a is builtin(b...) */
    NODE_ARGUMENT, /* name=a, in a list of arguments */
    NODE_SPREAD,   /* *a, in a list of arguments */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_CHOICE,  /* b if a else c; c may be NULL */
    NODE_COMPARE, /* a with b...: NODE_OPERAND */
    NODE_OPERAND, /* operation a */
    NODE_BINARY,  /* a operation b */
    NODE_CONCAT,  /* a ~ ... */
    /* statements */
    NODE_TEXT,      /* value */
    NODE_PRINT,     /* a */
    NODE_FOR,       /* a in b if c: body, else d */
    NODE_IF,        /* a: body, else d */
    NODE_SET,       /* a = b; b NULL: the output of body, through the filter c */
    NODE_MACRO,     /* name(b...: NODE_PARAMETER): body */
    NODE_PARAMETER, /* name, default a or NULL */
    NODE_CALLER,    /* the call a with the caller(b...): body */
    NODE_FILTERED,  /* body through the filter a */
    NODE_WITH,      /* a...: NODE_SET without body; body */
    NODE_BREAK,
    NODE_CONTINUE
};

enum operation {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR_DIVIDE,
    OP_MODULO,
    OP_POWER,
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN
};

struct node {
    enum node_kind kind;
    enum operation operation;
    int line;
    bool takes_rest;   /* NODE_MACRO: uses `varargs` */
    bool takes_named;  /* NODE_MACRO: uses `kwargs` */
    bool takes_caller; /* NODE_MACRO: uses `caller` */
    struct text name;
    struct value value;
    const struct builtin *builtin;
    struct node *a, *b, *c, *d, *body;
    struct node *next; /* in a list */
};

struct seen_name { /* a name, somewhere in the template */
    struct text name;
    int line;
    struct seen_name *next;
};

/* The statements of the source; *read: all names that it reads. Fails with the template's name, the line, what was
 * found and what is supported. */
struct node *parse(struct heap *w, const char *source, size_t bytes, const struct seen_name **read);

#endif
