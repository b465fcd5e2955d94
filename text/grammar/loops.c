/* text/grammar/loops.c - see loops.h. */
#include "text/grammar/loops.h"

#include "text/grammar/lexicon_parts.h"

#include <stdlib.h>
#include <string.h>

static bool has(const uint64_t ascii[2], unsigned char byte)
{
    return byte < 0x80 && (ascii[byte / 64] >> byte % 64 & 1);
}

static void free_set(struct loop_set *set)
{
    if (set == NULL)
        return;
    free(set->inner);
    free(set->token);
    free(set->leaving);
    free(set);
}

/* A place on a path through the tree: between characters (n_more 0), or within one. */
struct spot {
    int16_t chars;             /* that have begun */
    uint8_t n_more, low, high; /* bytes that the last one still needs; the next one is in [low, high] */
};

enum way { INSIDE, LEAVES, NOWHERE };

static struct spot begin_wide(int chars, unsigned char byte)
{
    struct spot s = {(int16_t)(chars + 1), byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3, 0x80, 0xbf};
    if (byte == 0xe0 || byte == 0xf0)
        s.low = byte == 0xe0 ? 0xa0 : 0x90;
    if (byte == 0xed || byte == 0xf4)
        s.high = byte == 0xed ? 0x9f : 0x8f;
    return s;
}

/* The place after one more byte. */
static enum way go_on(const struct loop_set *set, struct spot at, bool first, unsigned char byte, struct spot *next)
{
    if (at.n_more > 0) {
        *next = (struct spot){at.chars, at.n_more - 1, 0x80, 0xbf};
        return byte >= at.low && byte <= at.high ? INSIDE : NOWHERE;
    }
    bool begins_wide = byte >= 0xc2 && byte <= 0xf4;
    *next = begins_wide ? begin_wide(at.chars, byte) : (struct spot){at.chars + 1, 0, 0, 0};
    if (set->wide && begins_wide)
        return INSIDE;
    if (first)
        return byte < 0x80 ? INSIDE : NOWHERE;
    return has(set->ascii, byte) ? INSIDE : LEAVES;
}

static uint32_t *inner_of(const struct loop_set *set, const struct lexicon *l, int i)
{
    return set->inner + (size_t)i * (size_t)l->n_words;
}

/* The tokens of a node: all with the same bytes. */
static void take_tokens(struct loop_set *set, const struct lexicon *l, int node, int chars, bool inner)
{
    uint32_t *bits = inner_of(set, l, chars <= LOOPS_LENGTHS ? chars - 1 : LOOPS_LENGTHS);
    for (int32_t token = l->all.node[node].token; token >= 0; token = l->same[token]) {
        set->token[set->n_tokens++] = (struct loop_token){token, chars};
        if (inner)
            lexicon_set_bit(bits, token);
        set->longest = chars > set->longest ? chars : set->longest;
    }
}

/* Turns bitmaps of tokens with exactly this many characters into bitmaps of at most this many. */
static void add_shorter(struct loop_set *set, const struct lexicon *l)
{
    for (size_t i = (size_t)l->n_words; i < (LOOPS_LENGTHS + 1) * (size_t)l->n_words; i++)
        set->inner[i] |= set->inner[i - (size_t)l->n_words];
}

/* Follows the tree as long as characters belong to the set. */
static void fill_set(struct loop_set *set, const struct lexicon *l)
{
    struct spot at[LEXICON_MAX_DEPTH + 1] = {{0}};
    uint8_t first = 0;
    bool inner = false;
    for (int i = 0; i < l->all.n;) {
        const struct lexicon_node *node = &l->all.node[i];
        if (node->depth == 0) {
            first = node->byte;
            inner = loops_has(set, first);
        }
        enum way way = go_on(set, at[node->depth], node->depth == 0, node->byte, &at[node->depth + 1]);
        if (way == LEAVES) {
            set->leaving[set->n_leaving++] = (struct loop_leaving){i, (uint16_t)at[node->depth].chars, first};
            set->leaving_begin[node->byte + 1]++;
        }
        int before = set->n_tokens;
        if (way == INSIDE && node->token >= 0)
            take_tokens(set, l, i, at[node->depth + 1].chars, inner);
        set->token_begin[first + 1] += set->n_tokens - before;
        i = way == INSIDE ? i + 1 : node->skip;
    }
    for (int byte = 0; byte < 256; byte++) {
        set->token_begin[byte + 1] += set->token_begin[byte];
        set->leaving_begin[byte + 1] += set->leaving_begin[byte];
    }
    add_shorter(set, l);
}

/* The room in which a set is found. */
static int make_room(struct loops *loops, const struct lexicon *l)
{
    if (loops->token == NULL)
        loops->token = malloc(((size_t)l->n_tokens + 1) * sizeof *loops->token);
    if (loops->leaving == NULL)
        loops->leaving = malloc(((size_t)l->all.n + 1) * sizeof *loops->leaving);
    return loops->token != NULL && loops->leaving != NULL ? 0 : -1;
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    if (to != NULL && bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

/* Sorts the paths that leave a set by the byte with which they do. */
static struct loop_leaving *sort_leaving(const struct loop_set *set, const struct lexicon *l)
{
    struct loop_leaving *sorted = malloc(((size_t)set->n_leaving + 1) * sizeof *sorted);
    int32_t at[256];
    memcpy(at, set->leaving_begin, sizeof at);
    for (int i = 0; i < set->n_leaving && sorted != NULL; i++)
        sorted[at[l->all.node[set->leaving[i].node].byte]++] = set->leaving[i];
    return sorted;
}

static struct loop_set *make_set(struct loops *loops, const struct lexicon *l, const struct machine_alike *alike)
{
    struct loop_set *set = make_room(loops, l) == 0 ? calloc(1, sizeof *set) : NULL;
    if (set == NULL)
        return NULL;
    memcpy(set->ascii, alike->ascii, sizeof set->ascii);
    set->wide = alike->wide;
    set->inner = calloc((LOOPS_LENGTHS + 1) * (size_t)l->n_words, sizeof *set->inner);
    set->token = loops->token;
    set->leaving = loops->leaving;
    if (set->inner != NULL)
        fill_set(set, l);
    set->token = copy(loops->token, (size_t)set->n_tokens * sizeof *set->token);
    set->leaving = sort_leaving(set, l);
    if (set->inner != NULL && set->token != NULL && set->leaving != NULL)
        return set;
    free_set(set);
    return NULL;
}

/* The set of these characters, made now if it is not kept. NULL: no memory. */
static const struct loop_set *get_set(struct loops *loops, const struct lexicon *l, const struct machine_alike *alike)
{
    int oldest = 0;
    loops->clock++;
    for (int i = 0; i < LOOPS_KEPT; i++) {
        struct loop_set *set = loops->set[i];
        if (set != NULL && memcmp(set->ascii, alike->ascii, sizeof set->ascii) == 0 && set->wide == alike->wide) {
            set->used = loops->clock;
            return set;
        }
        if (loops->set[oldest] != NULL && (set == NULL || set->used < loops->set[oldest]->used))
            oldest = i;
    }
    free_set(loops->set[oldest]);
    loops->set[oldest] = make_set(loops, l, alike);
    if (loops->set[oldest] != NULL)
        loops->set[oldest]->used = loops->clock;
    return loops->set[oldest];
}

/* Needs state[0] and state[1]. -1: somewhere the characters of the set lead to different states. */
static int go_along(struct machine *m, struct loop_chain *c)
{
    while (c->n <= c->set->longest && !c->endless) {
        int last = c->state[c->n - 1], next = alike_next(m, last, c->set->ascii, c->set->wide);
        if (next == MACHINE_UNKNOWN || (next >= 0 && next != last && c->n == LOOPS_MAX_CHAIN))
            return -1;
        if (next < 0)
            break;
        c->endless = next == last;
        if (!c->endless)
            c->state[c->n++] = next;
    }
    return 0;
}

void loops_chain(struct loops *loops, const struct lexicon *l, struct machine *m, int state, struct loop_chain *chain)
{
    const struct machine_alike alike = *alike_find(m, state);
    chain->set = NULL;
    chain->n = 1;
    chain->endless = false;
    chain->state[0] = state;
    if (alike.to < 0 || alike_next(m, alike.to, alike.ascii, alike.wide) < 0)
        return;
    chain->set = get_set(loops, l, &alike);
    if (chain->set != NULL && go_along(m, chain) != 0)
        chain->set = NULL;
}

int loops_state(const struct loop_chain *chain, int chars)
{
    if (chars < chain->n)
        return chain->state[chars];
    return chain->endless ? chain->state[chain->n - 1] : MACHINE_DEAD;
}

bool loops_has(const struct loop_set *set, unsigned char byte)
{
    return byte < 0x80 ? has(set->ascii, byte) : set->wide;
}

void loops_set_inner(const struct loop_chain *chain, const struct lexicon *l, uint32_t *mask)
{
    const struct loop_set *set = chain->set;
    bool all = chain->endless || chain->n >= set->longest;
    int which = all ? LOOPS_LENGTHS : (chain->n < LOOPS_LENGTHS ? chain->n : LOOPS_LENGTHS) - 1;
    const uint32_t *bits = inner_of(set, l, which);
    for (int i = 0; i < l->n_words; i++)
        mask[i] |= bits[i];
    bits = inner_of(set, l, LOOPS_LENGTHS);
    for (int i = 0; i < set->n_tokens && !all && chain->n > LOOPS_LENGTHS; i++)
        if (set->token[i].chars > LOOPS_LENGTHS && set->token[i].chars <= chain->n &&
            (bits[set->token[i].token / 32] >> set->token[i].token % 32 & 1))
            lexicon_set_bit(mask, set->token[i].token);
}

void loops_close(struct loops *loops)
{
    for (int i = 0; loops != NULL && i < LOOPS_KEPT; i++)
        free_set(loops->set[i]);
    if (loops != NULL) {
        free(loops->token);
        free(loops->leaving);
    }
    free(loops);
}
