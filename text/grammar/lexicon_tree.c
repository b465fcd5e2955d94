/* text/grammar/lexicon_tree.c - see lexicon_tree.h. */
#include "text/grammar/lexicon_tree.h"

#include <stdlib.h>
#include <string.h>

int lexicon_key_compare(const void *left, const void *right)
{
    const struct lexicon_key *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order == 0)
        order = (a->n > b->n) - (a->n < b->n);
    return order != 0 ? order : (a->token > b->token) - (a->token < b->token);
}

/* Adds nodes for the bytes of a key beyond the prefix that it shares with the previous one. open: the nodes of the
 * current path, by depth. */
static void add_key(struct lexicon_tree *tree, const struct lexicon_key *key, size_t shared, int *open, size_t n_open)
{
    for (size_t d = shared; d < n_open; d++)
        tree->node[open[d]].skip = tree->n;
    for (size_t d = shared; d < key->n; d++) {
        open[d] = tree->n;
        tree->node[tree->n++] = (struct lexicon_node){.token = -1, .depth = (uint16_t)d, .byte = key->bytes[d]};
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): shared < key->n, or it is the key before */
    tree->node[open[key->n - 1]].token = key->token;
}

static size_t shared_bytes(const struct lexicon_key *a, const struct lexicon_key *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

static int link_edges(struct lexicon_tree *tree, struct err *e)
{
    int32_t at[LEXICON_MAX_DEPTH + 1] = {0}; /* of the path: 0, or the node's number + 1 */
    tree->edge = err_calloc(e, (size_t)tree->n + 3, sizeof *tree->edge, "vocabulary of grammars");
    tree->to = err_calloc(e, (size_t)tree->n + 1, sizeof *tree->to, "vocabulary of grammars");
    tree->byte = err_calloc(e, (size_t)tree->n + 1, sizeof *tree->byte, "vocabulary of grammars");
    if (tree->edge == NULL || tree->to == NULL || tree->byte == NULL)
        return -1;
    int32_t *end = tree->edge + 1; /* moves on as edges are put in */
    for (int i = 0; i < tree->n; i++) {
        at[tree->node[i].depth + 1] = i + 1;
        end[at[tree->node[i].depth] + 1]++;
    }
    for (int i = 0; i <= tree->n; i++)
        end[i + 1] += end[i];
    for (int i = 0; i < tree->n; i++) {
        at[tree->node[i].depth + 1] = i + 1;
        int32_t edge = end[at[tree->node[i].depth]]++;
        tree->to[edge] = i;
        tree->byte[edge] = tree->node[i].byte;
    }
    return 0;
}

void lexicon_tree_free(struct lexicon_tree *tree)
{
    free(tree->node);
    free(tree->edge);
    free(tree->to);
    free(tree->byte);
}

int lexicon_tree_build(struct lexicon_tree *tree, int32_t *same, const struct lexicon_key *key, int n, struct err *e)
{
    int open[LEXICON_MAX_DEPTH];
    size_t n_nodes = 1;
    const struct lexicon_key *last = NULL;
    for (int i = 0; i < n; i++)
        n_nodes += key[i].n - (i > 0 ? shared_bytes(&key[i - 1], &key[i]) : 0);
    tree->same = same;
    tree->node = err_calloc(e, n_nodes, sizeof *tree->node, "vocabulary of grammars");
    if (tree->node == NULL)
        return -1;
    for (int i = 0; i < n; i++) {
        size_t shared = last != NULL ? shared_bytes(last, &key[i]) : 0;
        if (last != NULL && shared == key[i].n && shared == last->n) {
            same[key[i - 1].token] = key[i].token;
            tree->node[open[last->n - 1]].shared = true;
            continue;
        }
        add_key(tree, &key[i], shared, open, last != NULL ? last->n : 0);
        last = &key[i];
    }
    for (size_t d = 0; last != NULL && d < last->n; d++)
        tree->node[open[d]].skip = tree->n;
    return link_edges(tree, e);
}

int lexicon_tree_child(const struct lexicon_tree *tree, int node, unsigned char byte)
{
    const uint8_t *first = tree->byte + tree->edge[node + 1];
    const uint8_t *found = memchr(first, byte, (size_t)(tree->edge[node + 2] - tree->edge[node + 1]));
    return found != NULL ? tree->to[found - tree->byte] : -1;
}
