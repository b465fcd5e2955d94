/* text/grammar/regex_tree.h - a regular expression, parsed; between regex_parse.c and regex.c. */
#ifndef GRAMMAR_REGEX_TREE_H
#define GRAMMAR_REGEX_TREE_H

#include "text/grammar/charset.h"

enum tree_kind { TREE_EMPTY, TREE_SET, TREE_BEGIN, TREE_END, TREE_JOIN, TREE_EITHER, TREE_REPEAT };

struct tree_node {
    enum tree_kind kind;
    int a, b; /* JOIN: a then b. EITHER: a or b. REPEAT: a, [min, max] times (max -1: no limit). SET: set number a */
    int min, max;
};

struct regex_tree {
    struct tree_node *node;
    int n, capacity, root;
    struct charset *set;
    int n_sets, set_capacity;
};

/* The tree, to be closed in any case. */
int regex_parse(struct regex_tree *t, const char *regex, size_t bytes, struct err *e);
void regex_tree_close(struct regex_tree *t);

#endif
