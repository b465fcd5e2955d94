/* commands/front.c - see front.h. */
#include "commands/front.h"
#include "coordinator/drafts/draft_options.h"

#include <string.h>

int front_open(struct front *f, const struct service_options *o, const struct model_config *m, int n_ranks,
               struct err *e)
{
    char name[sizeof f->texts.name / 3];
    f->o = o;
    f->n_ranks = n_ranks;
    f->n_replicas = n_ranks / run_replica_size(&o->run, n_ranks);
    service_model_name(o, name, sizeof name);
    if (texts_open(&f->texts, o->run.model, name, o->chat_template, m, e) != 0)
        return -1;
    return lanes_open(&f->lanes, 1, NULL, e);
}

int front_start(struct front *f, const struct limits *l, struct err *e)
{
    struct guess_rules guesses;
    if (draft_rules(&guesses, &f->o->run, e) != 0)
        return -1;
    const struct scheduler_setup setup = {.limits = *l,
                                          .guesses = guesses,
                                          .tokenizer = f->texts.tokenizer,
                                          .lexicon = &f->texts.lexicon,
                                          .prefix_caching = !f->o->run.no_prefix_caching,
                                          .max_step = run_max_step(&f->o->run),
                                          .rope_changes_at = f->texts.rope_changes_at};
    return lanes_start(&f->lanes, 0, f->replicas->replica[0].end[1], &setup, NULL, e);
}

int front_next(void *context, struct plan *plan, struct err *e)
{
    struct front *f = context;
    if (hub_check(&f->hub, e) != 0)
        return -1;
    return lanes_next(&f->lanes, plan, false, e);
}

void front_masks(void *context, struct plan *plan)
{
    lanes_masks(&((struct front *)context)->lanes, plan);
}

int front_accept(void *context, const struct step_result *result, struct err *e)
{
    return lanes_accept(&((struct front *)context)->lanes, result, e);
}

void front_signal(void *context, enum signal_wish wish)
{
    struct steps *s = lanes_first(&((struct front *)context)->lanes);
    if (s != NULL)
        steps_signal(s, wish);
}

void front_ranks(void *context, const struct rank_report *report)
{
    struct steps *s = lanes_first(&((struct front *)context)->lanes);
    if (s != NULL)
        steps_ranks(s, report);
}

void front_end(struct front *f, struct err *e)
{
    lanes_close(&f->lanes);
    (void)hub_close(&f->hub, e);
}

void front_close(struct front *f)
{
    texts_close(&f->texts);
    memset(f, 0, sizeof *f);
}
