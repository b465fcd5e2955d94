/* text/grammar/alike.c - see alike.h. */
#include "text/grammar/alike.h"

#define FEW_BYTES   8  /* ASCII characters: fewer are not worth more than following their paths */
#define MAX_CLASSES 16 /* classes of ASCII bytes with the same successor; further ones are ignored */
#define MAX_CLOSED  6  /* states among which plain text stays */

/* Bytes that a character beyond ASCII may have in UTF-8. */
static const struct wide {
    uint8_t first_low, first_high, second_low, second_high, n_more;
} wides[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2}, {0xe1, 0xec, 0x80, 0xbf, 2},
             {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
             {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};

struct visitor {
    bool (*visit)(struct visitor *v, int state);
    struct machine *m;
    int to;                   /* the state that is expected */
    int state[MAX_CLOSED], n; /* those that were found */
};

/* Whether bytes of [low, high], then n_more of continuation, the first of them of [second_low, second_high], all lead
 * to states that the visitor likes. */
static bool visit_bytes(struct visitor *v, int state, int low, int high, const struct wide *w, int n_more)
{
    int before = MACHINE_UNKNOWN;
    for (int byte = low; byte <= high; byte++) {
        int next = machine_next(v->m, state, (unsigned char)byte);
        if (next < 0)
            return false;
        if (next == before)
            continue;
        before = next;
        bool first = n_more == w->n_more;
        if (n_more == 0
                ? !v->visit(v, next)
                : !visit_bytes(v, next, first ? w->second_low : 0x80, first ? w->second_high : 0xbf, w, n_more - 1))
            return false;
    }
    return true;
}

static bool visit_wide(struct visitor *v, int state)
{
    for (size_t i = 0; i < sizeof wides / sizeof *wides; i++)
        if (!visit_bytes(v, state, wides[i].first_low, wides[i].first_high, &wides[i], wides[i].n_more))
            return false;
    return true;
}

/* Checks that every byte that begins a character beyond ASCII may come. */
static bool begins_wide(const struct machine_state *s)
{
    const uint64_t all = UINT64_MAX >> 11 & ~3ull; /* 0xc2 to 0xf4 */
    return (s->live[3] & all) == all;
}

static bool is_expected(struct visitor *v, int state)
{
    return state == v->to;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
}

/* A digest of the places after every ASCII byte: equal digests almost always mean the same state, without a step of the
 * machine. 0: no place. */
static void digest_bytes(const struct machine *m, int state, uint64_t digest[128])
{
    const struct machine_state *s = &m->state[state];
    uint64_t change[257] = {0}, sum = 0;
    for (int i = 0; i < s->n; i++) {
        const struct machine_place *at = &m->place[s->first + i];
        const struct graph_node *node = &m->graph->node[at->node];
        if (node->kind != GRAPH_BYTES)
            continue;
        uint64_t behind = mix((uint64_t)(uint32_t)at->frame << 32 ^ (uint32_t)node->next);
        change[node->low] += behind;
        change[node->high + 1] -= behind;
    }
    for (int byte = 0; byte < 128; byte++)
        digest[byte] = sum += change[byte];
}

/* A byte of the largest class of equal digests; -1: it is too small. */
static int most_common(const uint64_t digest[128])
{
    struct {
        int byte, n;
    } class[MAX_CLASSES];
    int n = 0, best = 0;
    for (int byte = 0; byte < 128; byte++) {
        int i = 0;
        while (i < n && digest[class[i].byte] != digest[byte])
            i++;
        if (digest[byte] == 0 || i == MAX_CLASSES)
            continue;
        if (i == n) {
            class[n].byte = byte;
            class[n++].n = 0;
        }
        class[i].n++;
    }
    for (int i = 1; i < n; i++)
        best = class[i].n > class[best].n ? i : best;
    return n > 0 && class[best].n >= FEW_BYTES ? class[best].byte : -1;
}

/* The bytes with this byte's digest that really lead to the same state. */
static void gather(struct machine *m, int state, const uint64_t digest[128], int common, struct machine_alike *found)
{
    found->to = machine_next(m, state, (unsigned char)common);
    for (int byte = 0; byte < 128 && found->to >= 0; byte++)
        if (digest[byte] == digest[common] && machine_next(m, state, (unsigned char)byte) == found->to)
            found->ascii[byte / 64] |= 1ull << byte % 64;
    struct visitor v = {.visit = is_expected, .m = m, .to = found->to};
    found->wide = found->to >= 0 && begins_wide(&m->state[state]) && visit_wide(&v, state);
}

const struct machine_alike *alike_find(struct machine *m, int state)
{
    struct machine_alike found = {.known = true, .to = MACHINE_DEAD};
    uint64_t digest[128];
    if (m->state[state].alike.known)
        return &m->state[state].alike;
    digest_bytes(m, state, digest);
    int common = most_common(digest);
    if (common >= 0)
        gather(m, state, digest, common, &found);
    found.free_tried = m->state[state].alike.free_tried;
    m->state[state].alike = found;
    return &m->state[state].alike;
}

int alike_next(struct machine *m, int state, const uint64_t ascii[2], bool wide)
{
    const struct machine_alike *a = alike_find(m, state);
    const uint64_t *live = m->state[state].live;
    if ((ascii[0] & ~a->ascii[0]) == 0 && (ascii[1] & ~a->ascii[1]) == 0 && (a->wide || !wide))
        return a->to;
    bool dead = (live[0] & ascii[0]) == 0 && (live[1] & ascii[1]) == 0 && (!wide || (live[2] | live[3]) == 0);
    return dead ? MACHINE_DEAD : MACHINE_UNKNOWN;
}

/* ---- any plain text ---- */

static bool is_plain(int byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Every byte that begins a plain character may come. */
static bool begins_all(const struct machine_state *s)
{
    const uint64_t low = ~0ull << 0x20 & ~(1ull << '"'), high = ~(1ull << ('\\' - 64));
    return (s->live[0] & low) == low && (s->live[1] & high) == high && begins_wide(s);
}

/* One of the states in which plain text stays, or may stay. */
static bool belongs(struct visitor *v, int state)
{
    if (v->m->state[state].free_chars == MACHINE_UNLIMITED)
        return true;
    for (int i = 0; i < v->n; i++)
        if (v->state[i] == state)
            return true;
    if (v->n == MAX_CLOSED || v->m->state[state].alike.free_tried || !begins_all(&v->m->state[state]))
        return false;
    v->state[v->n++] = state;
    return true;
}

static bool leads_to_all(struct visitor *v, int state)
{
    for (int byte = 0; byte < 128; byte++)
        if (is_plain(byte)) {
            int next = machine_next(v->m, state, (unsigned char)byte);
            if (next < 0 || !v->visit(v, next))
                return false;
        }
    return visit_wide(v, state);
}

/* Whether all places of a state are also places of this one, so that everything that may come there may come here. Both
 * are sorted. */
static bool includes(const struct machine *m, int state, int other)
{
    const struct machine_state *s = &m->state[state], *o = &m->state[other];
    const struct machine_place *place = m->place + s->first, *end = place + s->n;
    for (int i = 0; i < o->n; i++, place++) {
        const struct machine_place *wanted = &m->place[o->first + i];
        while (place < end && (place->node != wanted->node || place->frame != wanted->frame))
            place++;
        if (place == end)
            return false;
    }
    return true;
}

static bool includes_expected(struct visitor *v, int state)
{
    return includes(v->m, state, v->to);
}

/* Whether, in the state to which most characters lead, every plain character leads back to all of its places, perhaps
 * with others (as at the beginning of a pattern that a part of the text has to match). If so, any plain text may come,
 * also in a state that contains these places. */
static bool stays_within(struct machine *m, int state)
{
    int to = alike_find(m, state)->to;
    if (to < 0 || !includes(m, state, to))
        return false;
    struct visitor v = {.visit = includes_expected, .m = m, .to = to};
    if (m->state[to].free_chars != MACHINE_UNLIMITED && (!begins_all(&m->state[to]) || !leads_to_all(&v, to)))
        return false;
    m->state[to].free_chars = m->state[state].free_chars = MACHINE_UNLIMITED;
    return true;
}

bool alike_free(struct machine *m, int state)
{
    struct visitor v = {.visit = belongs, .m = m};
    bool all = m->state[state].free_chars == MACHINE_UNLIMITED;
    if (all || m->state[state].alike.free_tried)
        return all;
    if (begins_all(&m->state[state]) && stays_within(m, state))
        return true;
    all = belongs(&v, state);
    for (int i = 0; i < v.n && all; i++)
        all = leads_to_all(&v, v.state[i]);
    for (int i = 0; i < v.n; i++) {
        m->state[v.state[i]].alike.free_tried |= all || v.n == MAX_CLOSED;
        if (all)
            m->state[v.state[i]].free_chars = MACHINE_UNLIMITED;
    }
    m->state[state].alike.free_tried = true;
    return all;
}
