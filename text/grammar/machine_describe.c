/* text/grammar/machine_describe.c - see machine_describe.h. */
#include "text/grammar/machine_describe.h"

#include <stddef.h>

static void set_live(struct machine_state *s, int low, int high)
{
    for (int i = low / 64; i <= high / 64; i++) {
        int first = low > 64 * i ? low - 64 * i : 0, last = high < 64 * i + 63 ? high - 64 * i : 63;
        s->live[i] |= ~0ull >> (63 - last) & ~0ull << first;
    }
}

/* The number of characters that may still follow in the string of this loop. */
static int free_chars(const struct machine *m, const struct machine_place *at)
{
    if (!m->graph->node[at->node].low)
        return MACHINE_UNLIMITED;
    const struct machine_frame *counter = &m->frame[at->frame];
    int max = m->graph->node[counter->node].max;
    return max < 0 ? MACHINE_UNLIMITED : max - counter->count;
}

/* Whether a node can be reached from another one without reading a byte. */
static bool leads_to(const struct graph *g, int from, int node)
{
    while (from != node && from >= 0) {
        const struct graph_node *at = &g->node[from];
        if (at->kind == GRAPH_SPLIT && leads_to(g, at->other, node))
            return true;
        if (at->kind != GRAPH_SPLIT && at->kind != GRAPH_FREE && at->kind != GRAPH_TICK)
            return false;
        from = at->next;
    }
    return from == node;
}

/* Does a place belong to the string of the loop, or read only bytes that begin no plain character? The loop's own
 * places have its counter, advanced by one. */
static bool is_of_loop(const struct machine *m, const struct machine_place *loop, const struct machine_place *at)
{
    const struct graph_node *node = &m->graph->node[at->node];
    if (node->kind == GRAPH_FREE)
        return at->node == loop->node && at->frame == loop->frame;
    if (node->low == node->high && (node->low == '"' || node->low == '\\'))
        return true;
    if (at->frame < 0 || loop->frame < 0 || !leads_to(m->graph, loop->node, at->node))
        return false;
    const struct machine_frame *a = &m->frame[at->frame], *b = &m->frame[loop->frame];
    return a->node == b->node && a->below == b->below && (a->count == b->count + 1 || a->count == b->count);
}

/* Has the string of the loop reached its minimum length, and may only its own end and escapes come? A literal beside it
 * has an end of its own, before which no further character may come. */
static bool ends_itself(const struct machine *m, const struct machine_place *loop, const struct machine_place *place,
                        int n)
{
    int n_quotes = 0, n_escapes = 0;
    for (int i = 0; i < n; i++) {
        const struct graph_node *node = &m->graph->node[place[i].node];
        if (node->kind == GRAPH_BYTES && node->low == node->high) {
            n_quotes += node->low == '"';
            n_escapes += node->low == '\\';
        }
    }
    const struct machine_frame *counter = loop->frame >= 0 ? &m->frame[loop->frame] : NULL;
    bool enough =
        counter == NULL || !m->graph->node[loop->node].low || counter->count >= m->graph->node[counter->node].min;
    return enough && n_quotes == 1 && n_escapes <= 1;
}

void machine_describe(const struct machine *m, struct machine_state *s)
{
    const struct machine_place *place = m->place + s->first, *loop = NULL;
    s->free_chars = -1;
    for (int i = 0; i < s->n; i++) {
        const struct graph_node *node = &m->graph->node[place[i].node];
        if (node->kind == GRAPH_BYTES) {
            set_live(s, node->low, node->high);
        } else if (free_chars(m, &place[i]) > s->free_chars) {
            loop = &place[i];
            s->free_chars = free_chars(m, loop);
        }
    }
    s->only_free = loop != NULL;
    for (int i = 0; i < s->n && s->only_free; i++)
        s->only_free = is_of_loop(m, loop, &place[i]);
    s->own_end = s->only_free && ends_itself(m, loop, place, s->n);
}
