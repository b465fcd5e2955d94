/* coordinator/drafts/guesses.c - see guesses.h. */
#include "coordinator/drafts/guesses.h"
#include "coordinator/drafts/suffixes.h"

#include <stdlib.h>

#define MEMORY 0.9 /* of earlier guesses, with each further one: the last ten or so count */

struct guesses {
    struct guess_rules rules;
    struct suffixes *seen;
    bool was_right;   /* the last guess */
    double chance[2]; /* after one that was wrong, and after one that was right */
};

int guesses_open(struct guesses **out, const struct guess_rules *rules, int64_t n_tokens, struct err *e)
{
    struct guesses *g = *out = err_calloc(e, 1, sizeof *g, "guesses");
    if (g == NULL)
        return -1;
    *g = (struct guesses){.rules = *rules, .chance = {0.5, 0.8}};
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
    int n_equal;
    return suffixes_follow(g->seen, g->rules.shortest, g->rules.longest, n, token, &n_equal);
}

double guesses_chance(const struct guesses *g, int place)
{
    return g->chance[place > 0 || g->was_right];
}
