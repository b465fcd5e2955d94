/* base/nearest.h - the word that a user probably meant: the one with the smallest edit distance. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* Letters to change, add, leave out or swap with their neighbour, case aside; words longer than 63 letters are far
 * apart. */
int nearest_distance(const char *a, const char *b);

/* The number of changes that a word of this length may have and still count as a slip. */
int nearest_limit(const char *word);

#endif
