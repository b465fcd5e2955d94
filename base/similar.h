/* base/similar.h - "did you mean": of the words that exist, the one that a mistyped word most likely stands for. */
#ifndef BASE_SIMILAR_H
#define BASE_SIMILAR_H

#include <stddef.h>

#define SIMILAR_MAX 64 /* longer words are like nothing */

struct similar {
    const char *word; /* borrowed */
    size_t length;
    const char *best; /* borrowed from the candidates; NULL: none is close enough */
    size_t distance;  /* between the two */
};

/* length: of the word, which need not end there. */
void similar_open(struct similar *s, const char *word, size_t length);

/* One of the words that exist. */
void similar_offer(struct similar *s, const char *candidate);

#endif
