/* text/grammar/lexicon_near.c - makes the mask of a state from that of another one, to which most characters lead. */
#include "text/grammar/alike.h"
#include "text/grammar/lexicon_parts.h"

/* A node of the current path, whose edges are being followed, with the states of both walks after it; MACHINE_DEAD for
 * a dead one. */
struct near_level {
    int32_t edge, end;
    int state, near;
};

static inline struct near_level begin_level(const struct lexicon_tree *tree, int node, int state, int near)
{
    return (struct near_level){tree->edge[node + 1], tree->edge[node + 2], state, near};
}

/* The tokens of a node's bytes. */
static void change_tokens(const struct lexicon_tree *tree, const struct lexicon_node *node, bool set, uint32_t *mask)
{
    for (int32_t token = node->token; token >= 0; token = node->shared ? tree->same[token] : -1)
        if (set)
            lexicon_set_bit(mask, token);
        else
            lexicon_clear_bit(mask, token);
}

static inline int next_of(struct machine *m, int state, unsigned char byte)
{
    return state >= 0 && machine_may(m, state, byte) ? machine_next(m, state, byte) : MACHINE_DEAD;
}

/* Moves to the next edge after which the two walks are in different states, and gives these. False: there is none. */
static bool find_difference(const struct lexicon_tree *tree, struct near_level *l, struct machine *m, int *state,
                            int *near)
{
    for (; l->edge < l->end; l->edge++) {
        unsigned char byte = tree->byte[l->edge];
        *state = next_of(m, l->state, byte);
        *near = next_of(m, l->near, byte);
        if (*state != *near)
            return true;
    }
    return false;
}

int lexicon_near(struct machine *m, int state)
{
    const struct machine_alike a = state >= 0 ? *alike_find(m, state) : (struct machine_alike){.to = MACHINE_DEAD};
    bool stays = a.to >= 0 && a.to != state && alike_next(m, a.to, a.ascii, a.wide) == a.to;
    return stays ? a.to : MACHINE_DEAD;
}

int lexicon_mask_from(const struct lexicon *l, struct machine *m, int state, int near, uint32_t *mask)
{
    const struct lexicon_tree *tree = &l->all;
    struct near_level path[LEXICON_MAX_DEPTH + 1];
    int n_visited = 0, top = 0;
    path[0] = begin_level(tree, -1, state, near);
    while (top >= 0) {
        if (!find_difference(tree, &path[top], m, &state, &near)) {
            top--;
            continue;
        }
        int node = tree->to[path[top].edge++];
        n_visited++;
        if ((state >= 0) != (near >= 0))
            change_tokens(tree, &tree->node[node], state >= 0, mask);
        path[++top] = begin_level(tree, node, state, near);
    }
    return n_visited;
}
