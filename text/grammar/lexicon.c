/* text/grammar/lexicon.c - see lexicon.h. */
#include "text/grammar/lexicon.h"

#include "base/text_buffer.h"
#include "base/utf8.h"
#include "text/grammar/loops.h"

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

static int compare_keys(const void *left, const void *right)
{
    const struct sort_key *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    if (order == 0)
        order = (a->n > b->n) - (a->n < b->n);
    return order != 0 ? order : (a->token > b->token) - (a->token < b->token);
}

/* Characters of a plain token; 0: it is not plain. */
static int plain_chars(const unsigned char *bytes, size_t n)
{
    int chars = 0;
    for (size_t at = 0; at < n; chars++) {
        int32_t c;
        int bad, size = utf8_get((const char *)bytes + at, n - at, &c, &bad);
        if (size == 0 || c < 0x20 || c == '"' || c == '\\')
            return 0;
        at += (size_t)size;
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
        tree->node[tree->n++] = (struct lexicon_node){-1, 0, (uint16_t)d, key->bytes[d]};
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

/* The tree of sorted keys; tokens of the same bytes are chained behind the first one. */
static int build_tree(struct lexicon *l, struct lexicon_tree *tree, const struct sort_key *key, int n, struct err *e)
{
    int open[MAX_DEPTH];
    size_t n_nodes = 1;
    const struct sort_key *last = NULL;
    for (int i = 0; i < n; i++)
        n_nodes += key[i].n - (i > 0 ? shared_bytes(&key[i - 1], &key[i]) : 0);
    tree->node = err_calloc(e, n_nodes, sizeof *tree->node, "vocabulary of grammars");
    if (tree->node == NULL)
        return -1;
    for (int i = 0; i < n; i++) {
        size_t shared = last != NULL ? shared_bytes(last, &key[i]) : 0;
        if (last != NULL && shared == key[i].n && shared == last->n) {
            l->same[key[i - 1].token] = key[i].token;
            continue;
        }
        add_key(tree, &key[i], shared, open, last != NULL ? last->n : 0);
        last = &key[i];
    }
    for (size_t d = 0; last != NULL && d < last->n; d++)
        tree->node[open[d]].skip = tree->n;
    return 0;
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
    int end = node < 0 ? tree->n : tree->node[node].skip, i = node + 1;
    while (i < end && tree->node[i].byte != byte)
        i = tree->node[i].skip;
    return i < end ? i : -1;
}

/* The edges that lead from the tree of all tokens to the plain ones and to the others. */
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
            int chars = plain_chars(l->bytes + l->first[token], length(l, token));
            if (chars > 0)
                l->in_order[n++] = (struct lexicon_plain){token, chars};
        }
    }
    l->plain_before[l->all.n] = n;
    return 0;
}

/* Both trees and the plain ones, of keys that are sorted; keeps the others in their place at the front. */
static int sort_out(struct lexicon *l, struct sort_key *key, int n, struct err *e)
{
    if (build_tree(l, &l->all, key, n, e) != 0)
        return -1;
    int n_other = 0;
    for (int i = 0; i < n; i++) {
        int chars = plain_chars(key[i].bytes, key[i].n);
        if (chars > 0)
            l->plain[l->n_plain++] = (struct lexicon_plain){key[i].token, chars};
        else
            key[n_other++] = key[i];
    }
    return build_tree(l, &l->other, key, n_other, e) != 0 || link_trees(l, e) != 0 ? -1 : list_plain(l, e);
}

int lexicon_open(struct lexicon *l, const struct tokenizer *t, int32_t n_tokens, struct err *e)
{
    *l = (struct lexicon){.tokenizer = t, .n_tokens = n_tokens, .n_words = (n_tokens + 31) / 32};
    struct sort_key *key = err_calloc(e, (size_t)n_tokens, sizeof *key, "vocabulary of grammars");
    l->same = err_calloc(e, (size_t)n_tokens, sizeof *l->same, "vocabulary of grammars");
    l->plain = err_calloc(e, (size_t)n_tokens, sizeof *l->plain, "vocabulary of grammars");
    int n = 0, rc = -1;
    l->loops = err_calloc(e, 1, sizeof *l->loops, "vocabulary of grammars");
    if (l->loops != NULL && key != NULL && l->same != NULL && l->plain != NULL && read_tokens(l, t, e) == 0) {
        memset(l->same, 0xff, (size_t)n_tokens * sizeof *l->same);
        for (int32_t i = 0; i < n_tokens; i++)
            if (length(l, i) > 0)
                key[n++] = (struct sort_key){l->bytes + l->first[i], length(l, i), i};
        qsort(key, (size_t)n, sizeof *key, compare_keys);
        rc = sort_out(l, key, n, e);
    }
    free(key);
    return rc;
}

void lexicon_close(struct lexicon *l)
{
    free(l->same);
    free(l->all.node);
    free(l->other.node);
    free(l->plain);
    free(l->other_of);
    free(l->plain_before);
    free(l->in_order);
    loops_close(l->loops);
    free(l->up_to);
    free(l->bytes);
    free(l->first);
    *l = (struct lexicon){0};
}

/* ---- masks ---- */

static void set_all(const struct lexicon *l, uint32_t *mask, int32_t token)
{
    for (; token >= 0; token = l->same[token])
        set_bit(mask, token);
}

/* Along all paths of tree->node[begin, end), which lie behind a node of this depth, that do not end dead. Returns how
 * many nodes were visited. */
static int walk(const struct lexicon *l, const struct lexicon_tree *tree, int begin, int end, int depth,
                struct machine *m, int state, uint32_t *mask)
{
    int at[MAX_DEPTH + 1], n_visited = 0;
    at[depth] = state;
    for (int i = begin; i < end; n_visited++) {
        const struct lexicon_node *node = &tree->node[i];
        int next = machine_next(m, at[node->depth], node->byte);
        if (next < 0) {
            i = node->skip;
            continue;
        }
        at[node->depth + 1] = next;
        if (node->token >= 0)
            set_all(l, mask, node->token);
        i++;
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
    if (other < 0)
        return 1;
    const struct lexicon_node *first = &l->other.node[other];
    return 1 + walk(l, &l->other, other + 1, first->skip, first->depth + 1, m, state, mask);
}

/* Along all paths of all.node[begin, end), whose first nodes have this depth and lie behind so many characters, up to
 * where plain characters may come. */
static int walk_to_free(const struct lexicon *l, int begin, int end, int depth, int n_chars, struct machine *m,
                        int state, uint32_t *mask)
{
    int at[MAX_DEPTH + 1], chars[MAX_DEPTH + 1], n_visited = 0;
    at[depth] = state;
    chars[depth] = n_chars;
    for (int i = begin; i < end; n_visited++) {
        const struct lexicon_node *node = &l->all.node[i];
        int next = machine_next(m, at[node->depth], node->byte), behind = node->depth + 1;
        at[behind] = next;
        chars[behind] = chars[node->depth] + ((node->byte & 0xc0) != 0x80);
        if (next >= 0 && node->token >= 0)
            set_all(l, mask, node->token);
        if (next >= 0 && !is_free(l, m, next)) {
            i++;
            continue;
        }
        if (next >= 0) {
            set_behind(l, mask, i, chars[behind], m->state[next].free_chars);
            n_visited += walk_others(l, i, m, next, mask);
        }
        i = node->skip;
    }
    return n_visited;
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
        int state = loops_state(c, at->chars - 1), node = at->node;
        if (state >= 0 && m->state[state].live[at->byte / 64] >> at->byte % 64 & 1)
            n_visited +=
                walk_to_free(l, node, l->all.node[node].skip, l->all.node[node].depth, at->chars, m, state, mask);
    }
    return n_visited;
}

/* May all plain tokens that begin with the byte of a node at the root come, if the machine is in this state behind
 * it? */
static bool frees_all(const struct lexicon *l, struct machine *m, int state)
{
    return state >= 0 && (m->state[state].free_chars >= l->longest || alike_free(m, state));
}

/* All plain tokens to the mask, where that is less work than setting those that may come one by one; then the others
 * are taken out again. */
static bool set_most(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    const uint64_t *live = m->state[state].live;
    int n_free = 0;
    if (__builtin_popcountll(live[0]) + __builtin_popcountll(live[1]) < FEW_BYTES)
        return false;
    for (int i = 0, end; i < l->all.n; i = end) {
        end = l->all.node[i].skip;
        if (frees_all(l, m, machine_next(m, state, l->all.node[i].byte)))
            n_free += l->plain_before[end] - l->plain_before[i];
    }
    if (2 * n_free <= l->n_plain)
        return false;
    set_plain(l, mask, l->longest);
    for (int i = 0, end; i < l->all.n; i = end) {
        end = l->all.node[i].skip;
        for (int k = l->plain_before[i];
             k < l->plain_before[end] && !frees_all(l, m, machine_next(m, state, l->all.node[i].byte)); k++)
            clear_bit(mask, l->in_order[k].token);
    }
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

/* The tokens that begin with the byte of a node at the root. most: those that frees_all tells of are in the mask, and
 * own: so are those that stay in `state` all along. */
static int set_root(const struct lexicon *l, int node, bool most, bool own, struct loop_chain *c, struct machine *m,
                    int state, uint32_t *mask)
{
    unsigned char byte = l->all.node[node].byte;
    if (most && frees_all(l, m, machine_next(m, state, byte))) {
        set_all(l, mask, l->all.node[node].token);
        return walk_others(l, node, m, machine_next(m, state, byte), mask);
    }
    int next = begin_chain(l, node, c, m, state);
    if (next >= 0)
        return set_along(l, c, byte, own && next == state, m, mask);
    return walk_to_free(l, node, l->all.node[node].skip, 0, 0, m, state, mask);
}

static int set_by_roots(const struct lexicon *l, struct machine *m, int state, uint32_t *mask)
{
    struct loop_chain c = {0};
    bool most = set_most(l, m, state, mask);
    int n_visited = 0;
    bool own = alike_find(m, state)->to == state;
    if (own)
        loops_chain(l->loops, l, m, state, &c);
    for (int i = 0; own && c.set != NULL && i < l->n_words; i++)
        mask[i] |= c.set->inner[i];
    const struct machine_state s = m->state[state];
    for (int i = 0; i < l->all.n; i = l->all.node[i].skip)
        if (s.live[l->all.node[i].byte / 64] >> l->all.node[i].byte % 64 & 1)
            n_visited += set_root(l, i, most, own, &c, m, state, mask);
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
    return walk(l, &l->other, 0, l->other.n, 0, m, state, mask);
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
    int node = -1, at[MAX_DEPTH + 1];
    for (size_t i = 0; i < n; i++)
        if ((node = child(tree, node, (unsigned char)text[i])) < 0)
            return false;
    if (n > MAX_DEPTH || n == 0)
        return false;
    at[n] = state;
    for (int i = node + 1; i < tree->node[node].skip;) {
        const struct lexicon_node *further = &tree->node[i];
        at[further->depth + 1] = machine_next(m, at[further->depth], further->byte);
        if (at[further->depth + 1] >= 0 && further->token >= 0)
            return true;
        i = at[further->depth + 1] >= 0 ? i + 1 : further->skip;
    }
    return false;
}
