/* text/grammar/product.c - see product.h. */
#include "text/grammar/product.h"

#include "text/grammar/regex.h"

#include <stdlib.h>

#define MAX_STATES 4000000 /* of the table: states of the expression times numbers of characters */

struct counted_product {
    struct graph *g;
    int first, end, next; /* the expression's nodes are [first, end) and lead to next */
    int min, cap;         /* numbers of characters are kept up to cap */
    bool bounded;
    int *copy;         /* [(end - first) * (cap + 1)] the copies of each node; -1: not made */
    int *todo, n_todo; /* copies whose successors are to be made, as indices of copy; capacity GRAPH_MAX_NODES */
};

/* The copy of a node after n characters; -1: none. */
static int copy_of(struct counted_product *p, int node, int n)
{
    while (node != p->next && node >= 0 && p->g->node[node].kind == GRAPH_TICK) {
        if (n == p->cap && p->bounded)
            return -1;
        n += n < p->cap;
        node = p->g->node[node].next;
    }
    if (node == p->next || node < 0)
        return node >= 0 && n >= p->min ? p->next : -1;
    int at = (node - p->first) * (p->cap + 1) + n;
    if (p->copy[at] < 0) {
        p->copy[at] = graph_add(p->g, p->g->node[node]);
        if (p->copy[at] >= 0)
            p->todo[p->n_todo++] = at;
    }
    return p->copy[at];
}

static void copy_successors(struct counted_product *p, int at)
{
    int node = p->first + at / (p->cap + 1), n = at % (p->cap + 1), copy = p->copy[at];
    struct graph_node from = p->g->node[node];
    int next = copy_of(p, from.next, n), other = from.kind == GRAPH_SPLIT ? copy_of(p, from.other, n) : -1;
    struct graph_node *to = &p->g->node[copy];
    to->next = next;
    to->other = other;
    if (next < 0 && from.kind == GRAPH_BYTES)
        to->kind = GRAPH_FAIL;
}

static int build_table(struct counted_product *p, int start)
{
    size_t n = (size_t)(p->end - p->first) * (size_t)(p->cap + 1);
    p->copy = malloc(n * sizeof *p->copy);
    p->todo = malloc(GRAPH_MAX_NODES * sizeof *p->todo);
    if (p->copy == NULL || p->todo == NULL)
        return ERR(p->g->e, ERR_MEMORY, "out of host memory: a pattern with a length");
    for (size_t i = 0; i < n; i++)
        p->copy[i] = -1;
    start = copy_of(p, start, 0);
    for (int i = 0; i < p->n_todo && p->g->e->code == ERR_NONE; i++)
        copy_successors(p, p->todo[i]);
    return start >= 0 ? start : graph_add(p->g, (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1});
}

int product_graph(struct graph *g, const char *regex, size_t bytes, int64_t min, int64_t max, int next)
{
    struct counted_product p = {.g = g, .first = g->n, .next = next, .min = (int)min, .bounded = max >= 0};
    p.cap = (int)(max >= 0 ? max : min);
    int start = regex_graph(g, regex, bytes, REGEX_COUNTED, next);
    p.end = g->n;
    if (start < 0)
        return -1;
    if ((int64_t)(p.end - p.first) * (p.cap + 1) > MAX_STATES)
        return ERR(g->e, ERR_UNSUPPORTED, "schema: a pattern of %d states with a length of %d needs too many states",
                   p.end - p.first, p.cap);
    start = build_table(&p, start);
    free(p.copy);
    free(p.todo);
    return g->e->code == ERR_NONE ? start : -1;
}
