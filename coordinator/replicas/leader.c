/* coordinator/replicas/leader.c - see leader.h. */
#include "coordinator/replicas/leader.h"

#include <string.h>

int leader_open(struct leader *l, const struct link_card *card, int replica, const struct limits *limits, struct err *e)
{
    memset(l, 0, sizeof *l);
    if (tokenizer_open(&l->tokenizer, card->model, e) != 0 || leader_link_open(&l->link, card, replica, false, e) != 0)
        return -1;
    lexicon_keeper_open(&l->lexicon, l->tokenizer, card->vocab);
    const struct scheduler_setup setup = {.limits = *limits,
                                          .guesses = card->guesses,
                                          .tokenizer = l->tokenizer,
                                          .lexicon = &l->lexicon,
                                          .prefix_caching = card->prefix_caching != 0,
                                          .max_step = card->max_step,
                                          .rope_changes_at = card->rope_changes_at};
    if (steps_open(&l->steps, l->link.slot[0].end[1], &setup, e) != 0)
        return -1;
    l->link.slot[0].rules = (struct order_rules){card->vocab, scheduler_max_len(&l->steps.scheduler)};
    return leader_link_start(&l->link, e);
}

int leader_next(void *context, struct plan *plan, struct err *e)
{
    struct leader *l = context;
    return leader_link_check(&l->link, e) == 0 ? steps_next(&l->steps, plan, e) : -1;
}

void leader_masks(void *context, struct plan *plan)
{
    scheduler_masks(&((struct leader *)context)->steps.scheduler, plan);
}

int leader_accept(void *context, const struct step_result *result, struct err *e)
{
    return steps_accept(&((struct leader *)context)->steps, result, e);
}

void leader_ranks(void *context, const struct rank_report *report)
{
    steps_ranks(&((struct leader *)context)->steps, report);
}

void leader_close(struct leader *l)
{
    steps_close(&l->steps);
    leader_link_close(&l->link);
    lexicon_keeper_close(&l->lexicon);
    tokenizer_close(&l->tokenizer);
    memset(l, 0, sizeof *l);
}
