/* text/tokenizer/bonds.c - see bonds.h. */
#include "text/tokenizer/bonds.h"

#include "base/utf8.h"

#include <stdlib.h>

#define LEAST_SLOTS 1024

/* The last character of the one, the first of the other; never 0. Neither is empty. */
static uint64_t pair_of(const char *left, size_t n_left, const char *right)
{
    size_t at = n_left - 1;
    int32_t last, first;
    while (at > 0 && ((unsigned char)left[at] & 0xc0) == 0x80)
        at--;
    (void)utf8_next(left + at, &last);
    (void)utf8_next(right, &first);
    return (uint64_t)(uint32_t)(last + 1) << 32 | (uint32_t)(first + 1);
}

/* The slot of the pair, or the one into which it would be put. */
static size_t slot_of(const struct bonds *b, uint64_t pair)
{
    size_t i = (pair * 0x9e3779b97f4a7c15u >> 32) & (b->n_slots - 1);
    while (b->pair[i] != 0 && b->pair[i] != pair)
        i = (i + 1) & (b->n_slots - 1);
    return i;
}

static int grow(struct bonds *b, struct err *e)
{
    struct bonds more = {.n = b->n, .n_slots = b->n_slots > 0 ? 2 * b->n_slots : LEAST_SLOTS, .any = b->any};
    more.pair = err_calloc(e, more.n_slots, sizeof *more.pair, "merges");
    if (more.pair == NULL)
        return -1;
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->pair[i] != 0)
            more.pair[slot_of(&more, b->pair[i])] = b->pair[i];
    free(b->pair);
    *b = more;
    return 0;
}

int bonds_add(struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right, struct err *e)
{
    b->any = b->any || n_left == 0 || n_right == 0;
    if (b->any)
        return 0;
    if (4 * (b->n + 1) > b->n_slots && grow(b, e) != 0)
        return -1;
    uint64_t pair = pair_of(left, n_left, right);
    size_t i = slot_of(b, pair);
    b->n += b->pair[i] == 0;
    b->pair[i] = pair;
    return 0;
}

bool bonds_find(const struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right)
{
    if (b->any || n_left == 0 || n_right == 0)
        return true;
    return b->n > 0 && b->pair[slot_of(b, pair_of(left, n_left, right))] != 0;
}

void bonds_close(struct bonds *b)
{
    free(b->pair);
    *b = (struct bonds){0};
}
