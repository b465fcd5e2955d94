/* commands/front.c - see front.h. */
#include "commands/front.h"
#include "base/log.h"
#include "base/utf8.h"
#include "commands/generation.h"

#include <string.h>

int front_open(struct front *f, const struct service_options *o, const struct model_config *m, int n_ranks,
               struct err *e)
{
    struct request_rules ids = {0};
    char why[ERR_TEXT_BYTES] = "", name[sizeof f->name / 3];
    f->o = o;
    f->bos = -1;
    f->rope_changes_at = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED ? m->rope.long_from : 0;
    f->n_ranks = n_ranks;
    f->n_replicas = n_ranks / run_replica_size(&o->run, n_ranks);
    service_model_name(o, name, sizeof name);
    f->name[utf8_repair(f->name, sizeof f->name - 1, name, strlen(name))] = '\0';
    f->model = (struct protocol_model){.name = f->name, .vocab = m->vocab};
    if (generation_ids(&ids, &f->bos, o->run.model, m->vocab, e) != 0 ||
        tokenizer_open(&f->tokenizer, o->run.model, e) != 0 ||
        chat_template_open(&f->chat, o->run.model, o->chat_template, why, sizeof why, e) != 0)
        return -1;
    lexicon_keeper_open(&f->lexicon, f->tokenizer, m->vocab);
    if (f->chat == NULL)
        log_info("no chats: %s", why);
    f->model.n_eos = ids.sampling.n_eos;
    memcpy(f->model.eos, ids.sampling.eos, sizeof f->model.eos);
    return 0;
}

int front_start(struct front *f, const struct limits *l, struct err *e)
{
    const struct scheduler_setup setup = {.limits = *l,
                                          .tokenizer = f->tokenizer,
                                          .lexicon = &f->lexicon,
                                          .prefix_caching = !f->o->run.no_prefix_caching,
                                          .rope_changes_at = f->rope_changes_at};
    return steps_open(&f->steps, f->replicas->replica[0].end[1], &setup, e);
}

int front_next(void *context, struct plan *plan, struct err *e)
{
    struct front *f = context;
    if (hub_check(&f->hub, e) != 0)
        return -1;
    return steps_next(&f->steps, plan, e);
}

int front_accept(void *context, const struct step_result *result, struct err *e)
{
    return steps_accept(&((struct front *)context)->steps, result, e);
}

void front_signal(void *context, enum signal_wish wish)
{
    steps_signal(&((struct front *)context)->steps, wish);
}

void front_ranks(void *context, const struct rank_report *report)
{
    steps_ranks(&((struct front *)context)->steps, report);
}

void front_end(struct front *f, struct err *e)
{
    steps_close(&f->steps);
    (void)hub_close(&f->hub, e);
}

void front_close(struct front *f)
{
    chat_template_close(&f->chat);
    lexicon_keeper_close(&f->lexicon);
    tokenizer_close(&f->tokenizer);
    memset(f, 0, sizeof *f);
}
