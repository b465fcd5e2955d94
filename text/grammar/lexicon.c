/* text/grammar/lexicon.c - see lexicon.h. */
#include "text/grammar/lexicon.h"

#include "base/text_buffer.h"
#include "base/utf8.h"
#include "text/grammar/loops.h"
#include "text/grammar/walks.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH LEXICON_MAX_DEPTH
#define FEW_BYTES 8 /* of ASCII: too few to look for more than the paths that they begin */

static inline void set_bit(uint32_t *mask, int32_t token)
{
    mask[token / 32] |= 1u << token % 32;
}

static inline void clear_bit(uint32_t *mask, int32_t token)
{
    mask[token / 32] &= ~(1u << token % 32);
}

static size_t length(const struct lexicon *l, int32_t token)
{
    return l->first[token + 1] - l->first[token];
}

/* ---- opening ---- */

/* A special token is its text between bytes that no other token has: those that have it are in no text. */
static int read_special(const struct tokenizer *t, int32_t id, struct text_buffer *all, struct err *e)
{
    static const char mark[] = {(char)LEXICON_SPECIAL};
    size_t bytes = 0;
    const char *text = tokenizer_token_text(t, id, &bytes);
    if (text == NULL || !tokenizer_is_special(t, id))
        return 0;
    (void)text_append(all, mark, 1, e);
    (void)text_append(all, text, bytes, e);
    return text_append(all, mark, 1, e);
}

/* The bytes of every token; none for ids without a token. */
static int read_tokens(struct lexicon *l, const struct tokenizer *t, struct err *e)
{
    struct text_buffer all = {0};
    l->first = err_calloc(e, (size_t)l->n_tokens + 1, sizeof *l->first, "vocabulary of grammars");
    for (int32_t i = 0; l->first != NULL && i < l->n_tokens; i++) {
        size_t begin = all.bytes;
        if (tokenizer_token_bytes(t, i, &all, e) != 0)
            break;
        if (all.bytes > begin && memchr(all.data + begin, LEXICON_SPECIAL, all.bytes - begin) != NULL)
            all.bytes = begin;
        if (read_special(t, i, &all, e) != 0)
            break;
        if (all.bytes - begin > MAX_DEPTH)
            all.bytes = begin;
        l->first[i + 1] = all.bytes;
    }
    l->bytes = (unsigned char *)all.data;
    return e->code == ERR_NONE ? 0 : -1;
}

struct sort_key {
    const unsigned char *bytes;
    size_t n;
    int32_t token;
};

struct tail_key {
    struct sort_key key; /* of what is not plain */
    int chars;           /* plain ones before it */
};

static int compare_keys(const void *left, const void *right)
{
    const struct sort_key *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order == 0)
        order = (a->n > b->n) - (a->n < b->n);
    return order != 0 ? order : (a->token > b->token) - (a->token < b->token);
}

/* The plain characters that the bytes begin with, and how many bytes these are: all of them if the token is plain. */
static int plain_chars(const unsigned char *bytes, size_t n, size_t *plain)
{
    int chars = 0, size, bad;
    for (*plain = 0; *plain < n; chars++, *plain += (size_t)size) {
        int32_t c = 0;
        size = utf8_get((const char *)bytes + *plain, n - *plain, &c, &bad);
        if (size == 0 && bad < 0)
            size = (int)(n - *plain); /* a character that begins */
        else if (size == 0 || c < 0x20 || c == '"' || c == '\\')
            break;
    }
    return chars;
}

/* Nodes for the bytes of a key that the one before it does not begin with. open: the node of each depth of the path
 * that is still open. */
static void add_key(struct lexicon_tree *tree, const struct sort_key *key, size_t shared, int *open, size_t n_open)
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

static size_t shared_bytes(const struct sort_key *a, const struct sort_key *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

static int link_edges(struct lexicon_tree *tree, struct err *e)
{
    int32_t at[MAX_DEPTH + 1] = {0}; /* of the path: 0, or the node's number + 1 */
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

static void free_tree(struct lexicon_tree *tree)
{
    free(tree->node);
    free(tree->edge);
    free(tree->to);
    free(tree->byte);
}

/* The tree of sorted keys; tokens of the same bytes are chained behind the first one. same: the tree's. */
static int build_tree(struct lexicon_tree *tree, int32_t *same, const struct sort_key *key, int n, struct err *e)
{
    int open[MAX_DEPTH];
    size_t n_nodes = 1;
    const struct sort_key *last = NULL;
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

static int compare_plain(const void *left, const void *right)
{
    const struct lexicon_plain *a = left, *b = right;
    if (a->chars != b->chars)
        return a->chars < b->chars ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* The bitmaps of plain tokens by length. */
static int list_plain(struct lexicon *l, struct err *e)
{
    l->up_to = err_calloc(e, (LEXICON_LENGTHS + 1) * (size_t)l->n_words, sizeof *l->up_to, "vocabulary of grammars");
    if (l->up_to == NULL)
        return -1;
    qsort(l->plain, (size_t)l->n_plain, sizeof *l->plain, compare_plain);
    for (int i = 0; i < l->n_plain; i++) {
        int from = l->plain[i].chars <= LEXICON_LENGTHS ? l->plain[i].chars - 1 : LEXICON_LENGTHS;
        for (int k = from; k <= LEXICON_LENGTHS; k++)
            set_bit(l->up_to + (size_t)k * (size_t)l->n_words, l->plain[i].token);
    }
    l->longest = l->n_plain > 0 ? l->plain[l->n_plain - 1].chars : 0;
    return 0;
}

/* The node for a byte behind a node (-1: the root); -1: there is none. */
static int child(const struct lexicon_tree *tree, int node, unsigned char byte)
{
    const uint8_t *first = tree->byte + tree->edge[node + 1];
    const uint8_t *found = memchr(first, byte, (size_t)(tree->edge[node + 2] - tree->edge[node + 1]));
    return found != NULL ? tree->to[found - tree->byte] : -1;
}

/* The way from the tree of all tokens to the plain ones and to the others. */
static int link_trees(struct lexicon *l, struct err *e)
{
    int at[MAX_DEPTH + 1] = {-1}, n = 0;
    l->other_of = err_calloc(e, (size_t)l->all.n + 1, sizeof *l->other_of, "vocabulary of grammars");
    l->plain_before = err_calloc(e, (size_t)l->all.n + 1, sizeof *l->plain_before, "vocabulary of grammars");
    l->in_order = err_calloc(e, (size_t)l->n_plain + 1, sizeof *l->in_order, "vocabulary of grammars");
    if (l->in_order == NULL || l->other_of == NULL || l->plain_before == NULL)
        return -1;
    memset(l->other_of, 0xff, (size_t)l->all.n * sizeof *l->other_of);
    for (int i = 0; i < l->other.n; i++) {
        const struct lexicon_node *node = &l->other.node[i];
        at[node->depth + 1] = child(&l->all, at[node->depth], node->byte);
        l->other_of[at[node->depth + 1]] = i;
    }
    for (int i = 0; i < l->all.n; i++) {
        l->plain_before[i] = n;
        for (int32_t token = l->all.node[i].token; token >= 0; token = l->same[token]) {
            size_t plain;
            int chars = plain_chars(l->bytes + l->first[token], length(l, token), &plain);
            if (plain == length(l, token))
                l->in_order[n++] = (struct lexicon_plain){token, chars};
        }
    }
    l->plain_before[l->all.n] = n;
    return 0;
}

static int compare_tails(const void *left, const void *right)
{
    const struct tail_key *a = left, *b = right;
    return a->chars != b->chars ? (a->chars > b->chars) - (a->chars < b->chars) : compare_keys(&a->key, &b->key);
}

/* A tree of tails for each number of characters. key: room for n. */
static int build_tails(struct lexicon *l, struct tail_key *tail, struct sort_key *key, int n, struct err *e)
{
    int n_lengths = 0;
    qsort(tail, (size_t)n, sizeof *tail, compare_tails);
    for (int i = 0; i < n; i++) {
        key[i] = tail[i].key;
        n_lengths += i == 0 || tail[i].chars != tail[i - 1].chars;
    }
    l->tails = err_calloc(e, (size_t)n_lengths + 1, sizeof *l->tails, "vocabulary of grammars");
    if (l->tails == NULL)
        return -1;
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && tail[end].chars == tail[i].chars;)
            end++;
        struct lexicon_tails *t = &l->tails[l->n_tails++];
        t->chars = tail[i].chars;
        if (build_tree(&t->tree, l->same_tail, key + i, end - i, e) != 0)
            return -1;
    }
    return 0;
}

/* The plain ones, and the others: both in `key`, which loses the former, and by their tails. */
static int sort_out(struct lexicon *l, struct sort_key *key, int n, struct tail_key *tail, struct err *e)
{
    int n_other = 0;
    if (build_tree(&l->all, l->same, key, n, e) != 0)
        return -1;
    for (int i = 0; i < n; i++) {
        size_t plain;
        int chars = plain_chars(key[i].bytes, key[i].n, &plain);
        l->most_bytes = key[i].n > l->most_bytes ? key[i].n : l->most_bytes;
        if (plain == key[i].n) {
            l->plain[l->n_plain++] = (struct lexicon_plain){key[i].token, chars};
            continue;
        }
        tail[n_other] = (struct tail_key){{key[i].bytes + plain, key[i].n - plain, key[i].token}, chars};
        key[n_other++] = key[i];
    }
    return build_tree(&l->other, l->same, key, n_other, e) != 0 || link_trees(l, e) != 0 || list_plain(l, e) != 0
               ? -1
               : build_tails(l, tail, key, n_other, e);
}

int lexicon_open(struct lexicon *l, const struct tokenizer *t, int32_t n_tokens, struct err *e)
{
    *l = (struct lexicon){.tokenizer = t, .n_tokens = n_tokens, .n_words = (n_tokens + 31) / 32};
    size_t n_all = (size_t)n_tokens;
    struct sort_key *key = err_calloc(e, n_all, sizeof *key, "vocabulary of grammars");
    struct tail_key *tail = err_calloc(e, n_all, sizeof *tail, "vocabulary of grammars");
    l->same = err_calloc(e, n_all, sizeof *l->same, "vocabulary of grammars");
    l->same_tail = err_calloc(e, n_all, sizeof *l->same_tail, "vocabulary of grammars");
    l->plain = err_calloc(e, n_all, sizeof *l->plain, "vocabulary of grammars");
    l->loops = err_calloc(e, 1, sizeof *l->loops, "vocabulary of grammars");
    l->walks = err_calloc(e, 1, sizeof *l->walks, "vocabulary of grammars");
    int n = 0, rc = -1;
    if (e->code == ERR_NONE && read_tokens(l, t, e) == 0) {
        memset(l->same, 0xff, n_all * sizeof *l->same);
        memset(l->same_tail, 0xff, n_all * sizeof *l->same_tail);
        for (int32_t i = 0; i < n_tokens; i++)
            if (length(l, i) > 0)
                key[n++] = (struct sort_key){l->bytes + l->first[i], length(l, i), i};
        qsort(key, (size_t)n, sizeof *key, compare_keys);
        rc = sort_out(l, key, n, tail, e);
    }
    free(tail);
    free(key);
    return rc;
}

void lexicon_close(struct lexicon *l)
{
    for (int i = 0; i < l->n_tails; i++)
        free_tree(&l->tails[i].tree);
    free(l->tails);
    free(l->same_tail);
    free(l->same);
    free_tree(&l->all);
    free_tree(&l->other);
    free(l->plain);
    free(l->other_of);
    free(l->plain_before);
    free(l->in_order);
    loops_close(l->loops);
    walks_close(l->walks);
    free(l->up_to);
    free(l->bytes);
    free(l->first);
    *l = (struct lexicon){0};
}

/* ---- masks ---- */

/* The tokens of a node. */
static inline void set_tokens(const struct lexicon_tree *tree, const struct lexicon_node *node, uint32_t *mask)
{
    if (node->token >= 0)
        set_bit(mask, node->token);
    for (int32_t token = node->token; node->shared && token >= 0; token = tree->same[token])
        set_bit(mask, token);
}

/* A node of a path whose edges are being followed. */
struct level {
    int32_t edge, end;
    int state, chars;
};

static inline struct level begin_level(const struct lexicon_tree *tree, int node, int state, int chars)
{
    return (struct level){tree->edge[node + 1], tree->edge[node + 2], state, chars};
}

/* To the next edge whose byte may come, or of any byte. False: there is none. */
static inline bool find_edge(const struct lexicon_tree *tree, struct level *l, const struct machine *m, bool any)
{
    while (l->edge < l->end && !any && !machine_may(m, l->state, tree->byte[l->edge]))
        l->edge++;
    return l->edge < l->end;
}

/* The state behind this edge, which leads to *node. */
static inline int take_edge(const struct lexicon_tree *tree, struct level *l, struct machine *m, int *node)
{
    unsigned char byte = tree->byte[l->edge];
    *node = tree->to[l->edge++];
    return machine_next(m, l->state, byte);
}

/* Along all paths behind a node (-1: the root) that do not end dead. Returns how many nodes were visited. */
static int walk(const struct lexicon_tree *tree, int node, struct machine *m, int state, uint32_t *mask)
{
    struct level path[MAX_DEPTH + 1];
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

/* Plain tokens of at most so many characters. */
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
            set_bit(mask, l->plain[i].token);
}

/* In this state all plain characters may come, up to a number that is known and fits all plain tokens, or belongs to
 * all that may come. */
static bool is_free(const struct lexicon *l, struct machine *m, int state)
{
    const struct machine_state *s = &m->state[state];
    return s->free_chars >= l->longest || (s->free_chars >= 0 && s->only_free) || alike_free(m, state);
}

/* The plain tokens behind a node whose bytes are so many characters, with at most free_chars more. */
static void set_behind(const struct lexicon *l, uint32_t *mask, int node, int chars, int free_chars)
{
    bool all = free_chars >= l->longest;
    for (int i = l->plain_before[node]; i < l->plain_before[l->all.node[node].skip]; i++)
        if (all || l->in_order[i].chars - chars <= free_chars)
            set_bit(mask, l->in_order[i].token);
}

/* The tokens that are not plain behind a node. */
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
        clear_bit(mask, first[i].token);
}

/* The tokens of a node that is come to in this state behind so many characters. Where plain characters may come, those
 * behind it, too: false then. full: all plain ones behind it are in the mask already. */
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

/* Along all paths over a node of l->all, before which are so many characters, up to where plain characters may come.
 * full: all plain tokens that begin with the node's bytes are in the mask; those on paths that end dead are taken
 * out. */
static int walk_to_free(const struct lexicon *l, int node, int chars, bool full, struct machine *m, int state,
                        uint32_t *mask)
{
    struct level path[MAX_DEPTH + 1];
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

/* Tokens that begin with a byte: those that stay within the set of the chain, which begins behind their first
 * character, and what follows where they leave it. inner: those that stay are in the mask already. */
static int set_along(const struct lexicon *l, const struct loop_chain *c, unsigned char byte, bool inner,
                     struct machine *m, uint32_t *mask)
{
    const struct loop_set *set = c->set;
    int n_visited = set->leaving_begin[byte + 1] - set->leaving_begin[byte];
    for (int i = set->token_begin[byte]; i < set->token_begin[byte + 1] && !inner; i++)
        if (loops_state(c, set->token[i].chars - 1) >= 0)
            set_bit(mask, set->token[i].token);
    for (int i = set->leaving_begin[byte]; i < set->leaving_begin[byte + 1]; i++) {
        const struct loop_leaving *at = &set->leaving[i];
        int state = loops_state(c, at->chars - 1);
        if (state >= 0 && machine_may(m, state, at->byte))
            n_visited += walk_to_free(l, at->node, at->chars, false, m, state, mask);
    }
    return n_visited;
}

/* May all plain tokens that begin with the byte of a node at the root come, if the machine is in this state behind
 * it? */
static bool frees_all(const struct lexicon *l, struct machine *m, int state)
{
    return state >= 0 && (m->state[state].free_chars >= l->longest || alike_free(m, state));
}

/* All plain tokens to the mask, where that is less work than setting those that may come one by one. */
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

/* The state behind the first character of the tokens of a node at the root, and the chain that begins there, if a chain
 * knows all that follows. MACHINE_DEAD: it does not. */
static int begin_chain(const struct lexicon *l, int node, struct loop_chain *c, struct machine *m, int state)
{
    enum { MANY = 64 };
    unsigned char byte = l->all.node[node].byte;
    int next = byte < 0x80 ? machine_next(m, state, byte) : alike_find(m, state)->wide ? m->state[state].alike.to : -1;
    if (next < 0 || l->all.node[node].skip - node <= MANY || is_free(l, m, next))
        return MACHINE_DEAD;
    int to = alike_find(m, next)->to;
    if (to < 0 || is_free(l, m, to))
        return MACHINE_DEAD;
    if (c->n == 0 || c->state[0] != next)
        loops_chain(l->loops, l, m, next, c);
    return c->set != NULL && (byte < 0x80 || c->set->wide) ? next : MACHINE_DEAD;
}

/* The tokens that begin with the byte of a node at the root. full: all plain ones are in the mask; own: so are those
 * that stay in `state` all along. */
static int set_root(const struct lexicon *l, int node, bool full, bool own, struct loop_chain *c, struct machine *m,
                    int state, uint32_t *mask)
{
    unsigned char byte = l->all.node[node].byte;
    if (full && frees_all(l, m, machine_next(m, state, byte))) {
        set_tokens(&l->all, &l->all.node[node], mask);
        return walk_others(l, node, m, machine_next(m, state, byte), mask);
    }
    int next = begin_chain(l, node, c, m, state);
    if (next < 0)
        return walk_to_free(l, node, 0, full, m, state, mask);
    if (full)
        clear_plain(l, mask, node);
    return set_along(l, c, byte, own && next == state && !full, m, mask);
}

static int set_by_roots(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    struct loop_chain c = {0};
    bool full = set_most(l, m, state, mask), own = alike_find(m, state)->to == state;
    int n_visited = 0;
    if (own)
        loops_chain(l->loops, l, m, state, &c);
    for (int i = 0; own && !full && c.set != NULL && i < l->n_words; i++)
        mask[i] |= c.set->inner[i];
    for (int edge = 0; edge < l->all.edge[1]; edge++)
        if (full || machine_may(m, state, l->all.byte[edge]))
            n_visited += set_root(l, l->all.to[edge], full, own, &c, m, state, mask);
    return n_visited;
}

/* The state behind any plain character in a state where plain ones may come. MACHINE_DEAD: none may; MACHINE_UNKNOWN:
 * they lead to different states. */
static int plain_next(struct machine *m, int state)
{
    static const uint64_t plain[2] = {~0ull << 32 & ~(1ull << '"'), ~(1ull << ('\\' - 64))};
    return m->state[state].only_free ? machine_next(m, state, 'a') : alike_next(m, state, plain, true);
}

/* Whether it does not matter how many plain characters come before a tail: the string has room for all tokens, and may
 * end already. */
static bool counts_nothing(const struct lexicon *l, const struct machine_state *s)
{
    return s->own_end && s->free_chars >= 0 && (size_t)s->free_chars >= l->most_bytes;
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
            same = next == at;
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
    if (token < 0 || token >= l->n_tokens || length(l, token) == 0)
        return MACHINE_DEAD;
    for (size_t i = l->first[token]; i < l->first[token + 1] && state >= 0; i++)
        state = machine_next(m, state, l->bytes[i]);
    return state;
}

/* ---- texts ---- */

const unsigned char *lexicon_bytes(const struct lexicon *l, int32_t token, size_t *n)
{
    *n = token >= 0 && token < l->n_tokens ? length(l, token) : 0;
    return *n > 0 ? l->bytes + l->first[token] : NULL;
}

int32_t lexicon_longest(const struct lexicon *l, const char *text, size_t n, size_t *bytes)
{
    int32_t token = -1;
    int node = -1;
    *bytes = 0;
    for (size_t i = 0; i < n && (node = child(&l->all, node, (unsigned char)text[i])) >= 0; i++)
        if (l->all.node[node].token >= 0) {
            token = l->all.node[node].token;
            *bytes = i + 1;
        }
    return token;
}

bool lexicon_reaches(const struct lexicon *l, struct machine *m, int state, const char *text, size_t n)
{
    const struct lexicon_tree *tree = &l->all;
    struct level path[MAX_DEPTH + 1];
    int node = -1;
    for (size_t i = 0; i < n; i++)
        if ((node = child(tree, node, (unsigned char)text[i])) < 0)
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
