/* text/grammar/lexicon_mask.c - the tokens that may come in a state of a machine: masks, and single tokens. */
#include "text/grammar/lexicon_parts.h"
#include "text/grammar/loops.h"

#include <string.h>

#define FEW_BYTES 8 /* of ASCII: too few to look for more than the paths that they begin */

static inline void set_tokens(const struct lexicon_tree *tree, const struct lexicon_node *node, uint32_t *mask)
{
    if (node->token >= 0)
        lexicon_set_bit(mask, node->token);
    for (int32_t token = node->token; node->shared && token >= 0; token = tree->same[token])
        lexicon_set_bit(mask, token);
}

/* A node of the current path, whose edges are being followed. */
struct level {
    int32_t edge, end;
    int state, chars;
};

static inline struct level begin_level(const struct lexicon_tree *tree, int node, int state, int chars)
{
    return (struct level){tree->edge[node + 1], tree->edge[node + 2], state, chars};
}

/* Moves to the next edge whose byte may come, or to any next edge. False: there is none. */
static inline bool find_edge(const struct lexicon_tree *tree, struct level *l, const struct machine *m, bool any)
{
    while (l->edge < l->end && !any && !machine_may(m, l->state, tree->byte[l->edge]))
        l->edge++;
    return l->edge < l->end;
}

/* The state after this edge, which leads to *node. */
static inline int take_edge(const struct lexicon_tree *tree, struct level *l, struct machine *m, int *node)
{
    unsigned char byte = tree->byte[l->edge];
    *node = tree->to[l->edge++];
    return machine_next(m, l->state, byte);
}

/* Follows all paths below a node (-1: the root) until they are dead. Returns the number of visited nodes. */
static int walk(const struct lexicon_tree *tree, int node, struct machine *m, int state, uint32_t *mask)
{
    struct level path[LEXICON_MAX_DEPTH + 1];
    int n_visited = 0, top = 0;
    path[0] = begin_level(tree, node, state, 0);
    while (top >= 0) {
        if (!find_edge(tree, &path[top], m, false)) {
            top--;
            continue;
        }
        int next = take_edge(tree, &path[top], m, &node);
        if (next < 0)
            continue;
        n_visited++;
        set_tokens(tree, &tree->node[node], mask);
        path[++top] = begin_level(tree, node, next, 0);
    }
    return n_visited;
}

/* The bitmap of plain tokens of at most this many characters. */
static void set_plain(const struct lexicon *l, uint32_t *mask, int chars)
{
    int which = chars >= l->longest ? LEXICON_LENGTHS : chars < LEXICON_LENGTHS ? chars - 1 : LEXICON_LENGTHS - 1;
    if (which < 0)
        return;
    const uint32_t *bits = l->up_to + (size_t)which * (size_t)l->n_words;
    for (int i = 0; i < l->n_words; i++)
        mask[i] |= bits[i];
    if (which != LEXICON_LENGTHS - 1)
        return;
    for (int i = l->n_plain; i-- > 0 && l->plain[i].chars > LEXICON_LENGTHS;)
        if (l->plain[i].chars <= chars)
            lexicon_set_bit(mask, l->plain[i].token);
}

/* Whether all plain characters may come in this state, either enough of them for every plain token, or a limited number
 * with nothing else allowed. */
static bool is_free(const struct lexicon *l, struct machine *m, int state)
{
    const struct machine_state *s = &m->state[state];
    return s->free_chars >= l->longest || (s->free_chars >= 0 && s->only_free) || alike_free(m, state);
}

/* The plain tokens below a node of this many characters, with at most free_chars more. */
static void set_behind(const struct lexicon *l, uint32_t *mask, int node, int chars, int free_chars)
{
    bool all = free_chars >= l->longest;
    for (int i = l->plain_before[node]; i < l->plain_before[l->all.node[node].skip]; i++)
        if (all || l->in_order[i].chars - chars <= free_chars)
            lexicon_set_bit(mask, l->in_order[i].token);
}

/* The tokens below a node that are not plain. */
static int walk_others(const struct lexicon *l, int node, struct machine *m, int state, uint32_t *mask)
{
    int other = l->other_of[node];
    return other < 0 ? 1 : 1 + walk(&l->other, other, m, state, mask);
}

/* Plain tokens that begin with the bytes of a node. */
static int count_plain(const struct lexicon *l, int node)
{
    return l->plain_before[l->all.node[node].skip] - l->plain_before[node];
}

static void clear_plain(const struct lexicon *l, uint32_t *mask, int node)
{
    const struct lexicon_plain *first = l->in_order + l->plain_before[node];
    for (int i = 0, n = count_plain(l, node); i < n; i++)
        lexicon_clear_bit(mask, first[i].token);
}

/* Sets the tokens of a node that is reached in this state after this many characters. If plain characters may come,
 * sets the tokens below it, too, and ends the path: false. full: all plain tokens below it are in the mask already. */
static bool leads_on(const struct lexicon *l, int node, int chars, bool full, struct machine *m, int state,
                     uint32_t *mask, int *n_visited)
{
    (*n_visited)++;
    if (!is_free(l, m, state)) {
        set_tokens(&l->all, &l->all.node[node], mask);
        return true;
    }
    int free_chars = m->state[state].free_chars;
    full = full && free_chars < l->longest ? (clear_plain(l, mask, node), false) : full;
    if (!full)
        set_behind(l, mask, node, chars, free_chars);
    set_tokens(&l->all, &l->all.node[node], mask);
    *n_visited += walk_others(l, node, m, state, mask);
    return false;
}

static int count_begun(int chars, unsigned char byte)
{
    return chars + ((byte & 0xc0) != 0x80);
}

/* Follows all paths below a node of l->all, which has this many characters before it, until plain characters may come.
 * full: all plain tokens that begin with the node's bytes are in the mask; those on dead paths are removed. */
static int walk_to_free(const struct lexicon *l, int node, int chars, bool full, struct machine *m, int state,
                        uint32_t *mask)
{
    struct level path[LEXICON_MAX_DEPTH + 1];
    int n_visited = 0, top = -1, next = machine_next(m, state, l->all.node[node].byte);
    for (;;) {
        if (next < 0 && full)
            clear_plain(l, mask, node);
        chars = count_begun(chars, l->all.node[node].byte);
        if (next >= 0 && leads_on(l, node, chars, full, m, next, mask, &n_visited))
            path[++top] = begin_level(&l->all, node, next, chars);
        while (top >= 0 && !find_edge(&l->all, &path[top], m, full))
            top--;
        if (top < 0)
            return n_visited;
        chars = path[top].chars;
        next = take_edge(&l->all, &path[top], m, &node);
    }
}

/* Tokens by their first byte, one node at the root each. */
struct roots {
    bool full;               /* all plain ones are in the mask */
    struct loop_chain chain; /* found last, and the bytes whose tokens follow it after their first character: */
    uint64_t first[4];       /* the states after they leave it are still to be found */
    int inner;               /* tokens of the chain's set whose first character leads to this state are in the mask; or
                  MACHINE_DEAD */
    int n_visited;
};

/* Tokens that begin with a byte and then stay within the set of the chain, which begins after their first character. */
static void set_along(const struct loop_chain *c, unsigned char byte, uint32_t *mask)
{
    const struct loop_set *set = c->set;
    for (int i = set->token_begin[byte]; i < set->token_begin[byte + 1]; i++)
        if (loops_state(c, set->token[i].chars - 1) >= 0)
            lexicon_set_bit(mask, set->token[i].token);
}

/* Continues the paths of tokens that leave the chain by a byte. */
static void set_leaving(const struct lexicon *l, struct roots *r, int byte, struct machine *m, uint32_t *mask)
{
    const struct loop_set *set = r->chain.set;
    for (int i = set->leaving_begin[byte]; i < set->leaving_begin[byte + 1]; i++) {
        const struct loop_leaving *at = &set->leaving[i];
        int state = r->first[at->first / 64] >> at->first % 64 & 1 ? loops_state(&r->chain, at->chars - 1) : -1;
        if (state >= 0 && machine_may(m, state, (unsigned char)byte))
            r->n_visited += walk_to_free(l, at->node, at->chars, false, m, state, mask);
    }
}

/* The same for all bytes that may come anywhere along the chain, which is then done. */
static void end_chain(const struct lexicon *l, struct roots *r, struct machine *m, uint32_t *mask)
{
    uint64_t live[4] = {0};
    for (int i = 0; i < r->chain.n; i++)
        for (int k = 0; k < 4; k++)
            live[k] |= m->state[r->chain.state[i]].live[k];
    bool any = (r->first[0] | r->first[1] | r->first[2] | r->first[3]) != 0;
    for (int byte = 0; byte < 256 && any; byte++)
        if (live[byte / 64] >> byte % 64 & 1)
            set_leaving(l, r, byte, m, mask);
    memset(r->first, 0, sizeof r->first);
}

/* If the byte of a node at the root leads to this state, may all plain tokens that begin with it come? */
static bool frees_all(const struct lexicon *l, struct machine *m, int state)
{
    return state >= 0 && (m->state[state].free_chars >= l->longest || alike_free(m, state));
}

/* Sets all plain tokens if that is less work than setting the allowed ones one by one. */
static bool set_most(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    const uint64_t *live = m->state[state].live;
    int n_free = 0;
    if (__builtin_popcountll(live[0]) + __builtin_popcountll(live[1]) < FEW_BYTES)
        return false;
    for (int edge = 0; edge < l->all.edge[1]; edge++)
        if (frees_all(l, m, machine_next(m, state, l->all.byte[edge])))
            n_free += count_plain(l, l->all.to[edge]);
    if (2 * n_free <= l->n_plain)
        return false;
    set_plain(l, mask, l->longest);
    return true;
}

/* The state after the first character of the tokens of a node at the root, and the chain that begins there, if it
 * covers everything that follows. MACHINE_DEAD: it does not. */
static int begin_chain(const struct lexicon *l, int node, struct roots *r, struct machine *m, int state, uint32_t *mask)
{
    enum { MANY = 64 };
    unsigned char byte = l->all.node[node].byte;
    int next = byte < 0x80 ? machine_next(m, state, byte) : alike_find(m, state)->wide ? m->state[state].alike.to : -1;
    if (next < 0 || l->all.node[node].skip - node <= MANY || is_free(l, m, next))
        return MACHINE_DEAD;
    int to = alike_find(m, next)->to;
    if (to < 0 || is_free(l, m, to))
        return MACHINE_DEAD;
    if (r->chain.n == 0 || r->chain.state[0] != next) {
        end_chain(l, r, m, mask);
        loops_chain(l->loops, l, m, next, &r->chain);
    }
    return r->chain.set != NULL && (byte < 0x80 || r->chain.set->wide) ? next : MACHINE_DEAD;
}

/* The tokens that begin with the byte of a node at the root. */
static void set_root(const struct lexicon *l, int node, struct roots *r, struct machine *m, int state, uint32_t *mask)
{
    unsigned char byte = l->all.node[node].byte;
    if (r->full && frees_all(l, m, machine_next(m, state, byte))) {
        set_tokens(&l->all, &l->all.node[node], mask);
        r->n_visited += walk_others(l, node, m, machine_next(m, state, byte), mask);
        return;
    }
    int next = begin_chain(l, node, r, m, state, mask);
    if (next < 0) {
        r->n_visited += walk_to_free(l, node, 0, r->full, m, state, mask);
        return;
    }
    if (r->full)
        clear_plain(l, mask, node);
    if (next != r->inner || !loops_has(r->chain.set, byte))
        set_along(&r->chain, byte, mask);
    r->first[byte / 64] |= 1ull << byte % 64;
    r->n_visited++;
}

/* Whether the characters that lead from one state to another also lead on from there, so that tokens of them exist as
 * bitmaps; if so, adds these to the mask. */
static bool set_inner(const struct lexicon *l, struct roots *r, const struct machine_alike *a, struct machine *m,
                      uint32_t *mask)
{
    if (r->full || a->to < 0 || is_free(l, m, a->to))
        return false;
    loops_chain(l->loops, l, m, a->to, &r->chain);
    const struct loop_set *set = r->chain.set;
    if (set == NULL || memcmp(set->ascii, a->ascii, sizeof set->ascii) != 0 || set->wide != a->wide)
        return false;
    loops_set_inner(&r->chain, l, mask);
    return true;
}

static int set_by_roots(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    struct roots r = {.full = set_most(l, m, state, mask)};
    const struct machine_alike a = *alike_find(m, state);
    r.inner = set_inner(l, &r, &a, m, mask) ? a.to : MACHINE_DEAD;
    for (int edge = 0; edge < l->all.edge[1]; edge++)
        if (r.full || machine_may(m, state, l->all.byte[edge]))
            set_root(l, l->all.to[edge], &r, m, state, mask);
    end_chain(l, &r, m, mask);
    return r.n_visited;
}

/* The state after any plain character, in a state where plain ones may come. MACHINE_DEAD: none may; MACHINE_UNKNOWN:
 * they lead to different states. */
static int plain_next(struct machine *m, int state)
{
    static const uint64_t plain[2] = {~0ull << 32 & ~(1ull << '"'), ~(1ull << ('\\' - 64))};
    return m->state[state].only_free ? machine_next(m, state, 'a') : alike_next(m, state, plain, true);
}

/* Whether the number of plain characters before a tail is irrelevant: the string has room for all tokens, and may end
 * already. */
static bool counts_nothing(const struct lexicon *l, const struct machine_state *s)
{
    return s->own_end && s->free_chars >= 0 && (size_t)s->free_chars >= l->most_within;
}

/* The tokens that are not plain, in a state where plain characters may come. Returns how many nodes were visited. */
static int set_others(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    bool same = counts_nothing(l, &m->state[state]);
    int n_visited = 0, at = state, chars = 0;
    for (int i = 0; i < l->n_tails; i++) {
        const struct lexicon_tails *t = &l->tails[i];
        for (int next; chars < t->chars && !same && at >= 0; chars++, at = next) {
            next = plain_next(m, at);
            if (next == MACHINE_UNKNOWN)
                return n_visited + walk(&l->other, -1, m, state, mask);
            same = next == at || (next >= 0 && counts_nothing(l, &m->state[next]));
        }
        if (at < 0)
            break;
        n_visited += walk(&t->tree, -1, m, at, mask);
    }
    return n_visited;
}

int lexicon_mask(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    memset(mask, 0, (size_t)l->n_words * sizeof *mask);
    if (state < 0)
        return 0;
    if (!is_free(l, m, state))
        return set_by_roots(l, m, state, mask);
    set_plain(l, mask, m->state[state].free_chars);
    return l->n_words / 64 + set_others(l, m, state, mask);
}

int lexicon_take(const struct lexicon *l, struct machine *m, int state, int32_t token)
{
    if (token < 0 || token >= l->n_tokens || lexicon_length(l, token) == 0)
        return MACHINE_DEAD;
    for (size_t i = l->first[token]; i < l->first[token + 1] && state >= 0; i++)
        state = machine_next(m, state, l->bytes[i]);
    return state;
}

bool lexicon_reaches(const struct lexicon *l, struct machine *m, int state, const char *text, size_t n)
{
    const struct lexicon_tree *tree = &l->all;
    struct level path[LEXICON_MAX_DEPTH + 1];
    int node = -1;
    for (size_t i = 0; i < n; i++)
        if ((node = lexicon_tree_child(tree, node, (unsigned char)text[i])) < 0)
            return false;
    path[0] = begin_level(tree, node, state, 0);
    for (int top = node < 0 ? -1 : 0; top >= 0;) {
        if (!find_edge(tree, &path[top], m, false)) {
            top--;
            continue;
        }
        int next = take_edge(tree, &path[top], m, &node);
        if (next >= 0 && tree->node[node].token >= 0)
            return true;
        if (next >= 0)
            path[++top] = begin_level(tree, node, next, 0);
    }
    return false;
}
