/* text/grammar/masks.h - expensive masks of the states of all walks over one lexicon. Their number is bounded: the
 * least recently used mask is replaced. */
#ifndef GRAMMAR_MASKS_H
#define GRAMMAR_MASKS_H

#include <stdint.h>

#define MASKS_SETS 256
#define MASKS_WAYS 8 /* 2,048 masks in all: 32 MB of a vocabulary of 128,000 */

struct masks_key {
    uint64_t walk;           /* its number */
    int32_t state, n_tidied; /* see machine.n_tidied */
};

struct masks { /* zeroed = empty */
    struct masks_entry {
        struct masks_key key;
        uint64_t used;
        uint32_t *mask; /* NULL: none */
    } entry[MASKS_SETS][MASKS_WAYS];
    uint64_t clock;
};

/* Valid until the next one is stored. NULL: not stored. */
const uint32_t *masks_find(struct masks *m, const struct masks_key *key);
/* Store a new mask of n_words; without memory it is dropped. */
void masks_keep(struct masks *m, const struct masks_key *key, const uint32_t *mask, int n_words);
void masks_close(struct masks *m);

#endif
