/* commands/serve.c - see serve.h. */
#include "commands/serve.h"
#include "base/files.h"
#include "base/utf8.h"
#include "coordinator/drafts/draft_options.h"

#include <string.h>

static bool is_utf8(const char *text)
{
    return utf8_invalid_at(text, strlen(text)) == strlen(text);
}

/* Options without effect for one model. */
static int check_many(const struct serve_options *o, struct err *e)
{
    const char *given = o->models.dir != NULL ? NULL : o->pin != NULL ? "pin" : o->keep_alive > 0 ? "keep-alive" : NULL;
    if (given != NULL)
        return ERR(e, ERR_USAGE, "--%s needs --models-dir DIR", given);
    return models_options_check(&o->models, e);
}

/* Response times would reveal to clients what others were answered. */
static int check_drafts(const struct serve_options *o, struct err *e)
{
    struct guess_rules rules;
    if (draft_rules(&rules, &o->service.run, e) != 0)
        return -1;
    if (rules.shared)
        return ERR(e, ERR_USAGE,
                   "--speculative-config: the method \"suffix\" drafts from other answers, which serve does not do for "
                   "different clients; expected \"ngram\", \"draft_model\", \"eagle3\" or \"mtp\"");
    return 0;
}

int serve_check(const struct serve_options *o, struct err *e)
{
    if (check_many(o, e) != 0 || check_drafts(o, e) != 0)
        return -1;
    if (o->curve && o->insecure)
        return ERR(e, ERR_USAGE, "--insecure and --curve: expected one of them");
    if (o->curve && o->rendezvous == NULL)
        return ERR(e, ERR_USAGE, "--curve needs --rendezvous FILE: clients find the keys beside it");
    if (o->curve_clients != NULL && !o->curve)
        return ERR(e, ERR_USAGE, "--curve-clients needs --curve");
    const char *name = o->curve ? o->rendezvous : NULL, *endpoint = o->rendezvous != NULL ? o->endpoint : NULL;
    if ((name != NULL && !is_utf8(name)) || (endpoint != NULL && !is_utf8(endpoint)))
        return ERR(e, ERR_USAGE,
                   "%s: found a path that is not UTF-8, which the JSON of --rendezvous FILE cannot contain",
                   name != NULL && !is_utf8(name) ? "--rendezvous" : "--endpoint");
    if (o->access_log_prompts && o->access_log == NULL)
        return ERR(e, ERR_USAGE, "--access-log-prompts needs --access-log FILE");
    if (o->rendezvous != NULL && files_check_replaceable(o->rendezvous, "--rendezvous", e) != 0)
        return -1;
    return o->service.metrics_file != NULL ? files_check_replaceable(o->service.metrics_file, "--metrics-file", e) : 0;
}

int serve_open(void *serve, const void *options, const struct model_config *m, const struct checkpoint *c, int n_ranks,
               struct err *e)
{
    struct serve *v = serve;
    const struct serve_options *o = options;
    (void)c;
    if (serve_check(o, e) != 0 || front_open(&v->front, &o->service, m, n_ranks, e) != 0)
        return -1;
    v->front.replicas = &v->server.replicas;
    const struct server_setup setup = {.o = o,
                                       .name = v->front.texts.name,
                                       .served = &v->front.texts.served,
                                       .n_ranks = n_ranks,
                                       .n_replicas = v->front.n_replicas,
                                       .end_seconds = service_end_seconds(&o->service)};
    return server_open(&v->server, &setup, e);
}

int serve_start(void *serve, const struct limits *l, struct err *e)
{
    return front_start(&((struct serve *)serve)->front, l, e);
}

int serve_close(void *serve, struct err *e)
{
    struct serve *v = serve;
    front_end(&v->front, e);
    int status = server_close(&v->server);
    front_close(&v->front);
    return status;
}
