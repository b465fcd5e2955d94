/* rank/step/step_ways.c - see step_ways.h. */
#include "rank/step/step_ways.h"

static int find_page(const struct step_ways_book *b, uint64_t identity)
{
    for (int i = 0; i < b->n; i++)
        if (b->page[i].identity == identity)
            return i;
    return -1;
}

struct step_ways step_ways_find(const struct step_ways_book *b, uint64_t identity)
{
    int i = find_page(b, identity);
    return i >= 0 ? b->page[i].ways : (struct step_ways){0};
}

void step_ways_keep(struct step_ways_book *b, uint64_t identity, const struct step_ways *ways)
{
    int i = find_page(b, identity);
    if (identity == 0)
        return;
    if (i < 0) {
        i = b->next;
        b->next = (b->next + 1) % STEP_WAYS_MODELS;
        b->n = b->n < STEP_WAYS_MODELS ? b->n + 1 : b->n;
    }
    b->page[i].identity = identity;
    b->page[i].ways = *ways;
}

struct step_ways step_ways_guess(void)
{
    struct step_ways ways = {.measured = true};
    for (int n = 0; n <= PERSISTENT_MAX_TOKENS; n++)
        ways.way[n].persistent = true;
    return ways;
}
