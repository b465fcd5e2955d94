/* text/grammar/lexicon_tree.h - a tree of the bytes of tokens, to be walked along a machine's states. */
#ifndef GRAMMAR_LEXICON_TREE_H
#define GRAMMAR_LEXICON_TREE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEXICON_MAX_DEPTH 1024 /* most bytes of a token; longer ones are never chosen */

struct lexicon_node { /* of a tree, in depth-first order */
    int32_t token;    /* the first token of exactly these bytes, -1: none */
    int32_t skip;     /* the node after all that begin with these bytes */
    uint16_t depth;
    uint8_t byte;
    bool shared; /* there are more tokens of these bytes: see lexicon_tree.same */
};

struct lexicon_tree {
    struct lexicon_node *node;
    int n;
    /* [n + 2] edges from the root are [edge[0], edge[1]), those from node i [edge[i + 1], edge[i + 2]), by byte: so
     * that edges that lead nowhere are skipped without reading their nodes. */
    int32_t *edge;
    int32_t *to;         /* [n] by edges: the node, */
    uint8_t *byte;       /* [n] and its byte */
    const int32_t *same; /* [n_tokens] the next token of the same bytes, -1: none; borrowed */
};

struct lexicon_key {
    const unsigned char *bytes;
    size_t n;
    int32_t token;
};

/* For qsort: by bytes, equal ones by token. */
int lexicon_key_compare(const void *left, const void *right);

/* The tree of sorted keys; tokens with the same bytes are chained after the first one, in same[n_tokens], which the
 * tree borrows. Call lexicon_tree_free after a failure, too. */
int lexicon_tree_build(struct lexicon_tree *tree, int32_t *same, const struct lexicon_key *key, int n, struct err *e);
/* Safe on a zeroed one. */
void lexicon_tree_free(struct lexicon_tree *tree);

/* The child of a node (-1: the root) for a byte; -1: there is none. */
int lexicon_tree_child(const struct lexicon_tree *tree, int node, unsigned char byte);

#endif
