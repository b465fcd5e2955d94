/* coordinator/batch.c - see batch.h. */
#include "coordinator/batch.h"
#include "base/log.h"
#include "coordinator/generation.h"

#include <string.h>

static int check_options(const struct options *o, struct err *e)
{
    if (o->n_input == 0)
        return ERR(e, ERR_USAGE, "batch needs --input FILE");
    if (o->output == NULL)
        return ERR(e, ERR_USAGE, "batch needs --output FILE");
    return 0;
}

int batch_open(struct batch_run *b, const struct options *o, const struct model_config *m, int n_ranks, struct err *e)
{
    struct request_rules ids = {0};
    char why[256] = "";
    memset(b, 0, sizeof *b);
    b->o = o;
    b->rope_changes_at = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED ? m->rope.long_from : 0;
    options_model_name(o, b->name, sizeof b->name);
    struct runner_setup setup = {
        .o = o, .model = {.name = b->name, .path = o->model, .vocab = m->vocab}, .bos = -1, .n_ranks = n_ranks};
    if (check_options(o, e) != 0 || generation_ids(&ids, &setup.bos, o->model, m->vocab, e) != 0 ||
        tokenizer_open(&b->tokenizer, o->model, e) != 0 ||
        chat_template_open(&b->chat, o->model, o->chat_template, why, sizeof why, e) != 0)
        return -1;
    if (b->chat == NULL)
        log_info("no chats: %s", why);
    setup.model.n_eos = ids.sampling.n_eos;
    memcpy(setup.model.eos, ids.sampling.eos, sizeof setup.model.eos);
    setup.tokenizer = b->tokenizer;
    setup.chat = b->chat;
    return runner_open(&b->runner, &setup, e);
}

int batch_start(struct batch_run *b, const struct limits *l, struct err *e)
{
    const struct scheduler_setup setup = {.limits = *l,
                                          .tokenizer = b->tokenizer,
                                          .prefix_caching = !b->o->no_prefix_caching,
                                          .rope_changes_at = b->rope_changes_at};
    if (steps_open(&b->steps, b->runner.engine[1], &setup, e) != 0)
        return -1;
    return runner_start(&b->runner, e);
}

int batch_next(void *context, struct plan *plan, struct err *e)
{
    return steps_next(&((struct batch_run *)context)->steps, plan, e);
}

int batch_accept(void *context, const struct step_result *result, struct err *e)
{
    return steps_accept(&((struct batch_run *)context)->steps, result, e);
}

void batch_signal(void *context, enum signal_wish wish)
{
    steps_signal(&((struct batch_run *)context)->steps, wish);
}

void batch_ranks(void *context, const struct rank_report *report)
{
    steps_ranks(&((struct batch_run *)context)->steps, report);
}

int batch_close(struct batch_run *b, struct err *e)
{
    steps_close(&b->steps);
    int status = runner_close(&b->runner, e);
    chat_template_close(&b->chat);
    tokenizer_close(&b->tokenizer);
    memset(b, 0, sizeof *b);
    return status;
}
