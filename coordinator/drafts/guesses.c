/* coordinator/drafts/guesses.c - see guesses.h. */
#include "coordinator/drafts/guesses.h"
#include "coordinator/drafts/corpus.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY 0.9 /* decay of earlier guesses: about the last ten count */

struct guesses {
    struct guess_rules rules;
    struct suffixes *seen;
    const struct corpus *others; /* NULL: none */
    bool was_right;              /* the last guess */
    double chance[2];            /* after one that was wrong, and after one that was right */
};

int guesses_open(struct guesses **out, const struct guess_rules *rules, int64_t n_tokens, const struct corpus *others,
                 struct err *e)
{
    struct guesses *g = *out = err_calloc(e, 1, sizeof *g, "guesses");
    if (g == NULL)
        return -1;
    *g = (struct guesses){.rules = *rules, .others = others, .chance = {0.5, 0.8}};
    if (suffixes_open(&g->seen, n_tokens, e) != 0) {
        guesses_close(out);
        return -1;
    }
    return 0;
}

void guesses_close(struct guesses **g)
{
    if (*g == NULL)
        return;
    suffixes_close(&(*g)->seen);
    free(*g);
    *g = NULL;
}

void guesses_add(struct guesses *g, int32_t token, bool judged)
{
    int32_t guess;
    if (judged && guesses_make(g, 1, &guess) == 1) {
        double *chance = &g->chance[g->was_right];
        g->was_right = guess == token;
        *chance = MEMORY * *chance + (1 - MEMORY) * g->was_right;
    }
    suffixes_add(g->seen, token);
}

int guesses_make(const struct guesses *g, int n, int32_t *token)
{
    const struct guess_rules *r = &g->rules;
    int32_t other[DRAFTS_MAX];
    int n_equal, n_other_equal = 0;
    int n_own = suffixes_follow(g->seen, r->shortest, r->longest, n, token, &n_equal), n_other = 0;
    if (g->others != NULL && (n_own == 0 || n_equal < r->longest))
        n_other = corpus_find(g->others, g->seen, r->shortest, r->longest, n < DRAFTS_MAX ? n : DRAFTS_MAX, other,
                              &n_other_equal);
    if (n_other == 0 || (n_own > 0 && n_equal >= n_other_equal))
        return n_own;
    memcpy(token, other, (size_t)n_other * sizeof *token);
    return n_other;
}

double guesses_chance(const struct guesses *g, int position)
{
    return g->chance[position > 0 || g->was_right];
}
