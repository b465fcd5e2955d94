/* text/grammar/graph.c - see graph.h. */
#include "text/grammar/graph.h"

#include <stdlib.h>
#include <string.h>

void graph_open(struct graph *g, struct err *e)
{
    *g = (struct graph){.space = -1, .e = e};
}

void graph_close(struct graph *g)
{
    free(g->node);
    *g = (struct graph){0};
}

int graph_copy(struct graph *g, const struct graph *from, struct err *e)
{
    *g = (struct graph){.node = err_calloc(e, (size_t)from->n + 1, sizeof *g->node, "grammar"), .n = from->n};
    if (g->node == NULL)
        return -1;
    memcpy(g->node, from->node, (size_t)from->n * sizeof *g->node);
    return 0;
}

bool graph_equals(const struct graph *a, const struct graph *b)
{
    bool equal = a->n == b->n;
    for (int i = 0; equal && i < a->n; i++) {
        const struct graph_node *x = &a->node[i], *y = &b->node[i];
        equal = x->kind == y->kind && x->low == y->low && x->high == y->high && x->next == y->next &&
                x->other == y->other && x->min == y->min && x->max == y->max;
    }
    return equal;
}

static int grow(struct graph *g)
{
    int capacity = g->capacity > 0 ? 2 * g->capacity : 256;
    struct graph_node *node = realloc(g->node, (size_t)capacity * sizeof *node);
    if (node == NULL)
        return ERR(g->e, ERR_MEMORY, "out of host memory: a grammar of %d nodes", capacity);
    g->node = node;
    g->capacity = capacity;
    return 0;
}

int graph_add(struct graph *g, struct graph_node node)
{
    if (g->e->code != ERR_NONE)
        return -1;
    if (g->n == GRAPH_MAX_NODES)
        return ERR(g->e, ERR_UNSUPPORTED, "the grammar needs more than %d states", GRAPH_MAX_NODES);
    if (g->n == g->capacity && grow(g) != 0)
        return -1;
    g->node[g->n] = node;
    return g->n++;
}

int graph_return(struct graph *g)
{
    return graph_add(g, (struct graph_node){.kind = GRAPH_RETURN, .next = -1, .other = -1});
}

int graph_bytes(struct graph *g, int low, int high, int next)
{
    return graph_add(g,
                     (struct graph_node){
                         .kind = GRAPH_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .next = next, .other = -1});
}

int graph_either(struct graph *g, int a, int b)
{
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    return graph_add(g, (struct graph_node){.kind = GRAPH_SPLIT, .next = a, .other = b});
}

int graph_text(struct graph *g, const char *text, size_t bytes, int next)
{
    for (size_t i = bytes; i-- > 0;)
        next = graph_bytes(g, (unsigned char)text[i], (unsigned char)text[i], next);
    return next;
}

int graph_call(struct graph *g, int rule, int next)
{
    return graph_add(g, (struct graph_node){.kind = GRAPH_CALL, .next = next, .other = rule});
}

int graph_ahead(struct graph *g)
{
    return graph_add(g, (struct graph_node){.kind = GRAPH_SPLIT, .next = -1, .other = -1});
}

void graph_lead(struct graph *g, int ahead, int to)
{
    if (g->e->code == ERR_NONE)
        g->node[ahead].next = to;
}

int graph_space(struct graph *g, int next)
{
    enum { INDENT = 32 };
    if (g->space < 0) {
        int end = graph_return(g), indent = end;
        for (int i = 0; i < INDENT; i++)
            indent = graph_either(g, graph_bytes(g, ' ', ' ', indent), end);
        g->space =
            graph_either(g, end, graph_either(g, graph_bytes(g, ' ', ' ', end), graph_bytes(g, '\n', '\n', indent)));
    }
    return graph_call(g, g->space, next);
}

/* Finds the nodes that lead to the end, backwards: each node is visited once per successor. */
struct pruning {
    const struct graph *g;
    bool *ends;      /* [g->n] */
    int32_t *begin;  /* [g->n + 2] predecessors of node i are before[begin[i + 1], begin[i + 2]) */
    int32_t *before; /* [2 * g->n] */
    int32_t *todo;   /* [g->n] nodes that lead to the end, whose predecessors are still to be visited */
    int n_todo;
};

/* Whether the end can be reached from the node, as far as is known from other nodes. */
static bool reaches(const struct graph_node *node, const bool *ends)
{
    switch ((enum graph_node_kind)node->kind) {
    case GRAPH_FAIL:
        return false;
    case GRAPH_RETURN:
        return true;
    case GRAPH_SPLIT:
        return (node->next >= 0 && ends[node->next]) || (node->other >= 0 && ends[node->other]);
    case GRAPH_CALL:
        return ends[node->next] && ends[node->other];
    default:
        return node->next >= 0 && ends[node->next];
    }
}

/* Sorts nodes by their successors: counts them, then fills each range from its end. */
static void link_back(struct pruning *p)
{
    const struct graph_node *node = p->g->node;
    int n = p->g->n;
    for (int i = 0; i < n; i++) {
        p->begin[node[i].next + 1]++;
        p->begin[node[i].other + 1]++;
    }
    p->begin[0] = 0; /* of those that lead to none */
    for (int i = 0; i < n; i++)
        p->begin[i + 1] += p->begin[i];
    p->begin[n + 1] = p->begin[n];
    for (int i = n; i-- > 0;) {
        if (node[i].next >= 0)
            p->before[--p->begin[node[i].next + 1]] = i;
        if (node[i].other >= 0)
            p->before[--p->begin[node[i].other + 1]] = i;
    }
}

static void look_at(struct pruning *p, int32_t i)
{
    if (p->ends[i] || !reaches(&p->g->node[i], p->ends))
        return;
    p->ends[i] = true;
    p->todo[p->n_todo++] = i;
}

static void find_ends(struct pruning *p)
{
    for (int i = 0; i < p->g->n; i++)
        if (p->g->node[i].kind == GRAPH_RETURN)
            look_at(p, i);
    while (p->n_todo > 0) {
        int32_t i = p->todo[--p->n_todo];
        for (int32_t k = p->begin[i + 1]; k < p->begin[i + 2]; k++)
            look_at(p, p->before[k]);
    }
}

bool graph_prune(struct graph *g, int start)
{
    size_t n = (size_t)g->n;
    struct pruning p = {.g = g};
    bool possible = false;
    if (g->e->code != ERR_NONE)
        return false;
    p.ends = err_calloc(g->e, n, sizeof *p.ends, "grammar");
    p.begin = err_calloc(g->e, n + 2, sizeof *p.begin, "grammar");
    p.before = err_calloc(g->e, 2 * n, sizeof *p.before, "grammar");
    p.todo = err_calloc(g->e, n, sizeof *p.todo, "grammar");
    if (g->e->code == ERR_NONE) {
        link_back(&p);
        find_ends(&p);
        for (int i = 0; i < g->n; i++)
            if (!p.ends[i])
                g->node[i] = (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1};
        possible = p.ends[start];
    }
    free(p.todo);
    free(p.before);
    free(p.begin);
    free(p.ends);
    return possible;
}
