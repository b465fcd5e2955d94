/* text/tokenizer/bpe.c - see bpe.h. Loading is in bpe_load.c. */
#include "text/tokenizer/bpe.h"

#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 24 /* up to this length rescanning all pairs after each merge is faster than a heap */

static const struct bpe_merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    for (size_t i = (h >> 32) & (b->n_slots - 1); b->merge[i].rank >= 0; i = (i + 1) & (b->n_slots - 1))
        if (b->merge[i].pair == pair)
            return &b->merge[i];
    return NULL;
}

int bpe_append(struct token_list *list, int32_t id, struct err *e)
{
    if (list->n == list->capacity &&
        buffer_grow_array((void **)&list->id, &list->capacity, list->n + 1, sizeof *list->id, e) != 0)
        return -1;
    list->id[list->n++] = id;
    return 0;
}

void bpe_scratch_close(struct bpe_scratch *s)
{
    free(s->id);
    free(s->previous);
    free(s->next);
    free(s->heap);
    buffer_free(&s->mapped);
    *s = (struct bpe_scratch){0};
}

/* Writes <0xNN> for each byte of a character if all of them exist; returns the number of ids, or 0. */
static int hex_ids(const struct bpe *b, const char *s, size_t n, int32_t *id)
{
    for (size_t i = 0; i < n; i++) {
        id[i] = b->byte_hex_id[(unsigned char)s[i]];
        if (id[i] < 0)
            return 0;
    }
    return (int)n;
}

/* The first symbols: one per character, s->id[0, *n_symbols). There is room for n + 1. As in the library, a pending
 * unknown token is written at the next known character or at the end, thus after <0xNN> tokens in between. */
static void split_symbols(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t n, bool byte_level,
                          size_t *n_symbols)
{
    size_t k = 0;
    bool unknown = false;
    for (size_t i = 0; i < n;) {
        char mapped[4];
        const char *c = word + i;
        int32_t cp, id;
        size_t length;
        if (byte_level) {
            unsigned char byte = (unsigned char)word[i++];
            id = b->byte_char_id[byte];
            length = id >= 0 ? 1 : utf8_put(mapped, unicode_byte_to_char(byte));
            c = mapped;
        } else {
            length = (size_t)utf8_next(c, &cp);
            i += length;
            id = vocab_find(&b->vocab, c, length);
        }
        if (id >= 0) {
            if (unknown)
                s->id[k++] = b->unk_id;
            unknown = false;
            s->id[k++] = id;
            continue;
        }
        int n_hex = b->byte_fallback ? hex_ids(b, c, length, s->id + k) : 0;
        k += (size_t)n_hex;
        if (n_hex == 0 && b->unk_id >= 0) {
            if (unknown && !b->fuse_unk)
                s->id[k++] = b->unk_id;
            unknown = true;
        }
    }
    if (unknown)
        s->id[k++] = b->unk_id;
    *n_symbols = k;
}

/* Merges repeatedly the pair with the lowest rank, the leftmost of equals. O(n^2), for short words. */
static void merge_short(const struct bpe *b, int32_t *id, size_t *n_symbols)
{
    const struct bpe_merge *pair[SHORT_WORD];
    size_t n = *n_symbols;
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_merge(b, id[i], id[i + 1]);
    for (;;) {
        size_t best = SIZE_MAX;
        int32_t rank = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] != NULL && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        }
        if (best == SIZE_MAX)
            break;
        id[best] = pair[best]->id;
        n--;
        for (size_t i = best + 1; i < n; i++)
            id[i] = id[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++)
            pair[i] = pair[i + 1];
        if (best > 0)
            pair[best - 1] = find_merge(b, id[best - 1], id[best]);
        if (best + 1 < n)
            pair[best] = find_merge(b, id[best], id[best + 1]);
    }
    *n_symbols = n;
}

static bool before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static int heap_push(struct bpe_scratch *s, struct bpe_candidate c, struct err *e)
{
    if (s->n_heap == s->heap_capacity &&
        buffer_grow_array((void **)&s->heap, &s->heap_capacity, s->n_heap + 1, sizeof *s->heap, e) != 0)
        return -1;
    size_t i = s->n_heap++;
    for (size_t up; i > 0 && before(&c, &s->heap[up = (i - 1) / 4]); i = up)
        s->heap[i] = s->heap[up];
    s->heap[i] = c;
    return 0;
}

static struct bpe_candidate heap_pop(struct bpe_scratch *s)
{
    struct bpe_candidate top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0, n = s->n_heap;
    for (;;) {
        size_t child = 4 * i + 1, best = child;
        if (child >= n)
            break;
        for (size_t c = child + 1; c < child + 4 && c < n; c++)
            if (before(&s->heap[c], &s->heap[best]))
                best = c;
        if (!before(&s->heap[best], &last))
            break;
        s->heap[i] = s->heap[best];
        i = best;
    }
    if (n > 0)
        s->heap[i] = last;
    return top;
}

static int push_pair(const struct bpe *b, struct bpe_scratch *s, const int32_t *id, int32_t left, int32_t right,
                     struct err *e)
{
    if (left < 0 || right < 0)
        return 0;
    const struct bpe_merge *m = find_merge(b, id[left], id[right]);
    return m == NULL ? 0 : heap_push(s, (struct bpe_candidate){m->rank, left, m->id}, e);
}

/* The same result as merge_short with a heap of candidates; outdated ones are recognised when they are popped. */
static int merge_long(const struct bpe *b, struct bpe_scratch *s, int32_t *id, size_t *n_symbols, struct err *e)
{
    int32_t n = (int32_t)*n_symbols;
    if (buffer_grow_array((void **)&s->previous, &s->previous_capacity, *n_symbols, sizeof *s->previous, e) != 0 ||
        buffer_grow_array((void **)&s->next, &s->next_capacity, *n_symbols, sizeof *s->next, e) != 0)
        return -1;
    s->n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        s->previous[i] = i - 1;
        s->next[i] = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i + 1 < n; i++)
        if (push_pair(b, s, id, i, i + 1, e) != 0)
            return -1;
    while (s->n_heap > 0) {
        struct bpe_candidate c = heap_pop(s);
        int32_t right = id[c.pos] < 0 ? -1 : s->next[c.pos];
        if (right < 0)
            continue;
        const struct bpe_merge *m = find_merge(b, id[c.pos], id[right]);
        if (m == NULL || m->id != c.id)
            continue;
        id[c.pos] = c.id;
        id[right] = -1;
        s->next[c.pos] = s->next[right];
        if (s->next[right] >= 0)
            s->previous[s->next[right]] = c.pos;
        if (push_pair(b, s, id, s->previous[c.pos], c.pos, e) != 0 ||
            push_pair(b, s, id, c.pos, s->next[c.pos], e) != 0)
            return -1;
    }
    size_t k = 0;
    for (int32_t i = 0; i < n; i++)
        if (id[i] >= 0)
            id[k++] = id[i];
    *n_symbols = k;
    return 0;
}

/* The end of the part that begins at symbol `start`: no merge joins across. */
static size_t end_of_part(const struct bpe *b, const int32_t *id, size_t start, size_t n)
{
    size_t at = start + 1, n_left = 0, n_right = 0;
    const char *left = vocab_text(&b->vocab, id[start], &n_left), *right;
    for (; at < n; at++, left = right, n_left = n_right) {
        right = vocab_text(&b->vocab, id[at], &n_right);
        if (!bonds_find(&b->bonds, left, n_left, right, n_right))
            break;
    }
    return at;
}

/* Encodes part by part: most parts are short and stay in the cache. */
static int merge_parts(const struct bpe *b, struct bpe_scratch *s, size_t *n_symbols, struct err *e)
{
    size_t n = *n_symbols, k = 0;
    for (size_t start = 0, end; start < n; start = end) {
        end = end_of_part(b, s->id, start, n);
        size_t n_part = end - start;
        if (n_part <= SHORT_WORD)
            merge_short(b, s->id + start, &n_part);
        else if (merge_long(b, s, s->id + start, &n_part, e) != 0)
            return -1;
        memmove(s->id + k, s->id + start, n_part * sizeof *s->id);
        k += n_part;
    }
    *n_symbols = k;
    return 0;
}

/* ignore_merges: the id of a whole word that is a token, or -1. */
static int32_t find_word(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t n, bool byte_level)
{
    if (n > b->vocab.longest)
        return -1;
    if (!byte_level)
        return vocab_find(&b->vocab, word, n);
    s->mapped.bytes = 0;
    for (size_t i = 0; i < n; i++)
        buffer_char(&s->mapped, unicode_byte_to_char((unsigned char)word[i]));
    return s->mapped.failed ? -1 : vocab_find(&b->vocab, s->mapped.data, s->mapped.bytes);
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t n, bool byte_level,
               struct token_list *out, struct err *e)
{
    if (n == 0)
        return 0;
    if (b->ignore_merges) {
        int32_t id = find_word(b, s, word, n, byte_level);
        if (buffer_check(&s->mapped, e) != 0)
            return -1;
        if (id >= 0)
            return bpe_append(out, id, e);
    }
    /* A byte gives at most one symbol, or two <0xNN> tokens if its printable character falls back; an unknown token
     * adds one. */
    if (buffer_grow_array((void **)&s->id, &s->id_capacity, 2 * n + 4, sizeof *s->id, e) != 0)
        return -1;
    size_t k = 0;
    split_symbols(b, s, word, n, byte_level, &k);
    if (k <= SHORT_WORD)
        merge_short(b, s->id, &k);
    else if (merge_parts(b, s, &k, e) != 0)
        return -1;
    if (buffer_grow_array((void **)&out->id, &out->capacity, out->n + k, sizeof *out->id, e) != 0)
        return -1;
    if (k > 0)
        memcpy(out->id + out->n, s->id, k * sizeof *out->id);
    out->n += k;
    return 0;
}
