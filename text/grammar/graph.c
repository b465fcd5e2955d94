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
        const struct node *x = &a->node[i], *y = &b->node[i];
        equal = x->kind == y->kind && x->low == y->low && x->high == y->high && x->next == y->next &&
                x->other == y->other && x->min == y->min && x->max == y->max;
    }
    return equal;
}

static int grow(struct graph *g)
{
    int capacity = g->capacity > 0 ? 2 * g->capacity : 256;
    struct node *node = realloc(g->node, (size_t)capacity * sizeof *node);
    if (node == NULL)
        return ERR(g->e, ERR_MEMORY, "out of host memory: a grammar of %d nodes", capacity);
    g->node = node;
    g->capacity = capacity;
    return 0;
}

int graph_add(struct graph *g, struct node node)
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
    return graph_add(g, (struct node){.kind = NODE_RETURN, .next = -1, .other = -1});
}

int graph_bytes(struct graph *g, int low, int high, int next)
{
    return graph_add(
        g, (struct node){.kind = NODE_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .next = next, .other = -1});
}

int graph_either(struct graph *g, int a, int b)
{
    if (a < 0 || b < 0)
        return a < 0 ? b : a;
    return graph_add(g, (struct node){.kind = NODE_SPLIT, .next = a, .other = b});
}

int graph_text(struct graph *g, const char *text, size_t bytes, int next)
{
    for (size_t i = bytes; i-- > 0;)
        next = graph_bytes(g, (unsigned char)text[i], (unsigned char)text[i], next);
    return next;
}

int graph_call(struct graph *g, int rule, int next)
{
    return graph_add(g, (struct node){.kind = NODE_CALL, .next = next, .other = rule});
}

int graph_ahead(struct graph *g)
{
    return graph_add(g, (struct node){.kind = NODE_SPLIT, .next = -1, .other = -1});
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

/* Whether the end can be reached from the node, as far as `ends` says so of others. */
static bool reaches(const struct node *node, const bool *ends)
{
    switch ((enum node_kind)node->kind) {
    case NODE_FAIL:
        return false;
    case NODE_RETURN:
        return true;
    case NODE_SPLIT:
        return (node->next >= 0 && ends[node->next]) || (node->other >= 0 && ends[node->other]);
    case NODE_CALL:
        return ends[node->next] && ends[node->other];
    default:
        return node->next >= 0 && ends[node->next];
    }
}

bool graph_prune(struct graph *g, int start)
{
    bool *ends = g->e->code == ERR_NONE ? err_calloc(g->e, (size_t)g->n, sizeof *ends, "grammar") : NULL;
    if (ends == NULL)
        return false;
    for (bool changed = true; changed;) { /* most nodes stand behind those that they lead to: few rounds */
        changed = false;
        for (int i = 0; i < g->n; i++)
            if (!ends[i] && reaches(&g->node[i], ends))
                ends[i] = changed = true;
    }
    for (int i = 0; i < g->n; i++)
        if (!ends[i])
            g->node[i] = (struct node){.kind = NODE_FAIL, .next = -1, .other = -1};
    bool possible = ends[start];
    free(ends);
    return possible;
}
