/* text/grammar/graph_share.c - see graph.h. */
#include "text/grammar/graph.h"

#include <stdlib.h>
#include <string.h>

struct sharing {
    struct graph *g;
    int32_t *same; /* [g->n] the node that replaces it, usually itself */
    int32_t *slot; /* [mask + 1] nodes by hash, -1: none */
    uint32_t mask;
    int n_before; /* nodes with a smaller index than their successors */
};

static int32_t instead_of(const struct sharing *s, int32_t i)
{
    while (i >= 0 && s->same[i] != i)
        i = s->same[i];
    return i;
}

static uint32_t hash_node(const struct graph_node *node)
{
    uint64_t x = (uint64_t)(uint32_t)node->next << 32 ^ (uint32_t)node->other;
    x = (x ^ (uint64_t)node->kind << 56 ^ (uint64_t)node->low << 24 ^ (uint64_t)node->high << 16) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29 ^ (uint64_t)(uint32_t)node->min << 32 ^ (uint32_t)node->max) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

static bool is_same(const struct graph_node *a, const struct graph_node *b)
{
    return a->kind == b->kind && a->low == b->low && a->high == b->high && a->next == b->next && a->other == b->other &&
           a->min == b->min && a->max == b->max;
}

/* The only successor of a split; -1: it has two. */
static int32_t only_way(const struct graph *g, const struct graph_node *node)
{
    bool next = node->next >= 0 && g->node[node->next].kind != GRAPH_FAIL,
         other = node->other >= 0 && g->node[node->other].kind != GRAPH_FAIL;
    if (node->kind != GRAPH_SPLIT || (next && other && node->next != node->other))
        return -1;
    return next ? node->next : node->other;
}

/* The node itself, or an equal one before it. */
static int32_t find_equal(struct sharing *s, int32_t i)
{
    uint32_t at = hash_node(&s->g->node[i]) & s->mask;
    for (; s->slot[at] >= 0; at = (at + 1) & s->mask)
        if (is_same(&s->g->node[s->slot[at]], &s->g->node[i]))
            return s->slot[at];
    s->slot[at] = i;
    return i;
}

static void share(struct sharing *s, int32_t i)
{
    struct graph_node *node = &s->g->node[i];
    if (s->same[i] != i)
        return;
    s->n_before += node->next > i || node->other > i;
    node->next = instead_of(s, node->next);
    node->other = instead_of(s, node->other);
    int32_t only = only_way(s->g, node);
    s->same[i] = only >= 0 && only != i ? only : find_equal(s, i);
}

/* Once over all nodes, from the first one on or from the last one. */
static void pass(struct sharing *s, bool down)
{
    memset(s->slot, 0xff, ((size_t)s->mask + 1) * sizeof *s->slot);
    for (int32_t i = 0; i < s->g->n; i++)
        share(s, down ? s->g->n - 1 - i : i);
}

/* Points every node to its successors' replacements: a node with a smaller index than a successor still has the old
 * one. */
static void lead_on(const struct sharing *s)
{
    for (int32_t i = 0; i < s->g->n; i++) {
        s->g->node[i].next = instead_of(s, s->g->node[i].next);
        s->g->node[i].other = instead_of(s, s->g->node[i].other);
    }
}

int graph_share(struct graph *g, int start)
{
    struct sharing s = {.g = g, .mask = 1023};
    while (s.mask < 2 * (uint32_t)g->n)
        s.mask = 2 * s.mask + 1;
    s.same = err_calloc(g->e, (size_t)g->n, sizeof *s.same, "grammar");
    s.slot = err_calloc(g->e, (size_t)s.mask + 1, sizeof *s.slot, "grammar");
    if (s.same != NULL && s.slot != NULL) {
        for (int32_t i = 0; i < g->n; i++)
            s.same[i] = i;
        pass(&s, false);
        if (s.n_before > g->n / 16) /* patterns with a length (product.h); else only loops */
            pass(&s, true);
        lead_on(&s);
        start = instead_of(&s, start);
    }
    free(s.same);
    free(s.slot);
    return g->e->code == ERR_NONE ? start : -1;
}
