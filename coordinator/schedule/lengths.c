/* coordinator/schedule/lengths.c - see lengths.h. */
#include "coordinator/schedule/lengths.h"

#define OPEN_TOKENS 512   /* of an answer without a limit, until some have ended */
#define MOST_TOKENS 4096  /* of an answer that has no more yet: one request must not keep the others waiting for long */
#define FIRST       32.0  /* the weight of the first expectations, in answers: short ones end first */
#define MEMORY      256.0 /* answers after which an older one counts 1/e */

void lengths_begin(struct lengths *l)
{
    for (int i = 0; i < LENGTHS_SIZES; i++)
        l->share[i] = (struct length_mean){FIRST, FIRST};
    l->open = (struct length_mean){FIRST * OPEN_TOKENS, FIRST};
}

static int size_of(int max_tokens)
{
    int i = 0;
    for (; max_tokens > 1; max_tokens /= 2)
        i++;
    return i;
}

static void add(struct length_mean *m, double x)
{
    const double kept = 1 - 1 / MEMORY;
    m->sum = m->sum * kept + x;
    m->weight = m->weight * kept + 1;
}

void lengths_note(struct lengths *l, int n, int max_tokens, bool fills)
{
    if (fills)
        add(&l->open, n);
    else
        add(&l->share[size_of(max_tokens)], (double)n / max_tokens);
}

int lengths_left(const struct lengths *l, int n, int max_tokens, bool fills)
{
    const struct length_mean *m = fills ? &l->open : &l->share[size_of(max_tokens)];
    double expected = m->sum / m->weight * (fills ? 1 : max_tokens), least = 1.25 * n > n + 1 ? 1.25 * n : n + 1;
    expected = expected < MOST_TOKENS ? expected : MOST_TOKENS;
    double length = expected > least ? expected : least;
    return length < max_tokens ? (int)length - n : max_tokens - n;
}
