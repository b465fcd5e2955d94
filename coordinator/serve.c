/* coordinator/serve.c - see serve.h. */
#include "coordinator/serve.h"
#include "base/dtype.h"
#include "base/log.h"
#include "coordinator/generation.h"

#include <stdlib.h>
#include <string.h>

static int check_options(const struct options *o, struct err *e)
{
    if (o->curve && o->rendezvous == NULL)
        return ERR(e, ERR_USAGE, "--curve needs --rendezvous FILE: clients learn the keys beside it");
    if (o->curve_clients != NULL && !o->curve)
        return ERR(e, ERR_USAGE, "--curve-clients needs --curve");
    if (o->access_log_prompts && o->access_log == NULL)
        return ERR(e, ERR_USAGE, "--access-log-prompts needs --access-log FILE");
    return 0;
}

int serve_open(struct serve *v, const struct options *o, const struct model_config *m, int n_ranks, struct err *e)
{
    struct request_rules ids = {0};
    char why[256] = "";
    memset(v, 0, sizeof *v);
    v->o = o;
    v->rope_changes_at = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED ? m->rope.long_from : 0;
    options_model_name(o, v->name, sizeof v->name);
    struct server_setup setup = {.o = o,
                                 .model = {.name = v->name, .vocab = m->vocab},
                                 .family = m->model_type,
                                 .dtype = dtype_name(m->dtype),
                                 .bos = -1,
                                 .n_ranks = n_ranks,
                                 .n_groups = n_ranks / options_group_size(o, n_ranks),
                                 .end_seconds = options_end_seconds(o)};
    if (check_options(o, e) != 0 || generation_ids(&ids, &setup.bos, o->model, m->vocab, e) != 0 ||
        tokenizer_open(&v->tokenizer, o->model, e) != 0 ||
        chat_template_open(&v->chat, o->model, o->chat_template, why, sizeof why, e) != 0)
        return -1;
    if (v->chat == NULL)
        log_info("no chats: %s", why);
    setup.model.n_eos = ids.sampling.n_eos;
    memcpy(setup.model.eos, ids.sampling.eos, sizeof setup.model.eos);
    setup.tokenizer = v->tokenizer;
    setup.chat = v->chat;
    return server_open(&v->server, &setup, e);
}

int serve_start(struct serve *v, const struct limits *l, struct err *e)
{
    const struct scheduler_setup setup = {.limits = *l,
                                          .tokenizer = v->tokenizer,
                                          .prefix_caching = !v->o->no_prefix_caching,
                                          .rope_changes_at = v->rope_changes_at};
    return steps_open(&v->steps, v->server.engines.engine[0].end[1], &setup, e);
}

int serve_next(void *context, struct plan *plan, struct err *e)
{
    struct serve *v = context;
    if (hub_check(&v->hub, e) != 0)
        return -1;
    return steps_next(&v->steps, plan, e); /* STEPS_IDLE is LOOP_IDLE, which we may not know */
}

int serve_accept(void *context, const struct step_result *result, struct err *e)
{
    return steps_accept(&((struct serve *)context)->steps, result, e);
}

void serve_signal(void *context, enum signal_wish wish)
{
    steps_signal(&((struct serve *)context)->steps, wish);
}

void serve_ranks(void *context, const struct rank_report *report)
{
    steps_ranks(&((struct serve *)context)->steps, report);
}

int serve_close(struct serve *v, struct err *e)
{
    steps_close(&v->steps);
    (void)hub_close(&v->hub, e); /* its mailboxes are the server's */
    int status = server_close(&v->server);
    chat_template_close(&v->chat);
    tokenizer_close(&v->tokenizer);
    memset(v, 0, sizeof *v);
    return status;
}
