/* base/similar.c - see similar.h. */
#include "base/similar.h"

#include <string.h>

/* One edit in three letters is a slip; more makes another word. */
#define LETTERS_PER_EDIT 3

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters inserted, deleted, replaced, or swapped with their neighbour, that lead from a to b. Both are shorter than
 * SIMILAR_MAX. */
static size_t edits(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][SIMILAR_MAX], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = smaller(last[j - 1] + (a[i - 1] != b[j - 1]), smaller(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

void similar_open(struct similar *s, const char *word, size_t length)
{
    *s = (struct similar){.word = word, .length = length};
}

void similar_offer(struct similar *s, const char *candidate)
{
    size_t m = strlen(candidate);
    if (s->length == 0 || s->length >= SIMILAR_MAX || m >= SIMILAR_MAX)
        return;
    size_t distance = edits(s->word, s->length, candidate, m);
    size_t most = (s->length > m ? s->length : m) / LETTERS_PER_EDIT;
    if (distance > (most > 0 ? most : 1) || distance >= m || (s->best != NULL && distance >= s->distance))
        return;
    s->best = candidate;
    s->distance = distance;
}
