/* text/grammar/masks.c - see masks.h. */
#include "text/grammar/masks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct masks_entry *find_set(struct masks *m, const struct masks_key *key)
{
    uint64_t x = (key->walk << 32 ^ (uint32_t)key->state) * 0x9e3779b97f4a7c15u;
    return m->entry[(x >> 32) % MASKS_SETS];
}

static bool is_key(const struct masks_key *a, const struct masks_key *b)
{
    return a->walk == b->walk && a->state == b->state && a->n_tidied == b->n_tidied;
}

const uint32_t *masks_find(struct masks *m, const struct masks_key *key)
{
    struct masks_entry *set = find_set(m, key);
    for (int i = 0; i < MASKS_WAYS; i++)
        if (set[i].mask != NULL && is_key(&set[i].key, key)) {
            set[i].used = ++m->clock;
            return set[i].mask;
        }
    return NULL;
}

void masks_keep(struct masks *m, const struct masks_key *key, const uint32_t *mask, int n_words)
{
    struct masks_entry *set = find_set(m, key), *oldest = set;
    size_t bytes = (size_t)n_words * sizeof *mask;
    for (int i = 1; i < MASKS_WAYS; i++)
        oldest = set[i].used < oldest->used ? &set[i] : oldest;
    if (oldest->mask == NULL && (oldest->mask = malloc(bytes)) == NULL)
        return;
    memcpy(oldest->mask, mask, bytes);
    oldest->key = *key;
    oldest->used = ++m->clock;
}

void masks_close(struct masks *m)
{
    for (int i = 0; i < MASKS_SETS; i++)
        for (int k = 0; k < MASKS_WAYS; k++)
            free(m->entry[i][k].mask);
}
