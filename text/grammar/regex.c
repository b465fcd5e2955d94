/* text/grammar/regex.c - see regex.h. */
#include "text/grammar/regex.h"

#include "text/grammar/regex_tree.h"

struct emitter {
    struct graph *g;
    const struct regex_tree *tree;
    enum regex_form form;
};

static int emit_node(struct emitter *m, int i, int next);

static int emit_set(struct emitter *m, const struct charset *set, int next)
{
    int start = m->form == REGEX_TEXT ? charset_utf8(m->g, set, next) : charset_json(m->g, set, next);
    if (m->form != REGEX_COUNTED)
        return start;
    return graph_add(m->g, (struct graph_node){.kind = GRAPH_TICK, .next = start, .other = -1});
}

/* After the last required repetition: the optional ones. */
static int emit_optional(struct emitter *m, const struct tree_node *node, int next)
{
    if (node->max < 0) {
        int loop = graph_ahead(m->g), inner = emit_node(m, node->a, loop);
        int head = graph_either(m->g, inner, next);
        graph_lead(m->g, loop, head);
        return head;
    }
    int head = next;
    for (int i = node->min; i < node->max && m->g->e->code == ERR_NONE; i++)
        head = graph_either(m->g, emit_node(m, node->a, head), next);
    return head;
}

static int emit_repeat(struct emitter *m, const struct tree_node *node, int next)
{
    int head = emit_optional(m, node, next);
    for (int i = 0; i < node->min && m->g->e->code == ERR_NONE; i++) {
        int inner = emit_node(m, node->a, head);
        if (inner == head) /* a repetition of nothing */
            break;
        head = inner;
    }
    return head;
}

static int emit_node(struct emitter *m, int i, int next)
{
    const struct tree_node *node = &m->tree->node[i];
    if (m->g->e->code != ERR_NONE)
        return -1;
    switch (node->kind) {
    case TREE_EMPTY:
        return next;
    case TREE_SET:
        return emit_set(m, &m->tree->set[node->a], next);
    case TREE_JOIN:
        return emit_node(m, node->a, emit_node(m, node->b, next));
    case TREE_EITHER: {
        int b = emit_node(m, node->b, next);
        return graph_either(m->g, emit_node(m, node->a, next), b);
    }
    case TREE_REPEAT:
        return emit_repeat(m, node, next);
    case TREE_BEGIN:
    case TREE_END:
        break;
    }
    return ERR(m->g->e, ERR_UNSUPPORTED, "regular expression: ^ and $ are supported at its ends only");
}

/* Any number of any characters. */
static int emit_anything(struct emitter *m, int next)
{
    struct charset all = {0};
    int loop = graph_ahead(m->g);
    charset_invert(&all, 0x10ffff, m->g->e);
    int head = graph_either(m->g, emit_set(m, &all, loop), next);
    graph_lead(m->g, loop, head);
    return head;
}

/* The parts of a sequence, first to last, each followed by what is in *next; ^ and $ are taken at the ends only. */
static int emit_sequence(struct emitter *m, int i, bool first, bool last, bool *bound_begin, bool *bound_end, int next)
{
    const struct tree_node *node = &m->tree->node[i];
    if (node->kind == TREE_JOIN) {
        int rest = emit_sequence(m, node->b, false, last, bound_begin, bound_end, next);
        return emit_sequence(m, node->a, first, false, bound_begin, bound_end, rest);
    }
    if (node->kind == TREE_BEGIN && first) {
        *bound_begin = true;
        return next;
    }
    if (node->kind == TREE_END && last) {
        *bound_end = true;
        return next;
    }
    return emit_node(m, i, next);
}

static bool ends_bound(const struct regex_tree *t, int i)
{
    while (t->node[i].kind == TREE_JOIN)
        i = t->node[i].b;
    return t->node[i].kind == TREE_END;
}

static int emit_alternative(struct emitter *m, int i, int next)
{
    bool begin = false, end = false, search = m->form != REGEX_TEXT;
    if (search && !ends_bound(m->tree, i))
        next = emit_anything(m, next);
    int start = emit_sequence(m, i, true, true, &begin, &end, next);
    return search && !begin ? emit_anything(m, start) : start;
}

static int emit_alternatives(struct emitter *m, int i, int next)
{
    const struct tree_node *node = &m->tree->node[i];
    if (node->kind != TREE_EITHER)
        return emit_alternative(m, i, next);
    int a = emit_alternatives(m, node->a, next);
    return graph_either(m->g, a, emit_alternatives(m, node->b, next));
}

int regex_graph(struct graph *g, const char *regex, size_t bytes, enum regex_form form, int next)
{
    struct regex_tree tree = {0};
    int start = -1;
    if (bytes > REGEX_MAX_BYTES)
        return ERR(g->e, ERR_UNSUPPORTED, "a regular expression of %zu bytes, expected at most %d", bytes,
                   REGEX_MAX_BYTES);
    if (g->e->code == ERR_NONE && regex_parse(&tree, regex, bytes, g->e) == 0) {
        struct emitter m = {g, &tree, form};
        start = emit_alternatives(&m, tree.root, next);
    }
    regex_tree_close(&tree);
    return g->e->code == ERR_NONE ? start : -1;
}
